// SPDX-License-Identifier: Apache-2.0
//
// The matrix kernels of AVX2 and newer, written once over the struct Simd of the including unit.
//
// Owns: activation panels, the register tiles, and the loops over tiles and tokens. Knows nothing
// of threads. Everything is in an unnamed namespace and no standard header with code is included:
// an inline function of this unit must never be picked by the linker for a unit of an older
// machine.
//
// The one idea: weights are u8 (or s8), activations s8 with one f32 scale a 32-column block.
// Integer sums inside a block are exact, so only the order of the float operations over blocks
// decides a result's bits, and there is one such order a type (`legacy_blocks`, `k_blocks`,
// `float_columns`). Decode runs them on weights unpacked in registers; a prompt unpacks 256 columns
// of a tile once into L1 and runs the same code for up to 64 tokens. Hence equal bits for 1 and for
// 512 tokens.
//
// i16 sums: maddubs gives pairs of u8 x s8 with |s8| <= 127. 4-bit: 2 * 15 * 127 = 3810, eight of
// them fit; 5-bit: 7874, four; 6-bit: 16002, two; Q8_0: 32512, one.
#pragma once

#include "backends/cpu/kernels/layout.h"
#include "backends/cpu/kernels/tile.h"

namespace pn::cpu {
namespace {

using namespace layout;
using I = Simd::I;
using F = Simd::F;
constexpr int kParts = Simd::kParts;
constexpr int kLanes = Simd::kLanes;
constexpr int kVectorBytes = 64 / kParts;
constexpr int kChunkBlocks = 8;   // a panel of unpacked weights: 8 blocks = 256 columns
constexpr int kBlockTokens = 64;  // tokens that share one unpacking

template <uint32_t kType>
struct Traits {
  static constexpr bool kFloat = kType == kF32 || kType == kF16 || kType == kBF16;
  static constexpr bool kSuper = kType == kQ4_K || kType == kQ5_K || kType == kQ6_K;
  static constexpr bool kMins =
      kType == kQ4_1 || kType == kQ5_1 || kType == kQ4_K || kType == kQ5_K;
  static constexpr bool kFiveBits = kType == kQ5_0 || kType == kQ5_1 || kType == kQ5_K;
  static constexpr int kUnitBlocks = kSuper ? 8 : 2;
  static constexpr int kUnitBytes = kType == kQ8_0   ? 1088
                                    : kType == kQ4_0 ? 576
                                    : kType == kQ4_1 ? 640
                                    : kType == kQ5_0 ? 704
                                    : kType == kQ5_1 ? 768
                                    : kType == kQ4_K ? 2368
                                    : kType == kQ5_K ? 2880
                                    : kType == kQ6_K ? 3392
                                                     : 64;
  static constexpr int kNibbles = kSuper ? kNibblesK : kMins ? kNibblesQ4_1 : kNibblesQ4_0;
  static constexpr int kHigh = kSuper ? kHighK : kMins ? kHighQ5_1 : kHighQ5_0;
  // What a stored quant is too large by; taken off through the panel's block sums.
  static constexpr int kZero = kType == kQ4_0   ? 8
                               : kType == kQ5_0 ? 16
                               : kType == kQ6_K ? 32
                               : kType == kQ8_0 ? (Simd::kDot4 ? 128 : 0)
                                                : 0;
  static constexpr int kStep = kType == kQ6_K ? 2 : kFiveBits ? 4 : 8;
  // Fewest tokens for which unpacking into L1 pays (EPYC Zen 3; kernels_bench).
  static constexpr int kPanelTokens = kType == kQ8_0            ? 1 << 30
                                      : kFloat && kType == kF32 ? 1 << 30
                                                                : 8;
};

// ---- panels -------------------------------------------------------------------------------------

// A token's row: s8 quants (padded to 64 columns), then a scale a block, then 8 bytes a block:
//   Q4_1 Q5_1 Q4_K Q5_K  f32 scale * sum       Q4_0 Q5_0 (Q8_0)  i32 -zero * sum
//   Q6_K  sums of both halves: i16[2], or i32[2] times -32 where dot4 exists
struct PanelShape {
  int64_t stride, blocks, scales, sums;  // bytes; blocks: rounded up to even
  explicit PanelShape(int64_t cols)
      : stride(int64_t(panel_stride_bytes(cols))),
        blocks((cols + 63) / 64 * 2),
        scales(blocks * 32),
        sums(blocks * 36) {}
};

PN_FORCE int reduce_add(__m128i v) {
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
  return _mm_cvtsi128_si32(v);
}

// 32 floats -> 32 s8 at q; the scale returned is amax / 127. Magnitudes are compared as integers,
// so a NaN or infinity wins the maximum and reaches the result through the scale.
PN_FORCE float quantize_32(const float* x, uint8_t* q, int (&halves)[2]) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256 v[4];
  __m256i top = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  int bits = _mm_cvtsi128_si32(m);
  float amax;
  __builtin_memcpy(&amax, &bits, 4);
  // Below 1e-35 the reciprocal would overflow; such a block is zero for every purpose.
  bool tiny = bits < 0x0554ad2e;
  __m256 inverse = _mm256_set1_ps(tiny ? 0.0f : 127.0f / amax);
  __m256i n[4];
  for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  __m256i lo = _mm256_packs_epi32(n[0], n[1]), hi = _mm256_packs_epi32(n[2], n[3]);
  __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi),
                                              _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  __m256i sums =
      _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
  halves[0] = reduce_add(_mm256_castsi256_si128(sums));
  halves[1] = reduce_add(_mm256_extracti128_si256(sums, 1));
  return tiny ? 0.0f : amax / 127.0f;
}

