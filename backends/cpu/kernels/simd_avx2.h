// SPDX-License-Identifier: Apache-2.0
//
// The vector operations that the shared kernels are written in, for AVX2 + FMA + F16C.
//
// Owns: one struct of forced-inline wrappers. Must not define anything with external linkage: see
// meson.build on why no symbol of this unit may be shared with another.
// The one idea: a register holds 8 f32 lanes, so the 16 rows of a tile are two parts.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define PN_FORCE __attribute__((always_inline)) static inline

namespace pn::cpu {
namespace {

struct Simd {
  using I = __m256i;
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kParts = 2;        // registers for 16 rows
  static constexpr bool kDot4 = false;    // no u8 x s8 -> i32 instruction
  static constexpr int kTokens = 4;       // tokens of one register tile, whole numbers
  static constexpr int kTokensFloat = 3;  // and f32: 3 x 2 parts x 2 partial sums of 16 registers

  PN_FORCE I load(const void* p) { return _mm256_load_si256(static_cast<const I*>(p)); }
  PN_FORCE void store(void* p, I v) { _mm256_store_si256(static_cast<I*>(p), v); }
  PN_FORCE I set8(int v) { return _mm256_set1_epi8(char(v)); }
  PN_FORCE I set16(int v) { return _mm256_set1_epi16(short(v)); }
  PN_FORCE I zero() { return _mm256_setzero_si256(); }
  PN_FORCE I and_(I a, I b) { return _mm256_and_si256(a, b); }
  PN_FORCE I or_(I a, I b) { return _mm256_or_si256(a, b); }
  // a | (b & mask)
  PN_FORCE I merge(I a, I b, I mask) { return or_(a, and_(b, mask)); }
  template <int kBy>  // positive: right
  PN_FORCE I shift16(I a) {
    if constexpr (kBy > 0) return _mm256_srli_epi16(a, kBy);
    if constexpr (kBy < 0) return _mm256_slli_epi16(a, -kBy);
    return a;
  }
  PN_FORCE I broadcast32(const void* p) {
    int v;
    __builtin_memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
  }
  PN_FORCE I madd8(I u, I s) { return _mm256_maddubs_epi16(u, s); }
  PN_FORCE I madd16(I a, I b) { return _mm256_madd_epi16(a, b); }
  PN_FORCE I add16(I a, I b) { return _mm256_add_epi16(a, b); }
  PN_FORCE I add32(I a, I b) { return _mm256_add_epi32(a, b); }
  PN_FORCE I sub32_times32(I a, I b) { return _mm256_sub_epi32(a, _mm256_slli_epi32(b, 5)); }
  PN_FORCE I dot4(I acc, I, I) { return acc; }
  PN_FORCE I flip_top(I a) { return a; }

  // s8 x s8 pairs: |w| as u8 with w's sign moved to x.
  struct Signed {
    I magnitude, sign;
  };
  PN_FORCE Signed split_sign(I w) { return {_mm256_abs_epi8(w), w}; }
  PN_FORCE I madd8_signed(Signed w, I x) {
    return _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.sign));
  }

  // 8 bytes (rows) -> each twice as i16; two rows of bytes -> interleaved i16.
  PN_FORCE __m128i load8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  PN_FORCE I twice_u8(const void* p) {
    __m128i b = load8(p);
    return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(b, b));
  }
  PN_FORCE I twice_s8(const void* p) {
    __m128i b = load8(p);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(b, b));
  }
  PN_FORCE I pair_s8(const void* p, const void* q) {
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(load8(p), load8(q)));
  }
  PN_FORCE F float_u8(const void* p) { return to_float(_mm256_cvtepu8_epi32(load8(p))); }
  PN_FORCE F float_s8(const void* p) { return to_float(_mm256_cvtepi8_epi32(load8(p))); }

  PN_FORCE F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  PN_FORCE F half(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  PN_FORCE F bf16_even(const void* p) {  // lanes of two bf16: the low one
    return _mm256_castsi256_ps(_mm256_slli_epi32(load(p), 16));
  }
  PN_FORCE F bf16_odd(const void* p) {
    return _mm256_castsi256_ps(_mm256_and_si256(load(p), _mm256_set1_epi32(int(0xffff0000u))));
  }
  PN_FORCE F fzero() { return _mm256_setzero_ps(); }
  PN_FORCE F fload(const float* p) { return _mm256_loadu_ps(p); }
  PN_FORCE void fstore(float* p, F v) { _mm256_storeu_ps(p, v); }
  PN_FORCE F fset(float v) { return _mm256_set1_ps(v); }
  PN_FORCE F fbroadcast(const float* p) { return _mm256_broadcast_ss(p); }
  PN_FORCE F fadd(F a, F b) { return _mm256_add_ps(a, b); }
  PN_FORCE F fsub(F a, F b) { return _mm256_sub_ps(a, b); }
  PN_FORCE F fmul(F a, F b) { return _mm256_mul_ps(a, b); }
  PN_FORCE F fdiv(F a, F b) { return _mm256_div_ps(a, b); }
  PN_FORCE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  PN_FORCE F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a * b
};

}  // namespace
}  // namespace pn::cpu
