/* SPDX-License-Identifier: MIT
 *
 * The op-loop: what the element types of a GGUF file say, as F32. Products are made in the order of
 * the formats' formulas, so that the result is the same float everywhere.
 */
#include <string.h>

#include "loop.h"

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}
static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

float pn_loop_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, low = h & 1023;
  if (exponent == 31) return float_of(sign | 0x7f800000u | low << 13);
  if (exponent == 0) return float_of(sign | bits_of((float)low * 0x1p-24f));
  return float_of(sign | (exponent + 112) << 23 | low << 13);
}

uint16_t pn_loop_to_f16(float value) {
  uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
  if (rest >= 0x47800000u) return (uint16_t)(sign | 0x7c00); /* 65536 and more */
  if (rest < 0x38800000u) { /* below 2^-14: the float adder rounds to multiples of 2^-24 */
    uint32_t small = bits_of(float_of(rest) + 0.5f);
    return (uint16_t)(sign | (small - 0x3f000000u));
  }
  uint32_t odd = rest >> 13 & 1;
  return (uint16_t)(sign | ((rest - 0x38000000u + 0xfff + odd) >> 13));
}

static float half_at(const uint8_t* p) {
  uint16_t bits;
  memcpy(&bits, p, 2);
  return pn_loop_from_f16(bits);
}

/* Scale and minimum of sub-block j (0..7) in the 12 bytes of Q4_K and Q5_K: the first four pairs
 * lie in the low 6 bits, the others in nibbles whose top two bits are the first ones' spare bits.
 */
static void k_scale(const uint8_t* s, int j, float* scale, float* least) {
  if (j < 4) {
    *scale = s[j] & 63;
    *least = s[j + 4] & 63;
    return;
  }
  *scale = (float)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
  *least = (float)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
}

static void f32(const uint8_t* b, float* x) { memcpy(x, b, 4); }
static void f16(const uint8_t* b, float* x) { *x = half_at(b); }
static void bf16(const uint8_t* b, float* x) {
  uint16_t bits;
  memcpy(&bits, b, 2);
  *x = float_of((uint32_t)bits << 16);
}
static void q4_0(const uint8_t* b, float* x) {
  float d = half_at(b);
  for (int e = 0; e < 16; ++e) {
    x[e] = d * (float)((b[2 + e] & 15) - 8);
    x[e + 16] = d * (float)((b[2 + e] >> 4) - 8);
  }
}
static void q8_0(const uint8_t* b, float* x) {
  float d = half_at(b);
  for (int e = 0; e < 32; ++e) x[e] = d * (float)(int8_t)b[2 + e];
}
static void q4_k(const uint8_t* b, float* x) {
  float d = half_at(b), least = half_at(b + 2), scale, min;
  for (int j = 0; j < 8; ++j) {
    k_scale(b + 4, j, &scale, &min);
    float dc = d * scale, dm = least * min;
    const uint8_t* q = b + 16 + 32 * (j / 2);
    for (int l = 0; l < 32; ++l) x[32 * j + l] = dc * (float)(q[l] >> j % 2 * 4 & 15) - dm;
  }
}
static void q5_k(const uint8_t* b, float* x) {
  float d = half_at(b), least = half_at(b + 2), scale, min;
  for (int j = 0; j < 8; ++j) {
    k_scale(b + 4, j, &scale, &min);
    float dc = d * scale, dm = least * min;
    const uint8_t *high = b + 16, *q = b + 48 + 32 * (j / 2);
    for (int l = 0; l < 32; ++l)
      x[32 * j + l] = dc * (float)((q[l] >> j % 2 * 4 & 15) + 16 * (high[l] >> j & 1)) - dm;
  }
}
static void q6_k(const uint8_t* b, float* x) {
  float d = half_at(b + 208);
  for (int k = 0; k < 16; ++k) { /* 16 elements share a scale, a nibble half, a pair of bits */
    int half = k / 8, pair = k % 8 / 2, l = k % 2 * 16;
    const uint8_t *low = b + 64 * half + l + 32 * (pair & 1), *high = b + 128 + 32 * half + l;
    float dc = d * (float)(int8_t)b[192 + k];
    for (int i = 0; i < 16; ++i) {
      int v = ((low[i] >> (pair < 2 ? 0 : 4) & 15) | (high[i] >> 2 * pair & 3) << 4) - 32;
      x[16 * k + i] = dc * (float)v;
    }
  }
}

struct format {
  uint32_t type, elements, bytes;
  void (*decode)(const uint8_t* block, float* out);
};
static const struct format formats[] = {
    {0, 1, 4, f32},       {1, 1, 2, f16},       {2, 32, 18, q4_0},    {8, 32, 34, q8_0},
    {12, 256, 144, q4_k}, {13, 256, 176, q5_k}, {14, 256, 210, q6_k}, {30, 1, 2, bf16},
};
static const struct format* format_of(uint32_t type) {
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; ++i)
    if (formats[i].type == type) return &formats[i];
  return NULL;
}

uint64_t pn_loop_row_bytes(uint32_t type, uint64_t n) {
  const struct format* f = format_of(type);
  return f == NULL || n % f->elements != 0 ? 0 : n / f->elements * f->bytes;
}

void pn_loop_decode(uint32_t type, const void* row, uint64_t n, float* out) {
  const struct format* f = format_of(type);
  const uint8_t* block = row;
  if (type == PN_TYPE_F32) memcpy(out, row, n * sizeof(float));
  if (f == NULL || type == PN_TYPE_F32) return;
  for (uint64_t at = 0; at < n; at += f->elements, block += f->bytes) f->decode(block, out + at);
}