template <uint32_t kType>
PN_FORCE void put_sums(uint8_t* out, float scale, const int (&halves)[2]) {
  using T = Traits<kType>;
  if constexpr (T::kMins) {
    float s[2] = {scale * float(halves[0] + halves[1]), 0};
    __builtin_memcpy(out, s, 8);
  } else if constexpr (kType == kQ6_K && !Simd::kDot4) {
    int16_t s[4] = {int16_t(halves[0]), int16_t(halves[1]), 0, 0};
    __builtin_memcpy(out, s, 8);
  } else if constexpr (kType == kQ6_K) {
    int32_t s[2] = {-32 * halves[0], -32 * halves[1]};
    __builtin_memcpy(out, s, 8);
  } else {
    int32_t s[2] = {-T::kZero * (halves[0] + halves[1]), 0};
    __builtin_memcpy(out, s, 8);
  }
}

template <uint32_t kType>
void prepare_row(const float* x, int64_t cols, const PanelShape& shape, uint8_t* row) {
  if constexpr (Traits<kType>::kFloat) {
    __builtin_memcpy(row, x, size_t(cols) * 4);
    __builtin_memset(row + cols * 4, 0, size_t((cols & 1) * 4));  // F16 and BF16 read pairs
  } else {
    for (int64_t b = 0; b < shape.blocks; ++b) {
      float padded[32];
      const float* block = x + 32 * b;
      if (32 * b + 32 > cols) {
        for (int i = 0; i < 32; ++i) padded[i] = 32 * b + i < cols ? block[i] : 0.0f;
        block = padded;
      }
      int halves[2];
      float scale = quantize_32(block, row + 32 * b, halves);
      __builtin_memcpy(row + shape.scales + 4 * b, &scale, 4);
      put_sums<kType>(row + shape.sums + 8 * b, scale, halves);
    }
  }
}

// The T tokens of a register tile, at one chunk of columns.
struct Tokens {
  const uint8_t* base;
  const uint8_t* scale_base;
  const uint8_t* sum_base;
  int64_t stride;
  PN_FORCE Tokens at(const uint8_t* row, const PanelShape& s, int64_t block) {
    return {row + 32 * block, row + s.scales + 4 * block, row + s.sums + 8 * block, s.stride};
  }
  __attribute__((always_inline)) I quants(int t, int block, int g) const {
    return Simd::broadcast32(base + t * stride + 32 * block + 4 * g);
  }
  __attribute__((always_inline)) F scale(int t, int block) const {
    return Simd::fbroadcast(reinterpret_cast<const float*>(scale_base + t * stride + 4 * block));
  }
  __attribute__((always_inline)) F sum(int t, int block) const {
    return Simd::fbroadcast(reinterpret_cast<const float*>(sum_base + t * stride + 8 * block));
  }
  __attribute__((always_inline)) I whole(int t, int block, int half = 0) const {
    return Simd::broadcast32(sum_base + t * stride + 8 * block + 4 * half);
  }
};

