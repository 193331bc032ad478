// SPDX-License-Identifier: Apache-2.0
//
// Four f32 lanes on SSE2, for vector_kernel.h. Owns one struct of inline wrappers; fma is a product
// and a sum here, and f16 is converted with integer steps.
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/half.h"

namespace pn::cpu {
namespace {

struct Lanes {
  using F = __m128;
  using I = __m128i;
  static constexpr int kLanes = 4;

  static F load(const float* p) { return _mm_loadu_ps(p); }
  static void store(float* p, F v) { _mm_storeu_ps(p, v); }
  static F set(float v) { return _mm_set1_ps(v); }
  static F zero() { return _mm_setzero_ps(); }
  static F add(F a, F b) { return _mm_add_ps(a, b); }
  static F sub(F a, F b) { return _mm_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm_mul_ps(a, b); }
  static F div(F a, F b) { return _mm_div_ps(a, b); }
  static F max(F a, F b) { return _mm_max_ps(a, b); }  // b where either is NaN
  static F min(F a, F b) { return _mm_min_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  static F fnma(F a, F b, F c) { return _mm_sub_ps(c, _mm_mul_ps(a, b)); }
  static I nearest(F v) { return _mm_cvtps_epi32(v); }
  static F to_float(I v) { return _mm_cvtepi32_ps(v); }
  static I half_of(I v) { return _mm_srai_epi32(v, 1); }
  static I isub(I a, I b) { return _mm_sub_epi32(a, b); }
  static F power_of_2(I n) {
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23));
  }
  // x < limit ? 0 : v
  static F zero_below(F x, F limit, F v) { return _mm_andnot_ps(_mm_cmplt_ps(x, limit), v); }

  static F load_half(const uint16_t* p) {
    __m128i h = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    __m128i w = _mm_unpacklo_epi16(h, _mm_setzero_si128());
    __m128i sign = _mm_slli_epi32(_mm_and_si128(w, _mm_set1_epi32(0x8000)), 16);
    __m128i body = _mm_slli_epi32(_mm_and_si128(w, _mm_set1_epi32(0x7fff)), 13);
    // 2^112 moves the exponent to f32's bias and makes subnormals normal, exactly.
    __m128 v = _mm_mul_ps(_mm_castsi128_ps(body), _mm_set1_ps(0x1p112f));
    __m128i special = _mm_cmpgt_epi32(body, _mm_set1_epi32(0x0f7fffff));  // infinity, NaN
    __m128i top = _mm_and_si128(special, _mm_set1_epi32(0x7f800000));
    return _mm_or_ps(v, _mm_castsi128_ps(_mm_or_si128(sign, top)));
  }
  static void store_half(uint16_t* p, F v) {
    float f[4];
    _mm_storeu_ps(f, v);
    for (int i = 0; i < 4; ++i) p[i] = float_to_half(f[i]);
  }

  static float reduce_add(F v) {
    v = _mm_add_ps(v, _mm_shuffle_ps(v, v, 0x4e));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 0x55)));
  }
  static float reduce_max(F v) {
    v = _mm_max_ps(v, _mm_shuffle_ps(v, v, 0x4e));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 0x55)));
  }
  // Four sums, each in the same order whatever its place.
  static void reduce_add4(F a, F b, F c, F d, float* out) {
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(a, b), _mm_add_ps(c, d)));
  }
};

}  // namespace
}  // namespace pn::cpu
