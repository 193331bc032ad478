// SPDX-License-Identifier: Apache-2.0
//
// The matrix kernels for any x86-64: SSE2 only.
//
// Owns: its own panel (s16 activations, because SSE2 multiplies i16 pairs only) and one path for
// any number of tokens. Plain on purpose: machines that end up here are not asked to be fast. The
// one idea: a unit's weights are unpacked once to signed i16 and f32 factors on the stack, then
// every token of a block of 64 runs over them; pmaddwd sums are exact inside a block, so as
// everywhere only the ascending order of blocks decides a result's bits.
#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/cpu/kernels/half.h"
#include "backends/cpu/kernels/lanes_sse2.h"
#include "backends/cpu/kernels/tile.h"

namespace pn::cpu {

using namespace layout;

namespace {

constexpr int64_t kBlockTokens = 64;

bool is_float(uint32_t type) { return type == kF32 || type == kF16 || type == kBF16; }
bool has_mins(uint32_t type) {
  return type == kQ4_1 || type == kQ5_1 || type == kQ4_K || type == kQ5_K;
}

// A token's row: s16 quants, then per block a scale and scale * sum.
struct PanelShape {
  int64_t stride, blocks, scales, sums;
  explicit PanelShape(int64_t cols)
      : stride(int64_t(panel_stride_bytes(cols))),
        blocks((cols + 63) / 64 * 2),
        scales(blocks * 64),
        sums(blocks * 68) {}
};

void quantize_32(const float* x, int64_t n, int16_t* q, float* scale, float* sum) {
  uint32_t top = 0;  // magnitudes as integers: a NaN or infinity wins and reaches the result
  for (int64_t i = 0; i < n; ++i) {
    top = std::max(top, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  float amax = std::bit_cast<float>(top);
  bool tiny = top < 0x0554ad2e;  // 1e-35: the reciprocal would overflow
  float inverse = tiny ? 0.0f : 127.0f / amax;
  int total = 0;
  for (int64_t i = 0; i < 32; ++i) {
    int v = i < n ? _mm_cvtss_si32(_mm_set_ss(x[i] * inverse)) : 0;
    q[i] = int16_t(v);
    total += q[i];
  }
  *scale = tiny ? 0.0f : amax / 127.0f;
  *sum = *scale * float(total);
}

void prepare(uint32_t type, const PanelSource& source, std::byte* panel, int64_t first,
             int64_t last) {
  PanelShape shape(source.cols);
  for (int64_t t = first; t < last; ++t) {
    const float* x = source.x + t * source.stride;
    std::byte* row = panel + t * shape.stride;
    if (is_float(type)) {
      std::memcpy(row, x, size_t(source.cols) * 4);
      continue;
    }
    for (int64_t b = 0; b < shape.blocks; ++b) {
      int64_t n = std::clamp<int64_t>(source.cols - 32 * b, 0, 32);
      quantize_32(x + 32 * b, n, reinterpret_cast<int16_t*>(row + 64 * b),
                  reinterpret_cast<float*>(row + shape.scales + 4 * b),
                  reinterpret_cast<float*>(row + shape.sums + 4 * b));
    }
  }
}

// Up to 256 columns of a tile: q (blocks, 8 vectors, 16 rows, 4 columns), and for every run of
// `run` columns (32; Q6_K: 16) a factor, for every block a min.
struct Unpacked {
  alignas(16) int16_t q[8][8][64];
  alignas(16) float factor[16][16];
  alignas(16) float min[8][16];
  int blocks = 0;
};

__m128i shift_right(__m128i v, int by) { return _mm_srl_epi16(v, _mm_cvtsi32_si128(by)); }
__m128i shift_left(__m128i v, int by) { return _mm_sll_epi16(v, _mm_cvtsi32_si128(by)); }

struct Planes {
  const std::byte* pairs;
  int pair_bytes;
  int zero;
};

// 16 bytes `at` of vector g of a block, as unsigned quants.
__m128i load_quants(const Planes& p, int block, int g, int at) {
  auto load = [](const std::byte* a) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(a));
  };
  const std::byte* pair = p.pairs + p.pair_bytes * (block / 2) + at;
  const std::byte* high = pair + kPairBytes4;
  int odd = block & 1;
  __m128i n = _mm_and_si128(shift_right(load(pair + 64 * g), 4 * odd), _mm_set1_epi8(15));
  if (p.pair_bytes == kPairBytes4) return n;
  if (p.pair_bytes == kPairBytes6) {
    __m128i h = load(high + 128 * odd + 64 * (g / 4));
    h = _mm_and_si128(shift_right(h, 2 * (g % 4)), _mm_set1_epi8(3));
    return _mm_or_si128(n, shift_left(h, 4));
  }
  __m128i h = _mm_and_si128(shift_right(load(high + 64 * odd), g), _mm_set1_epi8(1));
  return _mm_or_si128(n, shift_left(h, 4));
}

void unpack_nibbles(const Planes& p, int blocks, int first, Unpacked& u) {
  const __m128i zero = _mm_setzero_si128(), offset = _mm_set1_epi16(short(p.zero));
  for (int b = 0; b < blocks; ++b) {
    for (int g = 0; g < 8; ++g) {
      for (int at = 0; at < 64; at += 16) {
        __m128i n = load_quants(p, b, g, at);
        auto* out = reinterpret_cast<__m128i*>(u.q[first + b][g] + at);
        _mm_store_si128(out, _mm_sub_epi16(_mm_unpacklo_epi8(n, zero), offset));
        _mm_store_si128(out + 1, _mm_sub_epi16(_mm_unpackhi_epi8(n, zero), offset));
      }
    }
  }
}

void unpack_bytes(const std::byte* q, int first, Unpacked& u) {
  for (int i = 0; i < 2 * 8 * 64; i += 16) {
    __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(q + i));
    auto* out = reinterpret_cast<__m128i*>(&u.q[first][0][0] + i);
    _mm_store_si128(out, _mm_srai_epi16(_mm_unpacklo_epi8(v, v), 8));
    _mm_store_si128(out + 1, _mm_srai_epi16(_mm_unpackhi_epi8(v, v), 8));
  }
}

float f16_at(const std::byte* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return half_to_float(h);
}

void unpack_64(uint32_t type, const std::byte* unit, int first, Unpacked& u) {
  for (int b = 0; b < 2; ++b) {
    for (int r = 0; r < 16; ++r) {
      u.factor[first + b][r] = f16_at(unit + 32 * b + 2 * r);
      if (has_mins(type)) u.min[first + b][r] = f16_at(unit + kScaleBytes + 32 * b + 2 * r);
    }
  }
  if (type == kQ8_0) return unpack_bytes(unit + kScaleBytes, first, u);
  bool five = type == kQ5_0 || type == kQ5_1;
  Planes p{unit + (has_mins(type) ? kNibblesQ4_1 : kNibblesQ4_0), five ? kPairBytes5 : kPairBytes4,
           0};
  if (type == kQ4_0) p.zero = 8;
  if (type == kQ5_0) p.zero = 16;
  unpack_nibbles(p, 2, first, u);
}

// The 6-bit scales (0) and mins (1) of all rows, from 12 rows of packed bytes.
void unpack_k_scales(const std::byte* packed, uint8_t (&out)[2][8][16]) {
  for (int i = 0; i < 64; ++i) {
    int a = int(packed[i]), b = int(packed[64 + i]), c = int(packed[128 + i]);
    out[0][i / 16][i % 16] = uint8_t(a & 63);
    out[1][i / 16][i % 16] = uint8_t(b & 63);
    out[0][4 + i / 16][i % 16] = uint8_t((c & 15) | (a >> 6 << 4));
    out[1][4 + i / 16][i % 16] = uint8_t(c >> 4 | (b >> 6 << 4));
  }
}

void unpack_factors(uint32_t type, const std::byte* unit, Unpacked& u) {
  float d[16], dmin[16];
  for (int r = 0; r < 16; ++r) {
    d[r] = f16_at(unit + 2 * r);
    dmin[r] = f16_at(unit + 32 + 2 * r);
  }
  if (type == kQ6_K) {
    for (int i = 0; i < 256; ++i) {
      u.factor[i / 16][i % 16] = d[i % 16] * float(int8_t(unit[kScalesK + i]));
    }
    return;
  }
  uint8_t k[2][8][16];
  unpack_k_scales(unit + kScalesK, k);
  for (int j = 0; j < 8; ++j) {
    for (int r = 0; r < 16; ++r) {
      u.factor[j][r] = d[r] * float(k[0][j][r]);
      u.min[j][r] = -dmin[r] * float(k[1][j][r]);
    }
  }
}

void unpack_k(uint32_t type, const std::byte* unit, Unpacked& u) {
  unpack_factors(type, unit, u);
  int bytes = type == kQ6_K ? kPairBytes6 : type == kQ5_K ? kPairBytes5 : kPairBytes4;
  bool six = type == kQ6_K;
  Planes p{unit + (six ? kNibblesQ6_K : kNibblesK), bytes, six ? 32 : 0};
  unpack_nibbles(p, 8, 0, u);
}

// `vectors` vectors of 16 rows x 4 columns times one token: acc[16] += factor * scale * sum.
void add_run(const int16_t* w, const int16_t* x, int vectors, const float* factor, float* acc) {
  for (int half = 0; half < 2; ++half) {  // 8 rows: four registers of 2 rows x 4 columns
    __m128i s[4] = {};
    for (int g = 0; g < vectors; ++g) {
      __m128i xv = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + 4 * g));
      xv = _mm_unpacklo_epi64(xv, xv);
      const auto* v = reinterpret_cast<const __m128i*>(w + 64 * g + 32 * half);
      for (int i = 0; i < 4; ++i) s[i] = _mm_add_epi32(s[i], _mm_madd_epi16(v[i], xv));
    }
    for (int i = 0; i < 2; ++i) {  // columns 01 and 23 of two rows each -> four rows
      __m128 a = _mm_castsi128_ps(s[2 * i]), b = _mm_castsi128_ps(s[2 * i + 1]);
      __m128i even = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88));
      __m128i odd = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
      __m128 sum = _mm_cvtepi32_ps(_mm_add_epi32(even, odd));
      int at = 8 * half + 4 * i;
      __m128 f = _mm_load_ps(factor + at);
      _mm_store_ps(acc + at, _mm_add_ps(_mm_load_ps(acc + at), _mm_mul_ps(sum, f)));
    }
  }
}