// ---- weights ------------------------------------------------------------------------------------

// Weights as they lie in a unit, unpacked on the way into a register. kOdd: block % 2.
template <uint32_t kType>
struct Direct {
  using T = Traits<kType>;
  const uint8_t* unit;

  template <int kOdd, int kG>
  __attribute__((always_inline)) I quants(int block, int part) const {
    int at = kG * 64 + part * kVectorBytes;
    if constexpr (kType == kQ8_0) {
      return Simd::flip_top(Simd::load(unit + kScaleBytes + 512 * block + at));
    } else {
      I n = Simd::load(unit + T::kNibbles + 512 * (block >> 1) + at);
      n = Simd::and_(Simd::shift16<4 * kOdd>(n), Simd::set8(15));
      if constexpr (T::kFiveBits) {
        I h = Simd::load(unit + T::kHigh + 64 * block + part * kVectorBytes);
        n = Simd::merge(n, Simd::shift16<kG - 4>(h), Simd::set8(0x10));
      } else if constexpr (kType == kQ6_K) {
        I h = Simd::load(unit + kHighK + 128 * block + 64 * (kG / 4) + part * kVectorBytes);
        n = Simd::merge(n, Simd::shift16<2 * (kG % 4) - 4>(h), Simd::set8(0x30));
      }
      return n;
    }
  }
  __attribute__((always_inline)) F d(int block, int part) const {
    return Simd::half(unit + 32 * block + 2 * kLanes * part);  // Q4_K, Q5_K: block 1 is dmin
  }
  __attribute__((always_inline)) F min(int block, int part) const {
    if constexpr (T::kSuper) return Simd::float_u8(unit + kMinsK + 16 * block + kLanes * part);
    return Simd::half(unit + kScaleBytes + 32 * block + 2 * kLanes * part);
  }
  __attribute__((always_inline)) I scale16(int block, int half, int part) const {
    if constexpr (kType == kQ6_K) {
      return Simd::twice_s8(unit + kScalesK + 32 * block + 16 * half + kLanes * part);
    }
    return Simd::twice_u8(unit + kScalesK + 16 * block + kLanes * part);
  }
  __attribute__((always_inline)) I scale_pair(int block, int part) const {  // Q6_K
    const uint8_t* p = unit + kScalesK + 32 * block + kLanes * part;
    return Simd::pair_s8(p, p + 16);
  }
  __attribute__((always_inline)) F scale_float(int block, int half, int part) const {
    if constexpr (kType == kQ6_K) {
      return Simd::float_s8(unit + kScalesK + 32 * block + 16 * half + kLanes * part);
    }
    return Simd::float_u8(unit + kScalesK + 16 * block + kLanes * part);
  }
};

// 256 columns of a tile unpacked: what a prompt reads again for every register tile of tokens.
struct alignas(64) Unpacked {
  uint8_t q[kChunkBlocks][8][64];
  float d[kChunkBlocks][16];
  float m[kChunkBlocks][16];
  uint8_t scale[2 * kChunkBlocks][64];  // i16 pairs, or f32 where dot4 exists
  uint8_t pair[kChunkBlocks][64];       // Q6_K: i16
};

