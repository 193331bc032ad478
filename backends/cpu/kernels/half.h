// SPDX-License-Identifier: Apache-2.0
//
// f16 and f32 for code without F16C. Owns the two scalar conversions and nothing else; only
// translation units compiled for the oldest machine include it.
#pragma once

#include <bit>
#include <cstdint>

namespace pn::cpu {

inline float half_to_float(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000u) << 16;
  uint32_t body = uint32_t(h & 0x7fffu);
  if (body >= 0x7c00u) {  // infinities, and quiet NaNs with their payload (as F16C gives them)
    uint32_t quiet = body > 0x7c00u ? 0x00400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | (body & 0x3ffu) << 13 | quiet);
  }
  if (body < 0x0400u) {  // zero and subnormals: exact in f32
    float tiny = float(body) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(tiny));
  }
  return std::bit_cast<float>(sign | ((body << 13) + 0x38000000u));
}

inline uint16_t float_to_half(float f) {  // nearest even
  uint32_t u = std::bit_cast<uint32_t>(f);
  uint32_t sign = u >> 16 & 0x8000u, body = u & 0x7fffffffu;
  if (body > 0x7f800000u) return uint16_t(sign | 0x7e00u | (body >> 13 & 0x3ffu));
  if (body >= 0x47800000u) return uint16_t(sign | 0x7c00u);
  if (body < 0x38800000u) {  // subnormal: let the adder round at bit 0 of 2^-24
    float shifted = std::bit_cast<float>(body) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  uint32_t odd = body >> 13 & 1u;
  return uint16_t(sign | ((body - 0x38000000u + 0xfffu + odd) >> 13));
}

}  // namespace pn::cpu
