// SPDX-License-Identifier: Apache-2.0
//
// The row kernels for any x86-64 (SSE2). Owns the table only: the operations are in lanes_sse2.h,
// the kernels in vector_kernel.h.
#include "backends/cpu/kernels/lanes_sse2.h"

#include "backends/cpu/kernels/vector_kernel.h"

namespace pn::cpu {

const VectorKernels kVectorBaseline = vector_table();

}  // namespace pn::cpu