struct FromUnpacked {
  const Unpacked* u;
  template <int, int kG>
  __attribute__((always_inline)) I quants(int block, int part) const {
    return Simd::load(u->q[block][kG] + part * kVectorBytes);
  }
  __attribute__((always_inline)) F d(int block, int part) const {
    return Simd::fload(u->d[block] + kLanes * part);
  }
  __attribute__((always_inline)) F min(int block, int part) const {
    return Simd::fload(u->m[block] + kLanes * part);
  }
  __attribute__((always_inline)) I scale16(int block, int half, int part) const {
    return Simd::load(u->scale[2 * block + half] + part * kVectorBytes);
  }
  __attribute__((always_inline)) I scale_pair(int block, int part) const {
    return Simd::load(u->pair[block] + part * kVectorBytes);
  }
  __attribute__((always_inline)) F scale_float(int block, int half, int part) const {
    return Simd::fload(reinterpret_cast<const float*>(u->scale[2 * block + half]) + kLanes * part);
  }
};

template <uint32_t kType, int kOdd, int kG>
PN_FORCE void unpack_vectors(const Direct<kType>& from, int block, int at, Unpacked& u) {
  for (int p = 0; p < kParts; ++p) {
    Simd::store(u.q[at][kG] + p * kVectorBytes, from.template quants<kOdd, kG>(block, p));
  }
  if constexpr (kG < 7) unpack_vectors<kType, kOdd, kG + 1>(from, block, at, u);
}

// One unit into blocks `at` and following of u.
template <uint32_t kType>
PN_FORCE void unpack_unit(const uint8_t* unit, int at, Unpacked& u) {
  using T = Traits<kType>;
  Direct<kType> from{unit};
  for (int b = 0; b < T::kUnitBlocks; b += 2) {
    unpack_vectors<kType, 0, 0>(from, b, at + b, u);
    unpack_vectors<kType, 1, 0>(from, b + 1, at + b + 1, u);
  }
  for (int p = 0; p < kParts; ++p) {
    for (int b = 0; b < 2; ++b) Simd::fstore(u.d[at + b] + kLanes * p, from.d(b, p));
    for (int b = 0; b < T::kUnitBlocks && T::kMins; ++b) {
      Simd::fstore(u.m[at + b] + kLanes * p, from.min(b, p));
    }
    if constexpr (T::kSuper) {
      for (int b = 0; b < 8; ++b) {
        for (int h = 0; h < (kType == kQ6_K ? 2 : 1); ++h) {
          uint8_t* out = u.scale[2 * b + h] + p * kVectorBytes;
          if constexpr (Simd::kDot4) {
            Simd::fstore(reinterpret_cast<float*>(out), from.scale_float(b, h, p));
          } else {
            Simd::store(out, from.scale16(b, h, p));
          }
        }
        if constexpr (kType == kQ6_K && !Simd::kDot4) {
          Simd::store(u.pair[b] + p * kVectorBytes, from.scale_pair(b, p));
        }
      }
    }
  }
}

// ---- one block ----------------------------------------------------------------------------------

template <int kT>
struct Sums {
  I v[kT][kParts];
};
template <int kT>
struct Acc {
  F v[kT][kParts];
};

#define PN_TILE(kT)                                      \
  _Pragma("GCC unroll 8") for (int t = 0; t < (kT); ++t) \
      _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p)

// Vectors kG .. kEnd of one block added up in i16 (never overflowing: see the top).
template <int kOdd, int kG, int kEnd, int kT, class W>
PN_FORCE void add_i16(const W& w, const Tokens& x, int block, Sums<kT>& a, bool first) {
  I wv[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    wv[p] = w.template quants<kOdd, kG>(block, p);
  }
  _Pragma("GCC unroll 8") for (int t = 0; t < kT; ++t) {
    I xv = x.quants(t, block, kG);
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      I m = Simd::madd8(wv[p], xv);
      a.v[t][p] = first ? m : Simd::add16(a.v[t][p], m);
    }
  }
  if constexpr (kG + 1 < kEnd) add_i16<kOdd, kG + 1, kEnd>(w, x, block, a, false);
}

// Q8_0 without dot4: every product pair is widened at once.
template <int kG, int kT, class W>
PN_FORCE void add_signed(const W& w, const Tokens& x, int block, Sums<kT>& sum) {
  Simd::Signed wv[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    wv[p] = Simd::split_sign(w.template quants<0, kG>(block, p));
  }
  _Pragma("GCC unroll 8") for (int t = 0; t < kT; ++t) {
    I xv = x.quants(t, block, kG);
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      I m = Simd::madd16(Simd::madd8_signed(wv[p], xv), Simd::set16(1));
      sum.v[t][p] = kG == 0 ? m : Simd::add32(sum.v[t][p], m);
    }
  }
  if constexpr (kG < 7) add_signed<kG + 1>(w, x, block, sum);
}

