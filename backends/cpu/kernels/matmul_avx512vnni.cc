// SPDX-License-Identifier: Apache-2.0
//
// The matrix kernels for AVX-512 with VNNI: one instruction multiplies and adds four u8 x s8. Owns
// the table only: the operations are in simd_avx512.h, the kernels in matmul_kernel.h.
#define PN_VNNI 1
#include "backends/cpu/kernels/simd_avx512.h"

#include "backends/cpu/kernels/matmul_kernel.h"

namespace pn::cpu {

const MatmulKernels kMatmulAvx512Vnni = {prepare, matmul};

}  // namespace pn::cpu
