// SPDX-License-Identifier: Apache-2.0
//
// The row kernels, written once over the struct Lanes of the including unit.
//
// Owns: the order of every float operation of these kernels. Knows nothing of plans or pages. All
// in an unnamed namespace, no standard header with code (see meson.build on why). The one idea: a
// tail shorter than a register is copied to a padded buffer and goes through the same instructions,
// so an element has the same bits wherever in a row it stands.
#pragma once

#include "backends/cpu/kernels/tile.h"

#ifndef PN_FORCE
#define PN_FORCE __attribute__((always_inline)) static inline
#endif

namespace pn::cpu {
namespace {

using LF = Lanes::F;
using LI = Lanes::I;
constexpr int kWidth = Lanes::kLanes;

// ---- exp ----------------------------------------------------------------------------------------

// 2^n * e^r with |r| <= ln2 / 2; Taylor's terms up to r^7 are below half an ulp. 2^n goes in two
// steps so that results just under infinity are reached.
PN_FORCE LF exp_lanes(LF x) {
  const LF lowest = Lanes::set(-87.33654f);  // log of the least normal number
  LF v = Lanes::max(lowest, x);              // a NaN in x passes both
  v = Lanes::min(Lanes::set(89.0f), v);
  LI n = Lanes::nearest(Lanes::mul(v, Lanes::set(1.44269504f)));
  LF nf = Lanes::to_float(n);
  LF r = Lanes::fnma(nf, Lanes::set(0x1.62e4p-1f), v);  // ln2's upper 15 bits: product exact
  r = Lanes::fnma(nf, Lanes::set(0x1.7f7d1cp-20f), r);  // and the rest
  LF p = Lanes::set(1.0f / 5040);
  p = Lanes::fma(p, r, Lanes::set(1.0f / 720));
  p = Lanes::fma(p, r, Lanes::set(1.0f / 120));
  p = Lanes::fma(p, r, Lanes::set(1.0f / 24));
  p = Lanes::fma(p, r, Lanes::set(1.0f / 6));
  p = Lanes::fma(p, r, Lanes::set(0.5f));
  p = Lanes::fma(Lanes::mul(p, r), r, r);
  p = Lanes::add(p, Lanes::set(1.0f));
  LI first = Lanes::half_of(n);
  p = Lanes::mul(p, Lanes::power_of_2(first));
  p = Lanes::mul(p, Lanes::power_of_2(Lanes::isub(n, first)));
  return Lanes::zero_below(x, lowest, p);
}

PN_FORCE float exp_one(float x) {
  float out[kWidth];
  Lanes::store(out, exp_lanes(Lanes::set(x)));
  return out[0];
}

// ---- element by element -------------------------------------------------------------------------

// f(a, b) over rows; b may be null (then `missing`).
template <class Fn>
PN_FORCE void map2(const float* a, const float* b, float missing, int64_t n, float* out, Fn f) {
  LF absent = Lanes::set(missing);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Lanes::store(out + i, f(Lanes::load(a + i), b ? Lanes::load(b + i) : absent));
  }
  if (i == n) return;
  float pad[2][kWidth] = {};
  size_t bytes = size_t(n - i) * sizeof(float);
  __builtin_memcpy(pad[0], a + i, bytes);
  if (b) __builtin_memcpy(pad[1], b + i, bytes);
  Lanes::store(pad[0], f(Lanes::load(pad[0]), b ? Lanes::load(pad[1]) : absent));
  __builtin_memcpy(out + i, pad[0], bytes);
}

PN_FORCE LF load_any(const float* p) { return Lanes::load(p); }
PN_FORCE LF load_any(const uint16_t* p) { return Lanes::load_half(p); }

// The last `n` < kWidth elements at p, zeros behind.
template <class T>
PN_FORCE LF load_tail(const T* p, int64_t n) {
  T pad[kWidth] = {};
  __builtin_memcpy(pad, p, size_t(n) * sizeof(T));
  return load_any(pad);
}

void add(const float* a, const float* b, int64_t n, float* out) {
  map2(a, b, 0, n, out, [](LF x, LF y) { return Lanes::add(x, y); });
}
void mul(const float* a, const float* b, int64_t n, float* out) {
  map2(a, b, 1, n, out, [](LF x, LF y) { return Lanes::mul(x, y); });
}
void exp(const float* x, int64_t n, float* out) {
  map2(x, nullptr, 0, n, out, [](LF v, LF) { return exp_lanes(v); });
}

// v / (1 + e^-z): z = v is silu, z = 2 sqrt(2/pi) (v + 0.044715 v^3) is gelu's tanh form.
PN_FORCE LF gate(LF v, LF z) {
  LF one = Lanes::set(1.0f);
  return Lanes::div(v, Lanes::add(one, exp_lanes(Lanes::sub(Lanes::zero(), z))));
}
void silu_mul(const float* g, const float* up, int64_t n, float* out) {
  map2(g, up, 1, n, out, [](LF v, LF u) { return Lanes::mul(gate(v, v), u); });
}
void gelu_mul(const float* g, const float* up, int64_t n, float* out) {
  map2(g, up, 1, n, out, [](LF v, LF u) {
    LF cube = Lanes::mul(Lanes::mul(v, v), v);
    LF z = Lanes::mul(Lanes::fma(cube, Lanes::set(0.044715f), v), Lanes::set(1.5957691216f));
    return Lanes::mul(gate(v, z), u);
  });
}

template <class T>
PN_FORCE void axpy_any(float a, const T* x, int64_t n, float* y) {
  LF f = Lanes::set(a);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Lanes::store(y + i, Lanes::fma(f, load_any(x + i), Lanes::load(y + i)));
  }
  if (i == n) return;
  float pad[kWidth];
  Lanes::store(pad, Lanes::fma(f, load_tail(x + i, n - i), load_tail(y + i, n - i)));
  __builtin_memcpy(y + i, pad, size_t(n - i) * sizeof(float));
}
void axpy(float a, const float* x, int64_t n, float* y) { axpy_any(a, x, n, y); }
void axpy_f16(float a, const uint16_t* x, int64_t n, float* y) { axpy_any(a, x, n, y); }