// u8 x s8 -> i32 in one instruction.
template <int kOdd, int kG, int kEnd, int kT, class W>
PN_FORCE void add_dot4(const W& w, const Tokens& x, int block, Sums<kT>& sum) {
  I wv[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    wv[p] = w.template quants<kOdd, kG>(block, p);
  }
  _Pragma("GCC unroll 8") for (int t = 0; t < kT; ++t) {
    I xv = x.quants(t, block, kG);
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      sum.v[t][p] = Simd::dot4(sum.v[t][p], wv[p], xv);
    }
  }
  if constexpr (kG + 1 < kEnd) add_dot4<kOdd, kG + 1, kEnd>(w, x, block, sum);
}

// i32 sums of a block, K types: times the block's integer scale.
template <uint32_t kType, int kOdd, int kStart, int kT, class W>
PN_FORCE void add_steps(const W& w, const Tokens& x, int block, Sums<kT>& sum) {
  using T = Traits<kType>;
  Sums<kT> a;
  add_i16<kOdd, kStart, kStart + T::kStep>(w, x, block, a, true);
  I scale[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    scale[p] = T::kSuper ? w.scale16(block, kType == kQ6_K ? kStart / 4 : 0, p) : Simd::set16(1);
  }
  PN_TILE(kT) {
    I m = Simd::madd16(a.v[t][p], scale[p]);
    sum.v[t][p] = kStart == 0 ? m : Simd::add32(sum.v[t][p], m);
  }
  if constexpr (kStart + T::kStep < 8) add_steps<kType, kOdd, kStart + T::kStep>(w, x, block, sum);
}

// ---- the float order ----------------------------------------------------------------------------

// acc += d * scale * sum, then + min * (scale * block sum), blocks ascending.
template <uint32_t kType, int kOdd, int kT, class W>
PN_FORCE void legacy_block(const W& w, const Tokens& x, int block, Acc<kT>& acc) {
  using T = Traits<kType>;
  Sums<kT> sum;
  if constexpr (Simd::kDot4) {
    PN_TILE(kT) sum.v[t][p] = T::kZero ? x.whole(t, block) : Simd::zero();
    add_dot4<kOdd, 0, 8>(w, x, block, sum);
  } else if constexpr (kType == kQ8_0) {
    add_signed<0>(w, x, block, sum);
  } else {
    add_steps<kType, kOdd, 0>(w, x, block, sum);
    if constexpr (T::kZero != 0) {
      PN_TILE(kT) sum.v[t][p] = Simd::add32(sum.v[t][p], x.whole(t, block));
    }
  }
  PN_TILE(kT) {
    F factor = Simd::fmul(w.d(block, p), x.scale(t, block));
    acc.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), factor, acc.v[t][p]);
    if constexpr (T::kMins) acc.v[t][p] = Simd::fma(w.min(block, p), x.sum(t, block), acc.v[t][p]);
  }
}

template <uint32_t kType, int kT, class W>
PN_FORCE void legacy_blocks(const W& w, const Tokens& x, int blocks, Acc<kT>& acc) {
  for (int b = 0; b < blocks; b += 2) {
    legacy_block<kType, 0>(w, x, b, acc);
    legacy_block<kType, 1>(w, x, b + 1, acc);
  }
}

