// SPDX-License-Identifier: Apache-2.0
//
// The row kernels that are not matrix products: norms, rotary embedding, gates, softmax, attention.
//
// Owns: their signatures and the choice by instruction set. Knows nothing of plans, pages or
// threads: every pointer is a plain row, every call works alone. The one idea: an element's bits
// depend on its value and (for sums) on the row's length, never on alignment, position in a batch
// or neighbours: tails run through the same vector code as the body.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/matmul.h"

namespace pn::cpu {

inline constexpr int32_t kAttendPositions = 64;  // most positions that one attend_block call takes

// One block of at most 64 positions of one K/V head, for all query rows that read it: the query
// heads of a GQA group, and, in a prompt, those of several tokens. Each K and V row is loaded once
// for four query rows. Every block's borders must be the same multiples of 64 positions whatever
// the batch: then a row's bits do not depend on it.
struct AttendBlock {
  const float* q = nullptr;  // (rows, dk), `q_stride` floats apart, not yet scaled
  int64_t q_stride = 0;
  const std::byte* k = nullptr;  // (count, dk) of kv_type, rows `k_stride` bytes apart
  const std::byte* v = nullptr;  // (count, dv) of kv_type, rows `v_stride` bytes apart
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  uint32_t kv_type = 1;  // GGUF number: 0 F32, 1 F16
  int32_t rows = 0;
  int32_t count = 0;  // positions here, 1 .. kAttendPositions
  int32_t dk = 0;
  int32_t dv = 0;
  float scale = 1;                 // score = softcap(scale * q.k)
  float softcap = 0;               // 0: none; else cap * tanh(score / cap)
  const int32_t* begin = nullptr;  // (rows) first position of the block a row sees; null: 0
  const int32_t* end = nullptr;    // (rows) one past its last (<= count); null: count
};

// The running state of the rows over blocks. Start: max = -inf, sum = 0, acc = 0 (attend_begin).
struct AttendState {
  float* max = nullptr;  // (rows)
  float* sum = nullptr;  // (rows)
  float* acc = nullptr;  // (rows, dv), packed
};

struct VectorKernels {
  // out[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; w null: 1. out may be x.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* out);
  // In place, pairs (2i, 2i+1) turn by (cos[i], sin[i]).
  void (*rope_norm)(float* x, const float* cos, const float* sin, int64_t pairs);
  // In place, pairs (i, i + pairs).
  void (*rope_neox)(float* x, const float* cos, const float* sin, int64_t pairs);
  // out[i] = silu(gate[i]) * up[i], and the tanh form of gelu. out may be gate or up; up null: 1.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*mul)(const float* a, const float* b, int64_t n, float* out);
  void (*axpy)(float a, const float* x, int64_t n, float* y);  // y += a * x
  void (*axpy_f16)(float a, const uint16_t* x, int64_t n, float* y);
  float (*dot)(const float* a, const float* b, int64_t n);
  float (*dot_f16)(const float* a, const uint16_t* b, int64_t n);
  // In place: x = exp(x - max(x)) / sum. A row of -inf only becomes zeros.
  void (*softmax)(float* x, int64_t n);
  void (*exp)(const float* x, int64_t n, float* out);        // <= 2 ulp; below -87.3 zero
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);  // nearest even, overflow to inf
  void (*from_f16)(const uint16_t* x, int64_t n, float* out);
  void (*to_bf16)(const float* x, int64_t n, uint16_t* out);  // nearest even
  void (*from_bf16)(const uint16_t* x, int64_t n, float* out);
  void (*attend_block)(const AttendBlock& block, const AttendState& state);
};

const VectorKernels& vector_kernels(Isa isa);
// The oracle: f64 sums in index order, libm's exp, tanh and sqrt rounded once to f32.
const VectorKernels& reference_vectors();

void attend_begin(const AttendState& state, int64_t rows, int64_t dv);
// out[r] = acc[r] / sum[r], rows `out_stride` floats apart. sinks (rows) or null: a further score
// without a value that joins the row's sum. A row that saw nothing becomes zeros.
struct AttendOut {
  float* out = nullptr;  // (rows, dv)
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t dv = 0;
  const float* sinks = nullptr;
};
void attend_finish(const AttendState& state, const AttendOut& out);

}  // namespace pn::cpu
