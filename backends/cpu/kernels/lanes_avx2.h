// SPDX-License-Identifier: Apache-2.0
//
// Eight f32 lanes on AVX2 + FMA + F16C, for vector_kernel.h. Owns one struct of forced-inline
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
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;

  PN_FORCE F load(const float* p) { return _mm256_loadu_ps(p); }
  PN_FORCE void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  PN_FORCE F set(float v) { return _mm256_set1_ps(v); }
  PN_FORCE F zero() { return _mm256_setzero_ps(); }
  PN_FORCE F add(F a, F b) { return _mm256_add_ps(a, b); }
  PN_FORCE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  PN_FORCE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  PN_FORCE F div(F a, F b) { return _mm256_div_ps(a, b); }
  PN_FORCE F max(F a, F b) { return _mm256_max_ps(a, b); }  // b where either is NaN
  PN_FORCE F min(F a, F b) { return _mm256_min_ps(a, b); }
  PN_FORCE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  PN_FORCE F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a * b
  PN_FORCE I nearest(F v) { return _mm256_cvtps_epi32(v); }
  PN_FORCE F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  PN_FORCE I half_of(I v) { return _mm256_srai_epi32(v, 1); }
  PN_FORCE I isub(I a, I b) { return _mm256_sub_epi32(a, b); }
  PN_FORCE F power_of_2(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  // x < limit ? 0 : v
  PN_FORCE F zero_below(F x, F limit, F v) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v);
  }
  PN_FORCE F load_half(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  PN_FORCE void store_half(uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }

  PN_FORCE float reduce_add(F v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  PN_FORCE float reduce_max(F v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  // Four sums, each in the same order whatever its place.
  PN_FORCE void reduce_add4(F a, F b, F c, F d, float* out) {
    // Shuffles and sums: hadd does the same in twice the time on Zen 3.
    F ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    F cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    F s = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
  }
};

}  // namespace
}  // namespace pn::cpu
