// SPDX-License-Identifier: Apache-2.0
//
// Tiles hold what GGUF says. The dequantisation here is written from the format's description, one
// element at a time, and shares nothing with the code it judges.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "tests/unit/backends_cpu_kernels_data.h"

namespace pn::cpu::test {
namespace {

float f16(const uint8_t* p) {
  int h = p[0] | p[1] << 8, e = h >> 10 & 31, m = h & 1023;
  double v = e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return float(h & 0x8000 ? -v : v);
}

int nibble(const uint8_t* q, int e) { return e < 16 ? q[e] & 15 : q[e - 16] >> 4; }
int bit(const uint8_t* h, int e) { return h[e / 8] >> (e % 8) & 1; }

float k_value(const uint8_t* b, const uint8_t* q, const uint8_t* high, int e) {
  const uint8_t* s = b + 4;
  int j = e / 32, l = e % 32;
  int c = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
  int m = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
  int v = e % 64 < 32 ? q[32 * (e / 64) + l] & 15 : q[32 * (e / 64) + l] >> 4;
  if (high) v += 16 * (high[l] >> j & 1);
  float scale = f16(b) * float(c), min = f16(b + 2) * float(m);
  float product = scale * float(v);
  return product - min;
}

float q6_value(const uint8_t* b, int e) {
  int h = e / 128, s = e % 128 / 32, l = e % 32;
  int byte = b[64 * h + l + 32 * (s & 1)];
  int v = (s < 2 ? byte & 15 : byte >> 4) | (b[128 + 32 * h + l] >> (2 * s) & 3) << 4;
  float scale = f16(b + 208) * float(int8_t(b[192 + e / 16]));
  return scale * float(v - 32);
}

// Element e of a block.
float value(uint32_t type, const uint8_t* b, int e) {
  switch (type) {
    case 0: {
      float v;
      std::memcpy(&v, b, 4);
      return v;
    }
    case 1:
      return f16(b);
    case 30:
      return std::bit_cast<float>(uint32_t(b[0] | b[1] << 8) << 16);
    case 2:
      return f16(b) * float(nibble(b + 2, e) - 8);
    case 3: {
      float product = f16(b) * float(nibble(b + 4, e));
      return product + f16(b + 2);
    }
    case 6:
      return f16(b) * float((nibble(b + 6, e) | bit(b + 2, e) << 4) - 16);
    case 7: {
      float product = f16(b) * float(nibble(b + 8, e) | bit(b + 4, e) << 4);
      return product + f16(b + 2);
    }
    case 8:
      return f16(b) * float(int8_t(b[2 + e]));
    case 12:
      return k_value(b, b + 16, nullptr, e);
    case 13:
      return k_value(b, b + 48, b + 16, e);
    default:
      return q6_value(b, e);
  }
}

// Columns to try: odd numbers of blocks, and for float types any width.
std::vector<int64_t> widths(const TypeFacts& f) {
  if (f.block == 1) return {1, 2, 31, 32, 97, 256};
  if (f.block == 32) return {32, 64, 96, 1280};
  return {256, 768, 1280};
}

TEST_CASE("cpu kernels: every type decodes to exactly what GGUF says") {
  Random random{1};
  for (const TypeFacts& f : kTypes) {
    for (int64_t cols : widths(f)) {
      for (int64_t rows : {1, 15, 16, 17, 100}) {
        auto source = random_rows(f, rows, cols, random);
        Tiled t = convert(f, rows, cols, source.data());
        std::vector<float> row(static_cast<size_t>(cols));
        int64_t wrong = 0;
        for (int64_t r = 0; r < rows; ++r) {
          decode_row(t.m, r, row.data());
          const uint8_t* b = source.data() + r * cols / f.block * f.bytes;
          for (int64_t c = 0; c < cols; ++c) {
            float want = value(f.type, b + c / f.block * f.bytes, int(c % f.block));
            wrong += std::bit_cast<uint32_t>(want) != std::bit_cast<uint32_t>(row[size_t(c)]);
          }
        }
        INFO(std::string(f.name), " ", rows, " x ", cols);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("cpu kernels: tiles convert alone, from any alignment, and touch only their bytes") {
  Random random{2};
  for (const TypeFacts& f : kTypes) {
    const int64_t rows = 70, cols = f.block == 1 ? 33 : 3 * f.block;  // 5 tiles, the last ragged
    auto source = random_rows(f, rows, cols, random);
    Tiled whole = convert(f, rows, cols, source.data());
    std::vector<uint8_t> moved(source.size() + 1);
    std::memcpy(moved.data() + 1, source.data(), source.size());
    uint64_t bytes = tile_bytes(f.type, cols);
    CHECK(bytes % 64 == 0);
    for (int64_t first = 0; first < 5; first += 2) {
      int64_t count = std::min<int64_t>(2, 5 - first);
      Buffer out = aligned(2 * bytes + 64);
      convert_tiles(whole.m, reinterpret_cast<const std::byte*>(moved.data() + 1), out.get(), first,
                    count);
      INFO(std::string(f.name), " tile ", first);
      CHECK(std::memcmp(out.get(), whole.tiles.get() + uint64_t(first) * bytes,
                        uint64_t(count) * bytes) == 0);
      CHECK(out.get()[uint64_t(count) * bytes] == std::byte{0xa5});
    }
  }
}

TEST_CASE("cpu kernels: a tile is at most 3 % larger than its GGUF rows") {
  for (const TypeFacts& f : kTypes) {
    INFO(std::string(f.name));
    CHECK(source_row_bytes(f.type, 2048) == uint64_t(2048 / f.block * f.bytes));
    CHECK(double(tile_bytes(f.type, 2048)) <= 1.03 * 16 * double(source_row_bytes(f.type, 2048)));
    CHECK(type_supported(f.type));
  }
  CHECK_FALSE(type_supported(10));
  CHECK_FALSE(type_supported(39));
  CHECK(tile_count(1) == 1);
  CHECK(tile_count(16) == 1);
  CHECK(tile_count(17) == 2);
}

}  // namespace
}  // namespace pn::cpu::test
