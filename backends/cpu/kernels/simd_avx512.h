// SPDX-License-Identifier: Apache-2.0
//
// The vector operations that the shared kernels are written in, for AVX-512 F + BW + VL + DQ; with
// PN_VNNI also the u8 x s8 dot product.
//
// Owns: one struct of forced-inline wrappers. Must not define anything with external linkage.
// The one idea: a register holds the 16 rows of a tile.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define PN_FORCE __attribute__((always_inline)) static inline

namespace pn::cpu {
namespace {

struct Simd {
  using I = __m512i;
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kParts = 1;
#ifdef PN_VNNI
  static constexpr bool kDot4 = true;
#else
  static constexpr bool kDot4 = false;
#endif
  static constexpr int kTokens = 8;
  static constexpr int kTokensFloat = 8;

  PN_FORCE I load(const void* p) { return _mm512_load_si512(p); }
  PN_FORCE void store(void* p, I v) { _mm512_store_si512(p, v); }
  PN_FORCE I set8(int v) { return _mm512_set1_epi8(char(v)); }
  PN_FORCE I set16(int v) { return _mm512_set1_epi16(short(v)); }
  PN_FORCE I zero() { return _mm512_setzero_si512(); }
  PN_FORCE I and_(I a, I b) { return _mm512_and_si512(a, b); }
  PN_FORCE I merge(I a, I b, I mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xf8); }
  template <int kBy>  // positive: right
  PN_FORCE I shift16(I a) {
    if constexpr (kBy > 0) return _mm512_srli_epi16(a, kBy);
    if constexpr (kBy < 0) return _mm512_slli_epi16(a, -kBy);
    return a;
  }
  PN_FORCE I broadcast32(const void* p) {
    int v;
    __builtin_memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
  }
  PN_FORCE I madd8(I u, I s) { return _mm512_maddubs_epi16(u, s); }
  PN_FORCE I madd16(I a, I b) { return _mm512_madd_epi16(a, b); }
  PN_FORCE I add16(I a, I b) { return _mm512_add_epi16(a, b); }
  PN_FORCE I add32(I a, I b) { return _mm512_add_epi32(a, b); }
  PN_FORCE I sub32_times32(I a, I b) { return _mm512_sub_epi32(a, _mm512_slli_epi32(b, 5)); }
#ifdef PN_VNNI
  PN_FORCE I dot4(I acc, I u, I s) { return _mm512_dpbusd_epi32(acc, u, s); }
  PN_FORCE I flip_top(I a) { return _mm512_xor_si512(a, set8(-128)); }  // s8 + 128 as u8
#else
  PN_FORCE I dot4(I acc, I, I) { return acc; }
  PN_FORCE I flip_top(I a) { return a; }
#endif

  // s8 x s8 pairs: |w| as u8 with w's sign moved to x.
  struct Signed {
    I magnitude;
    __mmask64 negative;
  };
  PN_FORCE Signed split_sign(I w) { return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)}; }
  PN_FORCE I madd8_signed(Signed w, I x) {
    return _mm512_maddubs_epi16(w.magnitude, _mm512_mask_sub_epi8(x, w.negative, zero(), x));
  }

  PN_FORCE __m128i load16(const void* p) { return _mm_load_si128(static_cast<const __m128i*>(p)); }
  PN_FORCE __m256i interleave(__m128i a, __m128i b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(a, b)),
                                   _mm_unpackhi_epi8(a, b), 1);
  }
  PN_FORCE I twice_u8(const void* p) {
    __m128i b = load16(p);
    return _mm512_cvtepu8_epi16(interleave(b, b));
  }
  PN_FORCE I twice_s8(const void* p) {
    __m128i b = load16(p);
    return _mm512_cvtepi8_epi16(interleave(b, b));
  }
  PN_FORCE I pair_s8(const void* p, const void* q) {
    return _mm512_cvtepi8_epi16(interleave(load16(p), load16(q)));
  }
  PN_FORCE F float_u8(const void* p) { return to_float(_mm512_cvtepu8_epi32(load16(p))); }
  PN_FORCE F float_s8(const void* p) { return to_float(_mm512_cvtepi8_epi32(load16(p))); }

  PN_FORCE F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  PN_FORCE F half(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  PN_FORCE F bf16_even(const void* p) {  // lanes of two bf16: the low one
    return _mm512_castsi512_ps(_mm512_slli_epi32(load(p), 16));
  }
  PN_FORCE F bf16_odd(const void* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(load(p), _mm512_set1_epi32(int(0xffff0000u))));
  }
  PN_FORCE F fzero() { return _mm512_setzero_ps(); }
  PN_FORCE F fload(const float* p) { return _mm512_loadu_ps(p); }
  PN_FORCE void fstore(float* p, F v) { _mm512_storeu_ps(p, v); }
  PN_FORCE F fset(float v) { return _mm512_set1_ps(v); }
  PN_FORCE F fbroadcast(const float* p) { return _mm512_set1_ps(*p); }
  PN_FORCE F fadd(F a, F b) { return _mm512_add_ps(a, b); }
  PN_FORCE F fmul(F a, F b) { return _mm512_mul_ps(a, b); }
  PN_FORCE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  PN_FORCE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
};

}  // namespace
}  // namespace pn::cpu