// part += scale * (integer scale * sum), blocks ascending.
template <uint32_t kType, int kOdd, int kT, class W>
PN_FORCE void k_block(const W& w, const Tokens& x, int block, Acc<kT>& part) {
  Sums<kT> sum;
  if constexpr (Simd::kDot4) {
    constexpr int kHalves = kType == kQ6_K ? 2 : 1;
    PN_TILE(kT) sum.v[t][p] = kType == kQ6_K ? x.whole(t, block) : Simd::zero();
    add_dot4<kOdd, 0, 8 / kHalves>(w, x, block, sum);
    PN_TILE(kT) {
      F factor = Simd::fmul(w.scale_float(block, 0, p), x.scale(t, block));
      part.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), factor, part.v[t][p]);
    }
    if constexpr (kType == kQ6_K) {
      PN_TILE(kT) sum.v[t][p] = x.whole(t, block, 1);
      add_dot4<kOdd, 4, 8>(w, x, block, sum);
      PN_TILE(kT) {
        F factor = Simd::fmul(w.scale_float(block, 1, p), x.scale(t, block));
        part.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), factor, part.v[t][p]);
      }
    }
  } else {
    add_steps<kType, kOdd, 0>(w, x, block, sum);
    if constexpr (kType == kQ6_K) {
      PN_TILE(kT) {
        I zero = Simd::madd16(w.scale_pair(block, p), x.whole(t, block));
        sum.v[t][p] = Simd::sub32_times32(sum.v[t][p], zero);
      }
    }
    PN_TILE(kT) {
      part.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), x.scale(t, block), part.v[t][p]);
    }
  }
}

template <uint32_t kType, int kT, class W>
PN_FORCE void k_blocks(const W& w, const Tokens& x, Acc<kT>& acc) {
  Acc<kT> part;
  PN_TILE(kT) part.v[t][p] = Simd::fzero();
  for (int b = 0; b < 8; b += 2) {
    k_block<kType, 0>(w, x, b, part);
    k_block<kType, 1>(w, x, b + 1, part);
  }
  PN_TILE(kT) acc.v[t][p] = Simd::fma(w.d(0, p), part.v[t][p], acc.v[t][p]);
  if constexpr (Traits<kType>::kMins) {
    PN_TILE(kT) part.v[t][p] = Simd::fzero();
    for (int b = 0; b < 8; ++b) {
      PN_TILE(kT) part.v[t][p] = Simd::fma(w.min(b, p), x.sum(t, b), part.v[t][p]);
    }
    PN_TILE(kT) acc.v[t][p] = Simd::fnma(w.d(1, p), part.v[t][p], acc.v[t][p]);
  }
}

template <uint32_t kType, int kT, class W>
PN_FORCE void all_blocks(const W& w, const Tokens& x, int blocks, Acc<kT>& acc) {
  if constexpr (Traits<kType>::kSuper) {
    k_blocks<kType>(w, x, acc);
  } else {
    legacy_blocks<kType>(w, x, blocks, acc);
  }
}

// Float weights: even and odd columns are summed apart (two chains hide the latency of fma).
template <uint32_t kType>
PN_FORCE F float_weight(const uint8_t* unit, int odd, int part) {
  if constexpr (kType == kF32) {
    return Simd::fload(reinterpret_cast<const float*>(unit + 64 * odd) + kLanes * part);
  } else if constexpr (kType == kF16) {
    return Simd::half(unit + 32 * odd + 2 * kLanes * part);
  } else {
    unit += kVectorBytes * part;
    return odd ? Simd::bf16_odd(unit) : Simd::bf16_even(unit);
  }
}

// pairs: of columns. x: rows of f32, `stride` bytes apart.
template <uint32_t kType, int kT>
PN_FORCE void float_columns(const uint8_t* w, const uint8_t* x, int64_t stride, int64_t pairs,
                            Acc<kT>& even, Acc<kT>& odd) {
  constexpr int kBytes = kType == kF32 ? 128 : 64;
  for (int64_t i = 0; i < pairs; ++i, w += kBytes, x += 8) {
    F a[kParts], b[kParts];
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      a[p] = float_weight<kType>(w, 0, p);
      b[p] = float_weight<kType>(w, 1, p);
    }
    PN_TILE(kT) {
      const float* xt = reinterpret_cast<const float*>(x + t * stride);
      even.v[t][p] = Simd::fma(a[p], Simd::fbroadcast(xt), even.v[t][p]);
      odd.v[t][p] = Simd::fma(b[p], Simd::fbroadcast(xt + 1), odd.v[t][p]);
    }
  }
}