void add_scaled(const float* v, float by, float* acc) {
  __m128 s = _mm_set1_ps(by);
  for (int i = 0; i < 16; i += 4) {
    __m128 m = _mm_mul_ps(_mm_load_ps(v + i), s);
    _mm_store_ps(acc + i, _mm_add_ps(_mm_load_ps(acc + i), m));
  }
}

struct TokenView {
  const int16_t* q;
  const float* scale;
  const float* sum;
};

void add_chunk(uint32_t type, const Unpacked& u, const TokenView& x, float* acc) {
  int runs = type == kQ6_K ? 2 : 1;
  for (int b = 0; b < u.blocks; ++b) {
    for (int h = 0; h < runs; ++h) {
      alignas(16) float part[16] = {};
      int vectors = 8 / runs;
      add_run(u.q[b][h * vectors], x.q + 32 * b + 16 * h, vectors, u.factor[runs * b + h], part);
      add_scaled(part, x.scale[b], acc);
    }
    if (has_mins(type)) add_scaled(u.min[b], x.sum[b], acc);
  }
}

struct Job {
  const Matrix& w;
  const std::byte* panel;
  int64_t tokens;  // <= kBlockTokens
  float* y;
  int64_t y_stride;
};

void write_out(const Job& job, int64_t tile, const float (*acc)[16]) {
  int64_t rows = std::min<int64_t>(kTileRows, job.w.rows - tile * kTileRows);
  for (int64_t t = 0; t < job.tokens; ++t) {
    std::memcpy(job.y + t * job.y_stride + tile * kTileRows, acc[t], size_t(rows) * 4);
  }
}

