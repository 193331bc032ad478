// SPDX-License-Identifier: Apache-2.0
//
// GGUF blocks into tiles, and tiles back to f32.
//
// Owns: the conversion and the exact dequantisation. Knows no instruction set: it is compiled for
// the oldest machine, and its float operations may not be contracted, so decode_row gives the same
// bits everywhere.
// The one idea: a block is first spread to one byte an element in 32-bit words (four columns a
// word, which is also what a tile keeps together), then packed; both steps work on whole words.
#include "backends/cpu/kernels/layout.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/cpu/kernels/half.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/tile.h"

namespace pn::cpu {

using namespace layout;

namespace {

constexpr uint32_t kLowNibbles = 0x0f0f0f0fu;
constexpr uint32_t kOnes = 0x01010101u;

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

uint32_t word(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

void put_word(std::byte* p, uint32_t w) { std::memcpy(p, &w, 4); }

// One GGUF block of one row, spread out.
struct Spread {
  uint32_t q[64];      // unsigned quants, four a word (Q8_0: the signed bytes as they are)
  uint16_t d, m;       // f16
  uint8_t scales[16];  // Q6_K: signed; Q4_K, Q5_K: GGUF's 12 bytes
};

// The 32-element blocks: the low nibble is element e < 16, the high one e + 16; bit e of `high`.
void spread_32(const uint8_t* nibbles, uint32_t high, Spread& s) {
  for (int w = 0; w < 4; ++w) {
    uint32_t n = word(nibbles + 4 * w);
    s.q[w] = n & kLowNibbles;
    s.q[w + 4] = (n >> 4) & kLowNibbles;
  }
  if (high == 0) return;
  for (int w = 0; w < 8; ++w) {
    uint32_t four = (high >> (4 * w)) & 15u;  // 4 bits to 4 bytes: (b * 0x00204081) & 0x01010101
    s.q[w] |= ((four * 0x00204081u) & kOnes) << 4;
  }
}

// Q4_K and Q5_K: 64 columns share 32 bytes, low nibbles first.
void spread_k(const uint8_t* nibbles, const uint8_t* high, Spread& s) {
  for (int c = 0; c < 4; ++c) {
    for (int w = 0; w < 8; ++w) {
      uint32_t n = word(nibbles + 32 * c + 4 * w);
      uint32_t low = n & kLowNibbles, up = (n >> 4) & kLowNibbles;
      if (high) {
        uint32_t h = word(high + 4 * w);
        low |= ((h >> (2 * c)) & kOnes) << 4;
        up |= ((h >> (2 * c + 1)) & kOnes) << 4;
      }
      s.q[16 * c + w] = low;
      s.q[16 * c + 8 + w] = up;
    }
  }
}

void spread_q6(const uint8_t* low, const uint8_t* high, Spread& s) {
  for (int h = 0; h < 2; ++h) {
    for (int part = 0; part < 4; ++part) {  // 32 columns each
      for (int w = 0; w < 8; ++w) {
        uint32_t n = word(low + 64 * h + 32 * (part & 1) + 4 * w);
        n = (part < 2 ? n : n >> 4) & kLowNibbles;
        uint32_t two = (word(high + 32 * h + 4 * w) >> (2 * part)) & 0x03030303u;
        s.q[32 * h + 8 * part + w] = n | two << 4;
      }
    }
  }
}

void spread(uint32_t type, const uint8_t* b, Spread& s) {
  auto half = [&](int at) { return uint16_t(b[at] | b[at + 1] << 8); };
  s.d = half(type == kQ6_K ? 208 : 0);
  s.m = half(2);
  switch (type) {
    case kQ8_0:
      std::memcpy(s.q, b + 2, 32);
      break;
    case kQ4_0:
      spread_32(b + 2, 0, s);
      break;
    case kQ4_1:
      spread_32(b + 4, 0, s);
      break;
    case kQ5_0:
      spread_32(b + 6, word(b + 2), s);
      break;
    case kQ5_1:
      spread_32(b + 8, word(b + 4), s);
      break;
    case kQ4_K:
      std::memcpy(s.scales, b + 4, 12);
      spread_k(b + 16, nullptr, s);
      break;
    case kQ5_K:
      std::memcpy(s.scales, b + 4, 12);
      spread_k(b + 48, b + 16, s);
      break;
    default:
      std::memcpy(s.scales, b + 192, 16);
      spread_q6(b, b + 128, s);
  }
}

void put_half(std::byte* p, uint16_t h) { std::memcpy(p, &h, 2); }

// Blocks `first` and `first + 1` of a row as nibbles of eight vectors.
void pack_nibbles(const uint32_t* low, const uint32_t* high, std::byte* out) {
  for (int g = 0; g < 8; ++g) {
    uint32_t h = high ? high[g] & kLowNibbles : 0;
    put_word(out + 64 * g, (low[g] & kLowNibbles) | h << 4);
  }
}

uint32_t bit4_plane(const uint32_t* q) {
  uint32_t bits = 0;
  for (int g = 0; g < 8; ++g) bits |= ((q[g] >> 4) & kOnes) << g;
  return bits;
}

uint32_t bits45_plane(const uint32_t* q) {  // four vectors
  uint32_t bits = 0;
  for (int g = 0; g < 4; ++g) bits |= ((q[g] >> 4) & 0x03030303u) << (2 * g);
  return bits;
}

int pair_bytes(uint32_t type) {
  if (type == kQ6_K) return kPairBytes6;
  return type == kQ5_0 || type == kQ5_1 || type == kQ5_K ? kPairBytes5 : kPairBytes4;
}

// Two blocks (the second may be missing) of row r into a 64-column unit.
void pack_unit_64(uint32_t type, const Spread& a, const Spread* b, int r, std::byte* unit) {
  put_half(unit + 2 * r, a.d);
  put_half(unit + 32 + 2 * r, b ? b->d : 0);
  if (type == kQ8_0) {
    for (int g = 0; g < 8; ++g) {
      put_word(unit + kScaleBytes + 64 * g + 4 * r, a.q[g]);
      put_word(unit + kScaleBytes + 512 + 64 * g + 4 * r, b ? b->q[g] : 0);
    }
    return;
  }
  bool mins = type == kQ4_1 || type == kQ5_1;
  if (mins) {
    put_half(unit + kScaleBytes + 2 * r, a.m);
    put_half(unit + kScaleBytes + 32 + 2 * r, b ? b->m : 0);
  }
  pack_nibbles(a.q, b ? b->q : nullptr, unit + (mins ? kNibblesQ4_1 : kNibblesQ4_0) + 4 * r);
  if (type == kQ4_0 || type == kQ4_1) return;
  std::byte* high = unit + (mins ? kNibblesQ4_1 : kNibblesQ4_0) + kPairBytes4 + 4 * r;
  put_word(high, bit4_plane(a.q));
  put_word(high + 64, b ? bit4_plane(b->q) : 0);
}

void pack_unit_k(uint32_t type, const Spread& s, int r, std::byte* unit) {
  put_half(unit + 2 * r, s.d);
  if (type != kQ6_K) put_half(unit + 32 + 2 * r, s.m);
  for (int j = 0; j < (type == kQ6_K ? 16 : 12); ++j) {
    unit[kScalesK + 16 * j + r] = std::byte(s.scales[j]);
  }
  for (int p = 0; p < 4; ++p) {
    std::byte* pair =
        unit + (type == kQ6_K ? kNibblesQ6_K : kNibblesK) + pair_bytes(type) * p + 4 * r;
    pack_nibbles(s.q + 16 * p, s.q + 16 * p + 8, pair);
    std::byte* high = pair + kPairBytes4;
    for (int b = 0; b < 2 && type == kQ5_K; ++b) {
      put_word(high + 64 * b, bit4_plane(s.q + 16 * p + 8 * b));
    }
    for (int h = 0; h < 4 && type == kQ6_K; ++h) {
      put_word(high + 64 * h, bits45_plane(s.q + 16 * p + 4 * h));
    }
  }
}

void convert_quant_row(const Geometry& g, const uint8_t* src, int64_t cols, int r,
                       std::byte* tile) {
  int64_t blocks = cols / g.block_cols;
  Spread a, b;
  if (g.unit_cols == 256) {
    for (int64_t i = 0; i < blocks; ++i) {
      spread(g.type, src + i * g.block_bytes, a);
      pack_unit_k(g.type, a, r, tile + i * g.unit_bytes);
    }
    return;
  }
  for (int64_t i = 0; i < blocks; i += 2) {
    spread(g.type, src + i * g.block_bytes, a);
    bool two = i + 1 < blocks;
    if (two) spread(g.type, src + (i + 1) * g.block_bytes, b);
    pack_unit_64(g.type, a, two ? &b : nullptr, r, tile + i / 2 * g.unit_bytes);
  }
}

// bytes 4: f32[col][16]; 2: f16[col][16], or bf16 pairs.
void convert_float_row(uint32_t type, const uint8_t* src, int64_t cols, int r, std::byte* tile) {
  for (int64_t c = 0; c < cols; ++c) {
    if (type == kF32) {
      std::memcpy(tile + 64 * c + 4 * r, src + 4 * c, 4);
    } else if (type == kF16) {
      std::memcpy(tile + 32 * c + 2 * r, src + 2 * c, 2);
    } else {
      std::memcpy(tile + 64 * (c / 2) + 4 * r + 2 * (c & 1), src + 2 * c, 2);
    }
  }
}

float f16_at(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return half_to_float(h);
}

// Unsigned quant of column c (0 .. unit_cols) of row r.
int quant(uint32_t type, const std::byte* unit, int r, int c) {
  int block = c / 32, g = c % 32 / 4, at = 4 * r + c % 4;
  int base = type == kQ6_K ? kNibblesQ6_K : kNibblesK;
  if (type == kQ8_0) return int(int8_t(unit[kScaleBytes + 512 * block + 64 * g + at]));
  if (type == kQ4_0 || type == kQ5_0) base = kNibblesQ4_0;
  if (type == kQ4_1 || type == kQ5_1) base = kNibblesQ4_1;
  const std::byte* pair = unit + base + block / 2 * pair_bytes(type);
  const std::byte* high = pair + kPairBytes4 + at;
  int odd = block & 1, q = int(pair[64 * g + at]) >> (4 * odd) & 15;
  if (pair_bytes(type) == kPairBytes5) q |= (int(high[64 * odd]) >> g & 1) << 4;
  if (type == kQ6_K) q |= (int(high[128 * odd + 64 * (g / 4)]) >> (2 * (g % 4)) & 3) << 4;
  return q;
}

struct KScale {
  int scale, min;
};
// Of block j, from a row's 12 bytes, 16 apart.
KScale k_scale(const std::byte* packed, int j) {
  auto at = [&](int i) { return int(packed[16 * i]); };
  if (j < 4) return {at(j) & 63, at(j + 4) & 63};
  return {(at(j + 4) & 15) | at(j - 4) >> 6 << 4, at(j + 4) >> 4 | at(j) >> 6 << 4};
}

// 32 columns of a quantised row: block `block` of the unit.
void decode_block(uint32_t type, const std::byte* unit, int r, int block, float* out) {
  int first = 32 * block;
  if (type == kQ6_K) {
    float d = f16_at(unit + 2 * r);
    for (int c = 0; c < 32; ++c) {
      float ds = d * float(int8_t(unit[kScalesK + 16 * ((first + c) / 16) + r]));
      out[c] = ds * float(quant(type, unit, r, first + c) - 32);
    }
  } else if (type == kQ4_K || type == kQ5_K) {
    KScale s = k_scale(unit + kScalesK + r, block);
    float d = f16_at(unit + 2 * r) * float(s.scale);
    float m = f16_at(unit + 32 + 2 * r) * float(s.min);
    for (int c = 0; c < 32; ++c) out[c] = d * float(quant(type, unit, r, first + c)) - m;
  } else {
    float d = f16_at(unit + 32 * block + 2 * r);
    bool mins = type == kQ4_1 || type == kQ5_1;
    float m = mins ? f16_at(unit + kScaleBytes + 32 * block + 2 * r) : 0;
    int zero = type == kQ4_0 ? 8 : type == kQ5_0 ? 16 : 0;
    for (int c = 0; c < 32; ++c) {
      float x = d * float(quant(type, unit, r, first + c) - zero);
      out[c] = mins ? x + m : x;
    }
  }
}

}  // namespace

const Geometry* find_geometry(uint32_t type) {
  for (const Geometry& g : kGeometry) {
    if (g.type == type) return &g;
  }
  return nullptr;
}

bool type_supported(uint32_t type) { return find_geometry(type) != nullptr; }

int64_t tile_count(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

uint64_t tile_bytes(uint32_t type, int64_t cols) {
  const Geometry* g = find_geometry(type);
  if (!g || cols < 0) return 0;
  return round_up(uint64_t(cols), g->unit_cols) / g->unit_cols * g->unit_bytes;
}

uint64_t source_row_bytes(uint32_t type, int64_t cols) {
  const Geometry* g = find_geometry(type);
  return g ? uint64_t(cols) / g->block_cols * g->block_bytes : 0;
}

uint64_t panel_bytes(uint32_t, int64_t cols, int64_t tokens) {
  return uint64_t(tokens) * panel_stride_bytes(cols);
}

void convert_tiles(const Matrix& shape, const std::byte* source, std::byte* out, int64_t first,
                   int64_t count) {
  const Geometry& g = *find_geometry(shape.type);
  uint64_t row_bytes = source_row_bytes(shape.type, shape.cols);
  uint64_t bytes = tile_bytes(shape.type, shape.cols);
  for (int64_t t = first; t < first + count; ++t, out += bytes) {
    int64_t rows = std::min(kTileRows, shape.rows - t * kTileRows);
    // Only what no row writes needs zeroing: missing rows, the half unit of an odd block, padding.
    if (rows < kTileRows || shape.cols % g.unit_cols || g.type == kQ6_K) {
      std::memset(out, 0, bytes);
    }
    for (int r = 0; r < int(rows); ++r) {
      auto* src = reinterpret_cast<const uint8_t*>(source) + (t * kTileRows + r) * row_bytes;
      if (g.block_cols == 1) {
        convert_float_row(g.type, src, shape.cols, r, out);
      } else {
        convert_quant_row(g, src, shape.cols, r, out);
      }
    }
  }
}

void decode_span(const Matrix& w, int64_t row, Span span, float* out) {
  const Geometry& g = *find_geometry(w.type);
  const std::byte* tile = w.tiles + row / kTileRows * tile_bytes(w.type, w.cols);
  int r = int(row % kTileRows);
  int64_t end = span.first + span.count;
  if (g.block_cols == 1) {
    for (int64_t c = span.first; c < end; ++c, ++out) {
      if (g.type == kF32) {
        std::memcpy(out, tile + 64 * c + 4 * r, 4);
      } else if (g.type == kF16) {
        *out = f16_at(tile + 32 * c + 2 * r);
      } else {
        uint16_t h;
        std::memcpy(&h, tile + 64 * (c / 2) + 4 * r + 2 * (c & 1), 2);
        *out = std::bit_cast<float>(uint32_t(h) << 16);
      }
    }
    return;
  }
  int blocks = g.unit_cols / 32;
  for (int64_t b = span.first / 32; b * 32 < end; ++b, out += 32) {
    decode_block(g.type, tile + b / blocks * g.unit_bytes, r, int(b % blocks), out);
  }
}

void decode_row(const Matrix& w, int64_t row, float* out) { decode_span(w, row, {0, w.cols}, out); }

}  // namespace pn::cpu