// ---- loops over tiles and tokens ----------------------------------------------------------------

struct Job {
  const uint8_t* tiles;
  const uint8_t* panel;
  float* y;
  int64_t tile_bytes, rows, cols, tokens, y_stride, first, last;
};

template <int kT>
PN_FORCE void write_out(const Job& job, int64_t tile, int64_t token, const Acc<kT>& acc) {
  int64_t left = job.rows - tile * kTileRows;
  for (int t = 0; t < kT; ++t) {
    float* y = job.y + (token + t) * job.y_stride + tile * kTileRows;
    if (left >= kTileRows) {
      for (int p = 0; p < kParts; ++p) Simd::fstore(y + kLanes * p, acc.v[t][p]);
    } else {
      alignas(64) float all[kTileRows];
      for (int p = 0; p < kParts; ++p) Simd::fstore(all + kLanes * p, acc.v[t][p]);
      for (int64_t r = 0; r < left; ++r) y[r] = all[r];
    }
  }
}

// A whole tile for kT tokens, weights straight from memory.
template <uint32_t kType, int kT>
__attribute__((noinline)) void direct_tile(const Job& job, const PanelShape& shape, int64_t tile,
                                           int64_t token) {
  using T = Traits<kType>;
  const uint8_t* w = job.tiles + tile * job.tile_bytes;
  const uint8_t* x = job.panel + token * shape.stride;
  Acc<kT> acc;
  PN_TILE(kT) acc.v[t][p] = Simd::fzero();
  if constexpr (T::kFloat) {
    Acc<kT> odd = acc;
    float_columns<kType>(w, x, shape.stride, job.cols / 2, acc, odd);
    if (kType == kF32 && job.cols % 2) {
      PN_TILE(kT) {
        const float* xt = reinterpret_cast<const float*>(x + t * shape.stride) + job.cols - 1;
        const uint8_t* last = w + 64 * (job.cols - 1);
        acc.v[t][p] = Simd::fma(float_weight<kF32>(last, 0, p), Simd::fbroadcast(xt), acc.v[t][p]);
      }
    } else if (job.cols % 2) {
      int64_t pairs = job.cols / 2;
      float_columns<kType>(w + 64 * pairs, x + 8 * pairs, shape.stride, 1, acc, odd);
    }
    PN_TILE(kT) acc.v[t][p] = Simd::fadd(acc.v[t][p], odd.v[t][p]);
  } else {
    for (int64_t b = 0; b < shape.blocks; b += T::kUnitBlocks, w += T::kUnitBytes) {
      all_blocks<kType>(Direct<kType>{w}, Tokens::at(x, shape, b), T::kUnitBlocks, acc);
    }
  }
  write_out(job, tile, token, acc);
}

template <int kT>
PN_FORCE void load_acc(const float* from, Acc<kT>& acc) {
  PN_TILE(kT) acc.v[t][p] = Simd::fload(from + 16 * t + kLanes * p);
}
template <int kT>
PN_FORCE void store_acc(float* to, const Acc<kT>& acc) {
  PN_TILE(kT) Simd::fstore(to + 16 * t + kLanes * p, acc.v[t][p]);
}

// kT tokens over the unpacked chunk that starts at `block`; partial results rest in `acc`.
template <uint32_t kType, int kT>
__attribute__((noinline)) void chunk_tokens(const Unpacked& u, const Tokens& x, int blocks,
                                            float* rest) {
  Acc<kT> acc;
  load_acc(rest, acc);
  all_blocks<kType>(FromUnpacked{&u}, x, blocks, acc);
  store_acc(rest, acc);
}

// f(std-like constant, token) over [0, n) in register tiles: the largest first.
template <int kT, class Fn>
PN_FORCE void token_groups(int64_t from, int64_t n, Fn f) {
  for (; from + kT <= n; from += kT) f.template operator()<kT>(from);
  if constexpr (kT > 1) token_groups<kT / 2>(from, n, f);
}

