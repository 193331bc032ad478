// SPDX-License-Identifier: Apache-2.0
//
// Activations as the kernels of AVX2 and newer read them, and what the kernels know of each type.
//
// Owns: the panel's layout and its quantisation. Needs the struct Simd of the including unit, and
// like matmul_kernel.h may define nothing with external linkage.
// The one idea: activations are s8 with one f32 scale a block of 32 columns, plus the block's sum
// for types with an offset or a minimum.
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
constexpr int kChunkBlocks = 8;  // 256 columns: what a panel keeps together
constexpr int kChunkCols = 32 * kChunkBlocks;

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
                                    : kType == kQ4_K ? 2304
                                    : kType == kQ5_K ? 2816
                                    : kType == kQ6_K ? 3392
                                                     : 64;
  static constexpr int kNibbles = kType == kQ6_K ? kNibblesQ6_K
                                  : kSuper       ? kNibblesK
                                  : kMins        ? kNibblesQ4_1
                                                 : kNibblesQ4_0;
  static constexpr int kPairBytes = kType == kQ6_K ? kPairBytes6
                                    : kFiveBits    ? kPairBytes5
                                                   : kPairBytes4;
  // What a stored quant is too large by; taken off through the panel's block sums.
  static constexpr int kZero = kType == kQ4_0   ? 8
                               : kType == kQ5_0 ? 16
                               : kType == kQ6_K ? 32
                               : kType == kQ8_0 ? (Simd::kDot4 ? 128 : 0)
                                                : 0;
  static constexpr int kStep = kType == kQ6_K ? 2 : kFiveBits ? 4 : 8;
  // Fewest tokens for which a chunk at a time pays; below, a tile is read through for each register
  // tile of tokens (EPYC 7003; kernels_bench).
  static constexpr int kChunkedTokens = kFloat ? 12 : kFiveBits || kType == kQ6_K ? 16 : 33;
};

// ---- panels -------------------------------------------------------------------------------------

// A panel is cut into chunks of 256 columns; a chunk holds one record a token, one behind the
// other. So a prompt, which keeps the weights of a chunk and runs over the tokens, reads forwards.
//   float types  f32[256]
//   others       s8[8][32], f32 scale[8], 8 bytes[8]:
//     Q4_1 Q5_1 Q4_K Q5_K  f32 scale * sum       Q4_0 Q5_0 (Q8_0)  i32 -zero * sum
//     Q6_K  sums of both halves: i16[2], or i32[2] times -32 where dot4 exists
constexpr int kScalesAt = 256, kSumsAt = 288, kRecordBytes = 384, kFloatRecordBytes = 1024;

PN_FORCE int64_t chunk_count(int64_t cols) { return (cols + kChunkCols - 1) / kChunkCols; }
// Blocks of a chunk that are computed: even, a missing last one being zeros.
PN_FORCE int chunk_blocks(int64_t cols, int64_t chunk) {
  int64_t blocks = (cols - chunk * kChunkCols + 63) / 64 * 2;
  return int(blocks < kChunkBlocks ? blocks : kChunkBlocks);
}

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
PN_FORCE void prepare_chunk(const float* x, int64_t cols, uint8_t* record) {
  if constexpr (Traits<kType>::kFloat) {
    int64_t n = cols < kChunkCols ? cols : kChunkCols;
    __builtin_memcpy(record, x, size_t(n) * 4);
    __builtin_memset(record + n * 4, 0, size_t((n & 1) * 4));  // pairs of columns are read
  } else {
    int blocks = chunk_blocks(cols, 0);
    for (int b = 0; b < blocks; ++b) {
      float padded[32];
      const float* block = x + 32 * b;
      if (32 * b + 32 > cols) {
        for (int i = 0; i < 32; ++i) padded[i] = 32 * b + i < cols ? block[i] : 0.0f;
        block = padded;
      }
      int halves[2];
      float scale = quantize_32(block, record + 32 * b, halves);
      __builtin_memcpy(record + kScalesAt + 4 * b, &scale, 4);
      put_sums<kType>(record + kSumsAt + 8 * b, scale, halves);
    }
  }
}

template <uint32_t kType>
void prepare_rows(const PanelSource& s, uint8_t* panel, int64_t first, int64_t last) {
  constexpr int kBytes = Traits<kType>::kFloat ? kFloatRecordBytes : kRecordBytes;
  for (int64_t t = first; t < last; ++t) {
    const float* x = s.x + t * s.stride;
    for (int64_t c = 0; c * kChunkCols < s.cols; ++c) {
      prepare_chunk<kType>(x + c * kChunkCols, s.cols - c * kChunkCols,
                           panel + (c * s.tokens + t) * kBytes);
    }
  }
}

// The tokens of a register tile, at one chunk.
struct Tokens {
  const uint8_t* record;
  __attribute__((always_inline)) const uint8_t* at(int t, int offset) const {
    return record + t * kRecordBytes + offset;
  }
  __attribute__((always_inline)) I quants(int t, int block, int g) const {
    return Simd::broadcast32(at(t, 32 * block + 4 * g));
  }
  __attribute__((always_inline)) F scale(int t, int block) const {
    return Simd::fbroadcast(reinterpret_cast<const float*>(at(t, kScalesAt + 4 * block)));
  }
  __attribute__((always_inline)) F sum(int t, int block) const {
    return Simd::fbroadcast(reinterpret_cast<const float*>(at(t, kSumsAt + 8 * block)));
  }
  __attribute__((always_inline)) I whole(int t, int block, int half = 0) const {
    return Simd::broadcast32(at(t, kSumsAt + 8 * block + 4 * half));
  }
};

}  // namespace
}  // namespace pn::cpu
