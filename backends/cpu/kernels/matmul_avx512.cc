// SPDX-License-Identifier: Apache-2.0
//
// The matrix kernels for AVX-512 F + BW + VL + DQ. Owns the table only: the operations are in
// simd_avx512.h, the kernels in matmul_kernel.h.
#include "backends/cpu/kernels/simd_avx512.h"

#include "backends/cpu/kernels/matmul_kernel.h"

namespace pn::cpu {

const MatmulKernels kMatmulAvx512 = {prepare, matmul};

}  // namespace pn::cpu
