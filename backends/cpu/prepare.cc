// SPDX-License-Identifier: Apache-2.0
//
// Panels, column finishing and activations. See prepare.h.
#include "backends/cpu/prepare.h"

#include <algorithm>
#include <cmath>

namespace pn::cpu {
namespace {

void layer_norm(const NormRow& norm, const float* x, float* out) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < norm.n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(norm.n);
  for (int64_t i = 0; i < norm.n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(norm.n) + norm.eps);
  for (int64_t i = 0; i < norm.n; ++i) {
    const auto value = static_cast<float>((x[i] - mean) * inverse);
    out[i] = norm.w == nullptr ? value : value * norm.w[i];
  }
}

void l2_norm(const NormRow& norm, const float* x, float* out) {
  double squares = 0;
  for (int64_t i = 0; i < norm.n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double inverse = 1.0 / std::max(std::sqrt(squares), static_cast<double>(norm.eps));
  for (int64_t i = 0; i < norm.n; ++i) {
    const auto value = static_cast<float>(x[i] * inverse);
    out[i] = norm.w == nullptr ? value : value * norm.w[i];
  }
}

}  // namespace

void norm_row(const VectorKernels& vectors, const NormRow& norm, const float* x, float* out) {
  if (norm.kind == PN_NORM_RMS)
    vectors.rms_norm(x, norm.w, norm.eps, norm.n, out);
  else if (norm.kind == PN_NORM_LAYER)
    layer_norm(norm, x, out);
  else
    l2_norm(norm, x, out);
  if (norm.bias != nullptr) vectors.add(out, norm.bias, norm.n, out);
}

NormRow norm_of(const Run& run, uint16_t weight, const pn_op_norm& params, int64_t n) {
  NormRow norm;
  norm.kind = params.kind;
  norm.eps = params.eps;
  norm.n = n;
  if (weight != PN_NO16) {
    norm.w = run.weight(weight).values();
    const uint16_t bias = run.weight(weight).info.bias;
    if (bias != PN_NO16) norm.bias = run.weight(bias).values();
  }
  return norm;
}

void Panels::plan(Builder& b, uint16_t slot, const uint16_t* weights, uint32_t count,
                  int64_t rows_max) {
  if (slot != PN_NO16) {
    norm_ = b.norms[slot];
    source_ = norm_.folded ? norm_.source : slot;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (weights[i] == PN_NO16) continue;
    const pn_weight& w = b.weight(weights[i]);
    cols_ = w.shape[0];
    uint32_t known = 0;
    while (known < type_count_ && types_[known] != w.source_type) ++known;
    if (known < type_count_) continue;
    types_[type_count_++] = w.source_type;
  }
  for (uint32_t i = 0; i < type_count_; ++i) {
    shared_[i] = b.work.take(panel_bytes(types_[i], cols_, rows_max));
    private_step_[i] = panel_bytes(types_[i], cols_, std::min(rows_max, kPrivateRows));
    private_[i] = b.work.take(private_step_[i] * b.threads);
  }
  if (slot == PN_NO16) return;
  buffer_step_ = static_cast<uint64_t>(kNormBlock * (cols_ + 15) / 16 * 16) * sizeof(float);
  buffer_ = b.work.take(buffer_step_ * b.threads);
}

void Panels::fill(const Run& run, uint32_t thread, const Rows& rows, const PanelSource& shape,
                  std::byte* const* panels, Range part) const {
  if (!norm_.folded || source_ == PN_NO16) {
    for (uint32_t i = 0; i < type_count_; ++i)
      run.matmul.prepare(types_[i], shape, panels[i], part.first, part.last);
    return;
  }
  const NormRow norm = norm_of(run, norm_.weight, norm_.params, cols_);
  float* buffer = run.at<float>(buffer_ + thread * buffer_step_);
  for (int64_t first = part.first; first < part.last; first += kNormBlock) {
    const int64_t last = std::min(part.last, first + kNormBlock);
    for (int64_t i = first; i < last; ++i)
      norm_row(run.vectors, norm, rows.row(i), buffer + (i - first) * cols_);
    // The panel counts rows from the first of the run; the buffer holds these few.
    PanelSource source = shape;
    source.stride = cols_;
    source.x = buffer - first * cols_;
    for (uint32_t i = 0; i < type_count_; ++i)
      run.matmul.prepare(types_[i], source, panels[i], first, last);
  }
}

Panels::Made Panels::run(const Run& run, uint32_t thread, const Rows& rows, int64_t n) const {
  const bool alone = n <= kPrivateRows;
  std::byte* panels[4] = {};
  Made made;
  made.types = types_;
  for (uint32_t i = 0; i < type_count_; ++i) {
    panels[i] = alone ? run.at<std::byte>(private_[i] + thread * private_step_[i])
                      : run.at<std::byte>(shared_[i]);
    made.panel[i] = panels[i];
  }
  PanelSource shape;
  shape.x = rows.data;
  shape.stride = rows.stride;
  shape.cols = cols_;
  shape.tokens = n;
  if (alone) {
    fill(run, thread, rows, shape, panels, {0, n});
    return made;
  }
  const Range blocks = split((n + kNormBlock - 1) / kNormBlock, thread, run.threads);
  fill(run, thread, rows, shape, panels,
       {std::min(n, blocks.first * kNormBlock), std::min(n, blocks.last * kNormBlock)});
  run.barrier();
  return made;
}

const float* Panels::row(const Run& run, uint32_t thread, int64_t i) const {
  const float* x = run.slot(source_).row(i);
  if (!norm_.folded) return x;
  float* buffer = run.at<float>(buffer_ + thread * buffer_step_);
  norm_row(run.vectors, norm_of(run, norm_.weight, norm_.params, cols_), x, buffer);
  return buffer;
}

void finish_columns(const Run& run, const Weight& w, uint64_t expert, const Columns& columns) {
  const float scale = w.info.scale == PN_NO16 ? 1.0f : run.weight(w.info.scale).values()[expert];
  const float* bias = w.info.bias == PN_NO16 ? nullptr
                                             : run.weight(w.info.bias).values() +
                                                   static_cast<int64_t>(expert) * w.info.shape[1];
  if (scale == 1.0f && bias == nullptr) return;
  for (int64_t i = 0; i < columns.n; ++i) {
    float* y = columns.y + i * columns.stride;
    if (scale != 1.0f)
      for (int64_t c = columns.first; c < columns.last; ++c) y[c] *= scale;
    if (bias != nullptr)
      run.vectors.add(y + columns.first, bias + columns.first, columns.last - columns.first,
                      y + columns.first);
  }
}

Range columns_of(const Range& tiles, int64_t rows) {
  return {std::min(rows, tiles.first * kTileRows), std::min(rows, tiles.last * kTileRows)};
}

Matrix rows_of(const Matrix& w, int64_t first_row, int64_t rows) {
  Matrix part = w;
  part.rows = rows;
  part.tiles += static_cast<uint64_t>(first_row / kTileRows) * tile_bytes(w.type, w.cols);
  return part;
}

float activate(uint32_t activation, float x) {
  switch (activation) {
    case PN_ACT_SILU:
      return x / (1.0f + std::exp(-x));
    case PN_ACT_GELU_TANH: {
      const float inner = 0.7978845608028654f * x * (1.0f + 0.044715f * x * x);
      return 0.5f * x * (1.0f + std::tanh(inner));
    }
    case PN_ACT_SIGMOID:
      return 1.0f / (1.0f + std::exp(-x));
    case PN_ACT_SOFTPLUS:
      return x > 20.0f ? x : std::log1p(std::exp(x));
    case PN_ACT_TANH:
      return std::tanh(x);
    default:
      return x;
  }
}

bool activation_known(uint32_t kind) { return kind <= PN_ACT_SWIGLU_OAI; }

void gate_rows(const VectorKernels& vectors, const Activation& act, const float* up, int64_t n,
               float* gate) {
  if (act.kind == PN_ACT_SILU) return vectors.silu_mul(gate, up, n, gate);
  if (act.kind == PN_ACT_GELU_TANH) return vectors.gelu_mul(gate, up, n, gate);
  if (act.kind == PN_ACT_SWIGLU_OAI) {
    for (int64_t i = 0; i < n; ++i) {
      const float g = std::min(gate[i], act.limit);
      const float u = up == nullptr ? 0.0f : std::clamp(up[i], -act.limit, act.limit);
      gate[i] = g / (1.0f + std::exp(-act.alpha * g)) * (u + 1.0f);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const float g = activate(act.kind, gate[i]);
    gate[i] = up == nullptr ? g : g * up[i];
  }
}

}  // namespace pn::cpu