void quant_tile(const Job& job, int64_t tile) {
  const uint32_t type = job.w.type;
  const Geometry& g = *find_geometry(type);
  PanelShape shape(job.w.cols);
  const std::byte* unit = job.w.tiles + tile * tile_bytes(type, job.w.cols);
  alignas(16) float acc[kBlockTokens][16] = {};
  Unpacked u;
  for (int64_t b = 0; b < shape.blocks; b += u.blocks, unit += g.unit_bytes) {
    u.blocks = g.unit_cols / 32;
    if (g.unit_cols == 256) {
      unpack_k(type, unit, u);
    } else {
      unpack_64(type, unit, 0, u);
    }
    for (int64_t t = 0; t < job.tokens; ++t) {
      const std::byte* row = job.panel + t * shape.stride;
      TokenView x{reinterpret_cast<const int16_t*>(row + 64 * b),
                  reinterpret_cast<const float*>(row + shape.scales + 4 * b),
                  reinterpret_cast<const float*>(row + shape.sums + 4 * b)};
      add_chunk(type, u, x, acc[t]);
    }
  }
  write_out(job, tile, acc);
}

// One column of float weights for 16 rows.
void float_column(uint32_t type, const std::byte* tile, int64_t col, float* out) {
  if (type == kF32) {
    std::memcpy(out, tile + 64 * col, 64);
    return;
  }
  if (type == kF16) {
    const auto* h = reinterpret_cast<const uint16_t*>(tile + 32 * col);
    for (int r = 0; r < 16; r += 4) Lanes::store(out + r, Lanes::load_half(h + r));
    return;
  }
  for (int r = 0; r < 16; ++r) {
    uint16_t h;
    std::memcpy(&h, tile + 64 * (col / 2) + 4 * r + 2 * (col & 1), 2);
    out[r] = std::bit_cast<float>(uint32_t(h) << 16);
  }
}

