// SPDX-License-Identifier: Apache-2.0
//
// F16 and BF16 conversion.
//
// Owns the bit work. Knows no tensor. The one idea: rounding is done by one integer addition, which
// carries into the exponent exactly when it should.
#include "models/quant/half.h"

#include <bit>

namespace pn::quant {

float f16_to_f32(uint16_t bits) {
  uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  uint32_t exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in F32
    float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  uint32_t wide = exponent == 31 ? 255u : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

uint16_t f32_to_f16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65536
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the fraction in the low bits
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;  // the F32 adder rounds to even
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  uint32_t odd = (magnitude >> 13) & 1u;
  magnitude += 0xfffu + odd - (112u << 23);  // 65520 and up carries into infinity
  return static_cast<uint16_t>(sign | magnitude >> 13);
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t f32_to_bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace pn::quant