// ---- sums ---------------------------------------------------------------------------------------

template <class T>
PN_FORCE float dot_any(const float* a, const T* b, int64_t n) {
  LF s[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; ++k) {
      s[k] = Lanes::fma(Lanes::load(a + i + k * kWidth), load_any(b + i + k * kWidth), s[k]);
    }
  }
  for (; i + kWidth <= n; i += kWidth) s[0] = Lanes::fma(Lanes::load(a + i), load_any(b + i), s[0]);
  if (i < n) s[1] = Lanes::fma(load_tail(a + i, n - i), load_tail(b + i, n - i), s[1]);
  return Lanes::reduce_add(Lanes::add(Lanes::add(s[0], s[1]), Lanes::add(s[2], s[3])));
}
float dot(const float* a, const float* b, int64_t n) { return dot_any(a, b, n); }
float dot_f16(const float* a, const uint16_t* b, int64_t n) { return dot_any(a, b, n); }

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  float mean = dot_any(x, x, n) / float(n) + eps;
  LF factor = Lanes::set(1.0f / __builtin_sqrtf(mean));
  map2(x, w, 1, n, out, [=](LF v, LF g) { return Lanes::mul(Lanes::mul(v, factor), g); });
}

float row_max(const float* x, int64_t n) {
  LF m = Lanes::set(-__builtin_inff());
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) m = Lanes::max(m, Lanes::load(x + i));
  float top = Lanes::reduce_max(m);
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

