// SPDX-License-Identifier: Apache-2.0
//
// The matrix kernels for AVX2 + FMA + F16C. Owns the table only: the operations are in simd_avx2.h,
// the kernels in matmul_kernel.h.
#include "backends/cpu/kernels/simd_avx2.h"

#include "backends/cpu/kernels/matmul_kernel.h"

namespace pn::cpu {

const MatmulKernels kMatmulAvx2 = {prepare, matmul};

}  // namespace pn::cpu