template <uint32_t kType>
void run_direct(const Job& job, const PanelShape& shape) {
  constexpr int kT = Traits<kType>::kFloat ? Simd::kTokensFloat : Simd::kTokens;
  for (int64_t block = 0; block < job.tokens; block += kBlockTokens) {
    int64_t end = block + kBlockTokens < job.tokens ? block + kBlockTokens : job.tokens;
    for (int64_t tile = job.first; tile < job.last; ++tile) {
      token_groups<kT>(block, end, [&]<int kN>(int64_t token) {
        direct_tile<kType, kN>(job, shape, tile, token);
      });
    }
  }
}

// One tile for tokens [token, token + n), n <= kBlockTokens.
template <uint32_t kType>
void unpacked_tile(const Job& job, const PanelShape& shape, int64_t tile, int64_t token,
                   int64_t n) {
  using T = Traits<kType>;
  alignas(64) float rest[kBlockTokens * 16];
  Unpacked u;
  const uint8_t* w = job.tiles + tile * job.tile_bytes;
  const uint8_t* x = job.panel + token * shape.stride;
  __builtin_memset(rest, 0, size_t(n) * 64);
  for (int64_t b = 0; b < shape.blocks; b += kChunkBlocks) {
    int blocks = int(shape.blocks - b < kChunkBlocks ? shape.blocks - b : kChunkBlocks);
    for (int at = 0; at < blocks; at += T::kUnitBlocks, w += T::kUnitBytes) {
      unpack_unit<kType>(w, at, u);
    }
    token_groups<Simd::kTokens>(0, n, [&]<int kN>(int64_t t) {
      chunk_tokens<kType, kN>(u, Tokens::at(x + t * shape.stride, shape, b), blocks, rest + 16 * t);
    });
  }
  for (int64_t t = 0; t < n; ++t) {
    Acc<1> acc;
    load_acc(rest + 16 * t, acc);
    write_out(job, tile, token + t, acc);
  }
}

template <uint32_t kType>
void run(const Job& job) {
  PanelShape shape(job.cols);
  if constexpr (!Traits<kType>::kFloat && kType != kQ8_0) {
    if (job.tokens >= Traits<kType>::kPanelTokens) {
      for (int64_t token = 0; token < job.tokens; token += kBlockTokens) {
        int64_t n = job.tokens - token < kBlockTokens ? job.tokens - token : kBlockTokens;
        for (int64_t tile = job.first; tile < job.last; ++tile) {
          unpacked_tile<kType>(job, shape, tile, token, n);
        }
      }
      return;
    }
  }
  run_direct<kType>(job, shape);
}

#define PN_TYPES(X) \
  X(kF32) X(kF16) X(kBF16) X(kQ8_0) X(kQ4_0) X(kQ4_1) X(kQ5_0) X(kQ5_1) X(kQ4_K) X(kQ5_K) X(kQ6_K)

void prepare(uint32_t type, const PanelSource& source, std::byte* panel, int64_t first,
             int64_t last) {
  PanelShape shape(source.cols);
  for (int64_t t = first; t < last; ++t) {
    const float* x = source.x + t * source.stride;
    auto* row = reinterpret_cast<uint8_t*>(panel) + t * shape.stride;
    switch (type) {
#define PN_CASE(name)                              \
  case name:                                       \
    prepare_row<name>(x, source.cols, shape, row); \
    break;
      PN_TYPES(PN_CASE)
#undef PN_CASE
      default:
        break;
    }
  }
}

void matmul(const Matrix& w, const std::byte* panel, int64_t tokens, float* y, int64_t y_stride,
            int64_t first, int64_t last) {
  Job job{reinterpret_cast<const uint8_t*>(w.tiles),
          reinterpret_cast<const uint8_t*>(panel),
          y,
          int64_t(tile_bytes(w.type, w.cols)),
          w.rows,
          w.cols,
          tokens,
          y_stride,
          first,
          last};
  switch (w.type) {
#define PN_CASE(name) \
  case name:          \
    run<name>(job);   \
    break;
    PN_TYPES(PN_CASE)
#undef PN_CASE
    default:
      break;
  }
}

}  // namespace
}  // namespace pn::cpu