void float_tile(const Job& job, int64_t tile) {
  const std::byte* w = job.w.tiles + tile * tile_bytes(job.w.type, job.w.cols);
  const int64_t stride = int64_t(panel_stride_bytes(job.w.cols));
  alignas(16) float acc[kBlockTokens][16] = {};
  for (int64_t k = 0; k < job.w.cols; ++k) {
    alignas(16) float column[16];
    float_column(job.w.type, w, k, column);
    for (int64_t t = 0; t < job.tokens; ++t) {
      add_scaled(column, reinterpret_cast<const float*>(job.panel + t * stride)[k], acc[t]);
    }
  }
  write_out(job, tile, acc);
}

void matmul(const Matrix& w, const std::byte* panel, int64_t tokens, float* y, int64_t y_stride,
            int64_t first, int64_t last) {
  const int64_t stride = int64_t(panel_stride_bytes(w.cols));
  for (int64_t t = 0; t < tokens; t += kBlockTokens) {
    Job job{w, panel + t * stride, std::min(kBlockTokens, tokens - t), y + t * y_stride, y_stride};
    for (int64_t tile = first; tile < last; ++tile) {
      if (is_float(w.type)) {
        float_tile(job, tile);
      } else {
        quant_tile(job, tile);
      }
    }
  }
}

}  // namespace

const MatmulKernels kMatmulBaseline = {prepare, matmul};

}  // namespace pn::cpu
