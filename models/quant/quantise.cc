// SPDX-License-Identifier: Apache-2.0
//
// Plain block encoding, for test files.
//
// Owns one function a type, floats in, block out. Knows no tensor. The one idea: the least and the
// greatest value of a block fix its scale; no search, so an error is at most about half a step of
// the scale, which the tests check.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/gguf/file.h"
#include "models/quant/blocks.h"
#include "models/quant/dequantise.h"
#include "models/quant/half.h"

namespace pn::quant {
namespace {

// Stores v as F16 and gives what a decoder will read.
float put_half(uint8_t* p, float v) {
  uint16_t bits = f32_to_f16(v);
  store(p, bits);
  return f16_to_f32(bits);
}

int level(float x, float step, int least, int greatest) {
  if (step == 0) return std::clamp(0, least, greatest);
  return std::clamp(static_cast<int>(std::lround(x / step)), least, greatest);
}

// The value of greatest magnitude, with its sign.
float extreme(const float* x, int n) {
  return *std::max_element(x, x + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

void f32(const float* x, uint8_t* b) { store(b, *x); }
void f16(const float* x, uint8_t* b) { store(b, f32_to_f16(*x)); }
void bf16(const float* x, uint8_t* b) { store(b, f32_to_bf16(*x)); }

void q8_0(const float* x, uint8_t* b) {
  float d = put_half(b, std::fabs(extreme(x, 32)) / 127);
  for (int e = 0; e < 32; ++e)
    b[2 + e] = static_cast<uint8_t>(static_cast<int8_t>(level(x[e], d, -127, 127)));
}

void put_nibbles(const int* v, uint8_t* q) {
  for (int e = 0; e < 16; ++e) q[e] = static_cast<uint8_t>((v[e] & 15) | (v[e + 16] & 15) << 4);
}

uint32_t fifth_bits(const int* v) {
  uint32_t high = 0;
  for (int e = 0; e < 32; ++e) high |= static_cast<uint32_t>(v[e] >> 4 & 1) << e;
  return high;
}

// Signed types: the extreme value takes the level -half, of which there is one more than +.
float signed_levels(const float* x, int half, uint8_t* scale, int* v) {
  float d = put_half(scale, extreme(x, 32) / static_cast<float>(-half));
  for (int e = 0; e < 32; ++e) v[e] = level(x[e], d, -half, half - 1) + half;
  return d;
}

void offset_levels(const float* x, int top, uint8_t* scale_min, int* v) {
  auto [low, high] = std::minmax_element(x, x + 32);
  float d = put_half(scale_min, (*high - *low) / static_cast<float>(top));
  float m = put_half(scale_min + 2, *low);
  for (int e = 0; e < 32; ++e) v[e] = level(x[e] - m, d, 0, top);
}

void q4_0(const float* x, uint8_t* b) {
  int v[32];
  signed_levels(x, 8, b, v);
  put_nibbles(v, b + 2);
}

void q4_1(const float* x, uint8_t* b) {
  int v[32];
  offset_levels(x, 15, b, v);
  put_nibbles(v, b + 4);
}

void q5_0(const float* x, uint8_t* b) {
  int v[32];
  signed_levels(x, 16, b, v);
  store(b + 2, fifth_bits(v));
  put_nibbles(v, b + 6);
}

void q5_1(const float* x, uint8_t* b) {
  int v[32];
  offset_levels(x, 31, b, v);
  store(b + 4, fifth_bits(v));
  put_nibbles(v, b + 8);
}

// Scales, minima and levels (0..top) of the 8 sub-blocks of Q4_K and Q5_K.
void k_levels(const float* x, int top, uint8_t* b, int* v) {
  float step[8], floor[8];  // the decoder computes step * v - floor
  for (int j = 0; j < 8; ++j) {
    auto [low, high] = std::minmax_element(x + 32 * j, x + 32 * j + 32);
    floor[j] = std::max(0.0f, -*low);
    step[j] = std::max(0.0f, *high + floor[j]) / static_cast<float>(top);
  }
  float d = put_half(b, *std::max_element(step, step + 8) / 63);
  float m = put_half(b + 2, *std::max_element(floor, floor + 8) / 63);
  std::memset(b + 4, 0, 12);
  for (int j = 0; j < 8; ++j) {
    int scale = level(step[j], d, 0, 63), min = level(floor[j], m, 0, 63);
    set_k_scale(b + 4, j, scale, min);
    float dc = d * static_cast<float>(scale), dm = m * static_cast<float>(min);
    for (int l = 0; l < 32; ++l) v[32 * j + l] = level(x[32 * j + l] + dm, dc, 0, top);
  }
}

void put_k_nibbles(const int* v, uint8_t* q) {
  for (int j = 0; j < 8; j += 2)
    for (int l = 0; l < 32; ++l)
      q[16 * j + l] = static_cast<uint8_t>((v[32 * j + l] & 15) | (v[32 * j + 32 + l] & 15) << 4);
}

void q4_k(const float* x, uint8_t* b) {
  int v[256];
  k_levels(x, 15, b, v);
  put_k_nibbles(v, b + 16);
}

void q5_k(const float* x, uint8_t* b) {
  int v[256];
  k_levels(x, 31, b, v);
  std::memset(b + 16, 0, 32);
  for (int e = 0; e < 256; ++e)
    b[16 + e % 32] = static_cast<uint8_t>(b[16 + e % 32] | (v[e] >> 4) << (e / 32));
  put_k_nibbles(v, b + 48);
}

void q6_k(const float* x, uint8_t* b) {
  float step[16];
  for (int k = 0; k < 16; ++k) step[k] = extreme(x + 16 * k, 16) / -32;
  float d = put_half(b + 208, std::fabs(extreme(step, 16)) / 127);
  std::memset(b, 0, 192);
  for (int k = 0; k < 16; ++k) {
    int scale = level(step[k], d, -127, 127);
    b[192 + k] = static_cast<uint8_t>(static_cast<int8_t>(scale));
    for (int i = 0; i < 16; ++i) {
      int e = 16 * k + i, h = e / 128, s = e % 128 / 32, l = e % 32;
      int v = level(x[e], d * static_cast<float>(scale), -32, 31) + 32;
      uint8_t *low = b + 64 * h + l + 32 * (s & 1), *high = b + 128 + 32 * h + l;
      *low = static_cast<uint8_t>(*low | (v & 15) << (s < 2 ? 0 : 4));
      *high = static_cast<uint8_t>(*high | (v >> 4) << 2 * s);
    }
  }
}

using Encode = void (*)(const float* in, uint8_t* block);

Encode encoder(uint32_t type) {
  switch (type) {
    case kF32:
      return f32;
    case kF16:
      return f16;
    case kBF16:
      return bf16;
    case kQ4_0:
      return q4_0;
    case kQ4_1:
      return q4_1;
    case kQ5_0:
      return q5_0;
    case kQ5_1:
      return q5_1;
    case kQ8_0:
      return q8_0;
    case kQ4_K:
      return q4_k;
    case kQ5_K:
      return q5_k;
    case kQ6_K:
      return q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

Result<void> quantise(uint32_t type, std::span<const float> in, std::byte* row) {
  Encode encode = encoder(type);
  if (encode == nullptr) return tl::make_unexpected(undecodable(type, "(row)"));
  const gguf::TypeInfo* info = gguf::type_info(type);
  if (in.size() % info->block != 0)
    return fail(Code::invalid, fmt::format("{} elements are no whole blocks of {} ({} each)",
                                           in.size(), info->name, info->block));
  auto* block = reinterpret_cast<uint8_t*>(row);
  for (size_t at = 0; at < in.size(); at += info->block, block += info->block_bytes)
    encode(in.data() + at, block);
  return {};
}

}  // namespace pn::quant
