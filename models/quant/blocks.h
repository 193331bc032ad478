// SPDX-License-Identifier: Apache-2.0
//
// What decoding and encoding share about block layouts.
//
// Owns unaligned loads and the 6-bit scale packing of the K types. Knows no type number. Inside
// models/quant only.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

namespace pn::quant {

template <typename T>
T load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <typename T>
void store(uint8_t* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// Scale and minimum of sub-block j (0..7) in the 12 bytes S of Q4_K and Q5_K: the first four pairs
// lie in the low 6 bits, the others in nibbles whose top two bits are the spare bits of the first.
inline std::pair<int, int> k_scale(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
}

inline void set_k_scale(uint8_t* s, int j, int scale, int min) {
  if (j < 4) {
    s[j] = static_cast<uint8_t>((s[j] & 0xc0) | scale);
    s[j + 4] = static_cast<uint8_t>((s[j + 4] & 0xc0) | min);
    return;
  }
  s[j + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
  s[j - 4] = static_cast<uint8_t>((s[j - 4] & 63) | (scale >> 4) << 6);
  s[j] = static_cast<uint8_t>((s[j] & 63) | (min >> 4) << 6);
}

}  // namespace pn::quant
