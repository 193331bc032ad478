// SPDX-License-Identifier: Apache-2.0
//
// Sixteen f32 lanes on AVX-512 F + DQ, for vector_kernel.h. Owns one struct of forced-inline
// wrappers; like simd_avx2.h it must not define anything with external linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#ifndef PN_FORCE
#define PN_FORCE __attribute__((always_inline)) static inline
#endif

namespace pn::cpu {
namespace {

struct Lanes {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;

  PN_FORCE F load(const float* p) { return _mm512_loadu_ps(p); }
  PN_FORCE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  PN_FORCE F set(float v) { return _mm512_set1_ps(v); }
  PN_FORCE F zero() { return _mm512_setzero_ps(); }
  PN_FORCE F add(F a, F b) { return _mm512_add_ps(a, b); }
  PN_FORCE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  PN_FORCE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  PN_FORCE F div(F a, F b) { return _mm512_div_ps(a, b); }
  PN_FORCE F max(F a, F b) { return _mm512_max_ps(a, b); }  // b where either is NaN
  PN_FORCE F min(F a, F b) { return _mm512_min_ps(a, b); }
  PN_FORCE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  PN_FORCE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
  PN_FORCE I nearest(F v) { return _mm512_cvtps_epi32(v); }
  PN_FORCE F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  PN_FORCE I half_of(I v) { return _mm512_srai_epi32(v, 1); }
  PN_FORCE I isub(I a, I b) { return _mm512_sub_epi32(a, b); }
  PN_FORCE F power_of_2(I n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  }
  // x < limit ? 0 : v
  PN_FORCE F zero_below(F x, F limit, F v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
  }
  PN_FORCE F load_half(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  PN_FORCE void store_half(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }

  PN_FORCE __m256 fold_add(F v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  }
  PN_FORCE float reduce_add(F v) {
    __m256 h = fold_add(v);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  PN_FORCE float reduce_max(F v) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  // Four sums, each in the same order whatever its place.
  PN_FORCE void reduce_add4(F a, F b, F c, F d, float* out) {
    __m256 x = fold_add(a), y = fold_add(b), z = fold_add(c), w = fold_add(d);
    __m256 xy = _mm256_add_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y));
    __m256 zw = _mm256_add_ps(_mm256_unpacklo_ps(z, w), _mm256_unpackhi_ps(z, w));
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(xy, zw, 0x44), _mm256_shuffle_ps(xy, zw, 0xee));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
  }
};

}  // namespace
}  // namespace pn::cpu
