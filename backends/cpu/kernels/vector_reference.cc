// SPDX-License-Identifier: Apache-2.0
//
// The oracle of the row kernels, and the two ends of an attention.
//
// Owns: reference_vectors(), attend_begin, attend_finish. Must not share arithmetic with the
// kernels that it judges. The one idea: every sum is f64 in index order, every function libm's,
// rounded to f32 once.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/half.h"
#include "backends/cpu/kernels/tile.h"

namespace pn::cpu {
namespace {

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* out) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(x[i]) * x[i];
  double factor = 1 / std::sqrt(sum / double(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = float(x[i] * factor * (w ? w[i] : 1.0));
}

void rotate(float& a, float& b, double c, double s) {
  double x = a, y = b;
  a = float(x * c - y * s);
  b = float(x * s + y * c);
}

void rope_norm(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) rotate(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
}

void rope_neox(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) rotate(x[i], x[i + pairs], cos[i], sin[i]);
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    double g = gate[i];
    out[i] = float(g / (1 + std::exp(-g)) * (up ? up[i] : 1.0));
  }
}

void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  constexpr double kRoot = 0.79788456080286535588;  // sqrt(2 / pi)
  for (int64_t i = 0; i < n; ++i) {
    double g = gate[i];
    out[i] =
        float(0.5 * g * (1 + std::tanh(kRoot * (g + 0.044715 * g * g * g))) * (up ? up[i] : 1.0));
  }
}

void add(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void mul(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void axpy(float a, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = float(double(a) * x[i] + y[i]);
}

void axpy_f16(float a, const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = float(double(a) * half_to_float(x[i]) + y[i]);
}

float dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(a[i]) * b[i];
  return float(sum);
}

float dot_f16(const float* a, const uint16_t* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(a[i]) * half_to_float(b[i]);
  return float(sum);
}

constexpr float kHidden = -std::numeric_limits<float>::infinity();

void softmax(float* x, int64_t n) {
  float top = kHidden;
  for (int64_t i = 0; i < n; ++i) top = std::max(top, x[i]);
  double sum = 0;
  for (int64_t i = 0; i < n && top != kHidden; ++i) sum += std::exp(double(x[i]) - top);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = top == kHidden ? 0 : float(std::exp(double(x[i]) - top) / sum);
  }
}

void exp_row(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = float(std::exp(double(x[i])));
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = float_to_half(x[i]);
}

void from_f16(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = half_to_float(x[i]);
}

void to_bf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u = std::bit_cast<uint32_t>(x[i]);
    uint32_t odd = u >> 16 & 1u;
    out[i] = std::isnan(x[i]) ? uint16_t(u >> 16 | 0x40u) : uint16_t((u + 0x7fffu + odd) >> 16);
  }
}

void from_bf16(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(uint32_t(x[i]) << 16);
}

float kv_at(const AttendBlock& b, const std::byte* row, int i) {
  if (b.kv_type == layout::kF32) return reinterpret_cast<const float*>(row)[i];
  return half_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
}

double score(const AttendBlock& b, int row, int t) {
  const float* q = b.q + row * b.q_stride;
  double s = 0;
  for (int d = 0; d < b.dk; ++d) s += double(q[d]) * kv_at(b, b.k + t * b.k_stride, d);
  s *= b.scale;
  return b.softcap > 0 ? b.softcap * std::tanh(s / b.softcap) : s;
}

void attend_block(const AttendBlock& b, const AttendState& state) {
  for (int row = 0; row < b.rows; ++row) {
    int begin = b.begin ? b.begin[row] : 0, end = b.end ? b.end[row] : b.count;
    if (begin >= end) continue;
    double s[kAttendPositions], old = state.max[row], now = old, sum = 0;
    for (int t = begin; t < end; ++t) now = std::max(now, s[t] = score(b, row, t));
    for (int t = begin; t < end; ++t) sum += s[t] = std::exp(s[t] - now);
    double keep = std::exp(old - now);
    float* acc = state.acc + int64_t(row) * b.dv;
    for (int d = 0; d < b.dv; ++d) {
      double a = acc[d] * keep;
      for (int t = begin; t < end; ++t) a += s[t] * kv_at(b, b.v + t * b.v_stride, d);
      acc[d] = float(a);
    }
    // The rounding of the maximum cancels only if sum and acc use the rounded one from here on.
    double shift = std::exp(now - double(float(now)));
    state.max[row] = float(now);
    state.sum[row] = float((state.sum[row] * keep + sum) * shift);
    for (int d = 0; d < b.dv; ++d) acc[d] = float(acc[d] * shift);
  }
}

const VectorKernels kReference = {.rms_norm = rms_norm,
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
                                  .exp = exp_row,
                                  .to_f16 = to_f16,
                                  .from_f16 = from_f16,
                                  .to_bf16 = to_bf16,
                                  .from_bf16 = from_bf16,
                                  .attend_block = attend_block};

}  // namespace

const VectorKernels& reference_vectors() { return kReference; }

void attend_begin(const AttendState& state, int64_t rows, int64_t dv) {
  std::fill_n(state.max, rows, kHidden);
  std::fill_n(state.sum, rows, 0.0f);
  std::fill_n(state.acc, rows * dv, 0.0f);
}

void attend_finish(const AttendState& state, const AttendOut& o) {
  for (int64_t r = 0; r < o.rows; ++r) {
    double sum = state.sum[r], factor = 1;
    if (o.sinks) {
      double now = std::max(double(state.max[r]), double(o.sinks[r]));
      factor = sum > 0 ? std::exp(state.max[r] - now) : 0;
      sum = sum * factor + std::exp(o.sinks[r] - now);
    }
    // !(sum <= 0) rather than sum > 0: a NaN must reach the output.
    float scale = !(sum <= 0) ? float(factor / sum) : 0;
    const float* acc = state.acc + r * o.dv;
    float* out = o.out + r * o.stride;
    for (int64_t d = 0; d < o.dv; ++d) out[d] = acc[d] * scale;
  }
}

}  // namespace pn::cpu