void softmax(float* x, int64_t n) {
  float top = row_max(x, n);
  if (top == -__builtin_inff()) {
    __builtin_memset(x, 0, size_t(n) * sizeof(float));
    return;
  }
  LF m = Lanes::set(top), sum = Lanes::zero();
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    LF e = exp_lanes(Lanes::sub(Lanes::load(x + i), m));
    Lanes::store(x + i, e);
    sum = Lanes::add(sum, e);
  }
  if (i < n) {
    float pad[kWidth];
    for (int k = 0; k < kWidth; ++k) pad[k] = i + k < n ? x[i + k] : -__builtin_inff();
    LF e = exp_lanes(Lanes::sub(Lanes::load(pad), m));
    Lanes::store(pad, e);
    __builtin_memcpy(x + i, pad, size_t(n - i) * sizeof(float));
    sum = Lanes::add(sum, e);
  }
  LF scale = Lanes::set(1.0f / Lanes::reduce_add(sum));
  map2(x, nullptr, 0, n, x, [=](LF v, LF) { return Lanes::mul(v, scale); });
}

// ---- conversions --------------------------------------------------------------------------------

void to_f16(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) Lanes::store_half(out + i, Lanes::load(x + i));
  if (i == n) return;
  uint16_t pad[kWidth];
  Lanes::store_half(pad, load_tail(x + i, n - i));
  __builtin_memcpy(out + i, pad, size_t(n - i) * sizeof(uint16_t));
}

void from_f16(const uint16_t* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) Lanes::store(out + i, Lanes::load_half(x + i));
  if (i == n) return;
  float pad[kWidth];
  Lanes::store(pad, load_tail(x + i, n - i));
  __builtin_memcpy(out + i, pad, size_t(n - i) * sizeof(float));
}

void to_bf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u;
    __builtin_memcpy(&u, x + i, 4);
    bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    out[i] = uint16_t(nan ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
}

void from_bf16(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u = uint32_t(x[i]) << 16;
    __builtin_memcpy(out + i, &u, 4);
  }
}

// ---- rotary embedding ---------------------------------------------------------------------------

