// SPDX-License-Identifier: Apache-2.0
//
// The row kernels for AVX2 + FMA + F16C. Owns the table only: the operations are in lanes_avx2.h,
// the kernels in vector_kernel.h.
#include "backends/cpu/kernels/lanes_avx2.h"

#include "backends/cpu/kernels/vector_kernel.h"

namespace pn::cpu {

const VectorKernels kVectorAvx2 = vector_table();

}  // namespace pn::cpu
