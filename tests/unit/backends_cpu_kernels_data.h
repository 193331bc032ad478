// SPDX-License-Identifier: Apache-2.0
//
// Random GGUF matrices and rows for the kernel tests.
//
// Owns: byte patterns with every bit used and scales of a sane size, and an aligned buffer. Knows
// of the kernels only their public header, so that a wrong layout cannot agree with itself here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cpu/kernels/matmul.h"

namespace pn::cpu::test {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

inline Buffer aligned(uint64_t bytes) {
  uint64_t size = (bytes + 63) / 64 * 64 + 64;
  void* p = std::aligned_alloc(64, size);
  std::memset(p, 0xa5, size);
  return Buffer(static_cast<std::byte*>(p));
}

struct Random {
  uint64_t state;
  uint32_t next() {  // splitmix64's upper half
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return uint32_t((z ^ (z >> 31)) >> 32);
  }
  float uniform() { return float(next() >> 8) * 0x1p-24f; }
  float normal() {  // a sum of twelve, wide enough for outliers in a block
    float s = -6;
    for (int i = 0; i < 12; ++i) s += uniform();
    return s;
  }
};

struct TypeFacts {
  uint32_t type;
  const char* name;
  int block, bytes;
  int half_at[2];  // offsets of the f16 scale and min, -1: none
};
inline constexpr TypeFacts kTypes[] = {
    {0, "F32", 1, 4, {-1, -1}},        {1, "F16", 1, 2, {-1, -1}},
    {30, "BF16", 1, 2, {-1, -1}},      {2, "Q4_0", 32, 18, {0, -1}},
    {3, "Q4_1", 32, 20, {0, 2}},       {6, "Q5_0", 32, 22, {0, -1}},
    {7, "Q5_1", 32, 24, {0, 2}},       {8, "Q8_0", 32, 34, {0, -1}},
    {12, "Q4_K", 256, 144, {0, 2}},    {13, "Q5_K", 256, 176, {0, 2}},
    {14, "Q6_K", 256, 210, {208, -1}},
};

// f16 of about +-[0.004, 0.03]: sign, exponent 7..9, any mantissa.
inline uint16_t small_half(Random& r) {
  return uint16_t((r.next() & 0x83ffu) | (7u + r.next() % 3) << 10);
}

inline std::vector<uint8_t> random_rows(const TypeFacts& f, int64_t rows, int64_t cols, Random& r) {
  std::vector<uint8_t> out(size_t(rows * cols / f.block * f.bytes));
  for (auto& b : out) b = uint8_t(r.next());
  for (size_t i = 0; i < out.size(); i += size_t(f.bytes)) {
    if (f.type == 0) {
      float v = r.normal();
      std::memcpy(&out[i], &v, 4);
    } else if (f.block == 1) {
      uint16_t h = f.type == 1 ? uint16_t((r.next() & 0x83ffu) | (12u + r.next() % 4) << 10)
                               : uint16_t(std::bit_cast<uint32_t>(r.normal()) >> 16);
      std::memcpy(&out[i], &h, 2);
    }
    for (int at : f.half_at) {
      uint16_t h = small_half(r);
      if (at >= 0) std::memcpy(&out[i + size_t(at)], &h, 2);
    }
  }
  return out;
}

// A matrix in tiles, converted in one go.
struct Tiled {
  Matrix m;
  Buffer tiles;
};

inline Tiled convert(const TypeFacts& f, int64_t rows, int64_t cols, const uint8_t* source) {
  Tiled t;
  uint64_t bytes = uint64_t(tile_count(rows)) * tile_bytes(f.type, cols);
  t.tiles = aligned(bytes);
  t.m = {f.type, rows, cols, t.tiles.get()};
  convert_tiles(t.m, reinterpret_cast<const std::byte*>(source), t.tiles.get(), 0,
                tile_count(rows));
  return t;
}

inline std::vector<float> normal_rows(int64_t n, Random& r) {
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = r.normal();
  return x;
}

inline std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512vnni}) {
    if (isa_available(isa)) out.push_back(isa);
  }
  return out;
}

}  // namespace pn::cpu::test