void rope_norm(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {  // a few hundred pairs a token: not worth shuffles
    float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

PN_FORCE void rotate(LF& a, LF& b, LF c, LF s) {
  LF left = Lanes::fnma(b, s, Lanes::mul(a, c));
  b = Lanes::fma(a, s, Lanes::mul(b, c));
  a = left;
}

void rope_neox(float* x, const float* cos, const float* sin, int64_t pairs) {
  float* y = x + pairs;
  int64_t i = 0;
  for (; i + kWidth <= pairs; i += kWidth) {
    LF a = Lanes::load(x + i), b = Lanes::load(y + i);
    rotate(a, b, Lanes::load(cos + i), Lanes::load(sin + i));
    Lanes::store(x + i, a);
    Lanes::store(y + i, b);
  }
  if (i == pairs) return;
  int64_t n = pairs - i;
  LF a = load_tail(x + i, n), b = load_tail(y + i, n);
  rotate(a, b, load_tail(cos + i, n), load_tail(sin + i, n));
  float pad[2][kWidth];
  Lanes::store(pad[0], a);
  Lanes::store(pad[1], b);
  __builtin_memcpy(x + i, pad[0], size_t(n) * sizeof(float));
  __builtin_memcpy(y + i, pad[1], size_t(n) * sizeof(float));
}

// ---- attention ----------------------------------------------------------------------------------

// Scores of kR query rows against kK positions; positions past `left` repeat the last one. kR * kK
// is a multiple of 4. Each score is one chain over dk and one fixed reduction, whatever kR and kK.
template <int kR, int kK, class T>
PN_FORCE void score_tile(const float* const* q, const T* const* k, int dk, float* out) {
  LF s[kR * kK];
  _Pragma("GCC unroll 16") for (int i = 0; i < kR * kK; ++i) s[i] = Lanes::zero();
  int d = 0;
  for (; d + kWidth <= dk; d += kWidth) {
    LF kv[kK];
    _Pragma("GCC unroll 4") for (int j = 0; j < kK; ++j) kv[j] = load_any(k[j] + d);
    _Pragma("GCC unroll 4") for (int r = 0; r < kR; ++r) {
      LF qv = Lanes::load(q[r] + d);
      _Pragma("GCC unroll 4") for (int j = 0; j < kK; ++j) {
        s[kR * j + r] = Lanes::fma(qv, kv[j], s[kR * j + r]);
      }
    }
  }
  if (d < dk) {
    _Pragma("GCC unroll 4") for (int r = 0; r < kR; ++r) {
      LF qv = load_tail(q[r] + d, dk - d);
      _Pragma("GCC unroll 4") for (int j = 0; j < kK; ++j) {
        s[kR * j + r] = Lanes::fma(qv, load_tail(k[j] + d, dk - d), s[kR * j + r]);
      }
    }
  }
  _Pragma("GCC unroll 4") for (int i = 0; i < kR * kK; i += 4) {
    Lanes::reduce_add4(s[i], s[i + 1], s[i + 2], s[i + 3], out + i);
  }
}

template <int kR, class T>
PN_FORCE void scores(const AttendBlock& b, int row, float (*s)[kAttendPositions]) {
  constexpr int kK = kR == 1 ? 4 : 2;
  const float* q[kR];
  for (int r = 0; r < kR; ++r) q[r] = b.q + (row + r) * b.q_stride;
  for (int t = 0; t < b.count; t += kK) {
    const T* k[kK];
    _Pragma("GCC unroll 4") for (int j = 0; j < kK; ++j) {
      int at = t + j < b.count ? t + j : b.count - 1;
      k[j] = reinterpret_cast<const T*>(b.k + at * b.k_stride);
    }
    float out[kR * kK];
    score_tile<kR, kK>(q, k, b.dk, out);
    for (int j = 0; j < kK && t + j < b.count; ++j) {
      _Pragma("GCC unroll 4") for (int r = 0; r < kR; ++r) s[r][t + j] = out[kR * j + r];
    }
  }
}

// Scores to weights e^(s - max), and the row's running maximum and sum. Hidden positions weigh
// zero. Returns what the accumulated values are to be multiplied by.
PN_FORCE float weigh(const AttendBlock& b, int row, float* s, const AttendState& state) {
  int begin = b.begin ? b.begin[row] : 0, end = b.end ? b.end[row] : b.count;
  const float hidden = -__builtin_inff();
  LF top = Lanes::set(hidden), scale = Lanes::set(b.scale);
  for (int t = 0; t < kAttendPositions; t += kWidth) {
    LF v = Lanes::mul(Lanes::load(s + t), scale);
    if (b.softcap > 0) {  // cap * (1 - 2 / (e^(2 v / cap) + 1))
      LF e = exp_lanes(Lanes::mul(v, Lanes::set(2.0f / b.softcap)));
      LF th = Lanes::div(Lanes::set(2.0f), Lanes::add(e, Lanes::set(1.0f)));
      v = Lanes::mul(Lanes::set(b.softcap), Lanes::sub(Lanes::set(1.0f), th));
    }
    Lanes::store(s + t, v);
    if (t < begin || t + kWidth > end) {
      for (int i = t; i < t + kWidth; ++i) s[i] = i < begin || i >= end ? hidden : s[i];
    }
    top = Lanes::max(top, Lanes::load(s + t));
  }
  float old = state.max[row], now = Lanes::reduce_max(top);
  if (now < old) now = old;
  if (now == hidden) {  // nothing seen yet
    for (int t = 0; t < kAttendPositions; ++t) s[t] = 0;
    return 1.0f;
  }
  LF m = Lanes::set(now), sum = Lanes::zero();
  for (int t = 0; t < kAttendPositions; t += kWidth) {
    LF e = exp_lanes(Lanes::sub(Lanes::load(s + t), m));
    Lanes::store(s + t, e);
    sum = Lanes::add(sum, e);
  }
  float keep = exp_one(old - now);
  state.max[row] = now;
  state.sum[row] = state.sum[row] * keep + Lanes::reduce_add(sum);
  return keep;
}

// acc[r][d ..] = acc * keep + sum of weight * v, positions ascending, kD registers of columns.
template <int kR, int kD, class T>
PN_FORCE void value_tile(const AttendBlock& b, const float (*s)[kAttendPositions],
                         const float* keep, float* const* acc, int d) {
  LF a[kR][kD];
  _Pragma("GCC unroll 4") for (int r = 0; r < kR; ++r) {
    _Pragma("GCC unroll 8") for (int i = 0; i < kD; ++i) {
      a[r][i] = Lanes::mul(Lanes::load(acc[r] + d + i * kWidth), Lanes::set(keep[r]));
    }
  }
  for (int t = 0; t < b.count; ++t) {
    const T* v = reinterpret_cast<const T*>(b.v + t * b.v_stride) + d;
    LF vv[kD];
    _Pragma("GCC unroll 8") for (int i = 0; i < kD; ++i) vv[i] = load_any(v + i * kWidth);
    _Pragma("GCC unroll 4") for (int r = 0; r < kR; ++r) {
      LF w = Lanes::set(s[r][t]);
      _Pragma("GCC unroll 8") for (int i = 0; i < kD; ++i) a[r][i] = Lanes::fma(w, vv[i], a[r][i]);
    }
  }
  _Pragma("GCC unroll 4") for (int r = 0; r < kR; ++r) {
    _Pragma("GCC unroll 8") for (int i = 0; i < kD; ++i) {
      Lanes::store(acc[r] + d + i * kWidth, a[r][i]);
    }
  }
}

template <int kR, class T>
PN_FORCE void value_tail(const AttendBlock& b, const float (*s)[kAttendPositions],
                         const float* keep, float* const* acc, int d) {
  int n = b.dv - d;
  for (int r = 0; r < kR; ++r) {
    LF a = Lanes::mul(load_tail(acc[r] + d, n), Lanes::set(keep[r]));
    for (int t = 0; t < b.count; ++t) {
      const T* v = reinterpret_cast<const T*>(b.v + t * b.v_stride) + d;
      a = Lanes::fma(Lanes::set(s[r][t]), load_tail(v, n), a);
    }
    float pad[kWidth];
    Lanes::store(pad, a);
    __builtin_memcpy(acc[r] + d, pad, size_t(n) * sizeof(float));
  }
}

template <int kR, class T>
__attribute__((noinline)) void attend_rows(const AttendBlock& b, const AttendState& state,
                                           int row) {
  alignas(64) float s[kR][kAttendPositions] = {};
  scores<kR, T>(b, row, s);
  float keep[kR];
  float* acc[kR];
  for (int r = 0; r < kR; ++r) {
    keep[r] = weigh(b, row + r, s[r], state);
    acc[r] = state.acc + int64_t(row + r) * b.dv;
  }
  constexpr int kD = 8 / kR;
  int d = 0;
  for (; d + kD * kWidth <= b.dv; d += kD * kWidth) value_tile<kR, kD, T>(b, s, keep, acc, d);
  for (; d + kWidth <= b.dv; d += kWidth) value_tile<kR, 1, T>(b, s, keep, acc, d);
  if (d < b.dv) value_tail<kR, T>(b, s, keep, acc, d);
}

template <class T>
void attend_typed(const AttendBlock& b, const AttendState& state) {
  int row = 0;
  for (; row + 4 <= b.rows; row += 4) attend_rows<4, T>(b, state, row);
  if (row + 2 <= b.rows) {
    attend_rows<2, T>(b, state, row);
    row += 2;
  }
  if (row < b.rows) attend_rows<1, T>(b, state, row);
}

void attend_block(const AttendBlock& block, const AttendState& state) {
  if (block.kv_type == layout::kF32) {
    attend_typed<float>(block, state);
  } else {
    attend_typed<uint16_t>(block, state);
  }
}

constexpr VectorKernels vector_table() {
  return {.rms_norm = rms_norm,
          .rope_norm = rope_norm,
          .rope_neox = rope_neox,
          .silu_mul = silu_mul,
          .gelu_mul = gelu_mul,
          .add = add,
          .mul = mul,
          .axpy = axpy,
          .axpy_f16 = axpy_f16,
          .dot = dot,
          .dot_f16 = dot_f16,
          .softmax = softmax,
          .exp = exp,
          .to_f16 = to_f16,
          .from_f16 = from_f16,
          .to_bf16 = to_bf16,
          .from_bf16 = from_bf16,
          .attend_block = attend_block};
}

}  // namespace
}  // namespace pn::cpu
