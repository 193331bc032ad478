// SPDX-License-Identifier: Apache-2.0
//
// The row kernels for AVX-512 F, BW, VL and DQ. Owns the table only: the operations are in
// lanes_avx512.h, the kernels in vector_kernel.h.
#include "backends/cpu/kernels/lanes_avx512.h"

#include "backends/cpu/kernels/vector_kernel.h"

namespace pn::cpu {

const VectorKernels kVectorAvx512 = vector_table();

}  // namespace pn::cpu
