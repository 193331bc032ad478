// SPDX-License-Identifier: Apache-2.0
//
// Random weights in the blocks of GGUF's types: any bits for the quants, sane numbers for scales.
//
// Owns where a block keeps its F16 scales. Knows no decoding: what the bytes mean is asked of the
// plugins, and they must agree.
#include <algorithm>
#include <cstring>

#include "hal/check/plan.h"

namespace pn::check {

namespace {

// Offsets of F16 scales in a block, -1 none, and about how large the values that they multiply are.
struct Scales {
  uint32_t type;
  int at[2];
  float largest;
};
constexpr Scales kScales[] = {{2, {0, -1}, 8},       {3, {0, 2}, 16},    {6, {0, -1}, 16},
                              {7, {0, 2}, 32},       {8, {0, -1}, 128},  {10, {80, 82}, 48},
                              {11, {108, -1}, 128},  {12, {0, 2}, 1000}, {13, {0, 2}, 2000},
                              {14, {208, -1}, 4000}, {20, {0, -1}, 128}};

constexpr TypeFacts kTypes[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {30, "BF16", 1, 2},     {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},    {8, "Q8_0", 32, 34},
    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210}, {20, "IQ4_NL", 32, 18}, {39, "MXFP4", 32, 17}};

// For values in F16's normal range; the last bits are cut.
uint16_t half(float v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, 4);
  const uint32_t sign = bits >> 16 & 0x8000;
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ff));
}

void put16(std::byte* to, uint16_t v) { std::memcpy(to, &v, 2); }

void random_floats(uint32_t type, std::vector<std::byte>* out, uint64_t seed) {
  const uint64_t size = type == PN_TYPE_F32 ? 4 : 2, n = out->size() / size;
  const std::vector<float> values = random_values(n, seed);
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    if (type == PN_TYPE_F32) std::memcpy(out->data() + i * 4, &bits, 4);
    if (type == PN_TYPE_F16) put16(out->data() + i * 2, half(values[i]));
    if (type == PN_TYPE_BF16) put16(out->data() + i * 2, static_cast<uint16_t>(bits >> 16));
  }
}

void set_scales(uint32_t type, std::byte* block, uint64_t& state) {
  if (type == 39) {  // one exponent byte, 127 is 1
    block[0] = static_cast<std::byte>(122 + random_bits(state) % 4);
    return;
  }
  for (const Scales& s : kScales) {
    if (s.type != type) continue;
    for (const int at : s.at) {
      if (at < 0) continue;
      const float unit = static_cast<float>(random_bits(state) >> 40) * 0x1p-24f;
      put16(block + at, half((0.5f + unit) / s.largest));
    }
  }
}

}  // namespace

std::span<const TypeFacts> known_types() { return kTypes; }

const TypeFacts* type_facts(uint32_t type) {
  for (const TypeFacts& facts : kTypes)
    if (facts.type == type) return &facts;
  return nullptr;
}

std::vector<std::byte> random_blocks(uint32_t type, int64_t cols, int64_t rows, uint64_t seed) {
  const TypeFacts* facts = type_facts(type);
  if (facts == nullptr || cols % facts->block != 0) return {};
  const auto blocks = static_cast<uint64_t>(cols / facts->block * rows);
  std::vector<std::byte> out(blocks * facts->block_bytes);
  if (facts->block == 1) {
    random_floats(type, &out, seed);
    return out;
  }
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t bits = random_bits(seed);
    std::memcpy(out.data() + i, &bits, std::min<size_t>(8, out.size() - i));
  }
  for (uint64_t b = 0; b < blocks; ++b) set_scales(type, &out[b * facts->block_bytes], seed);
  return out;
}

}  // namespace pn::check
