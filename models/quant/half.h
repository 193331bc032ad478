// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats, by integer arithmetic alone.
//
// Owns conversion between F32 and F16 or BF16, round to nearest even. Knows no tensor. The one
// idea: bit-exact on any x86-64, since the core binary may not assume F16C.
#pragma once

#include <cstdint>

namespace pn::quant {

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // overflow gives infinity, NaN stays NaN
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

}  // namespace pn::quant
