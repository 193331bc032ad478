// SPDX-License-Identifier: Apache-2.0
//
// The small ops that let a new architecture run on its first day: BINARY UNARY GLU COLUMNS CONCAT
// ROPE APPEND. Rows are cut between threads; nothing here is tuned.
#include <algorithm>
#include <cstring>

#include "backends/cpu/heads.h"

namespace pn::cpu {
namespace {

// Ops that make each row of out from the same row of their inputs.
class RowOp : public Op {
 public:
  uint16_t in[6] = {PN_NO16, PN_NO16, PN_NO16, PN_NO16, PN_NO16, PN_NO16};
  uint16_t out = PN_NO16;
  uint32_t rows_kind = PN_ROWS_TOKENS;

  void run(const Run& run, uint32_t thread) const override {
    const Range part = split(run.count(rows_kind), thread, run.threads);
    for (int64_t i = part.first; i < part.last; ++i) row(run, i);
    run.barrier();
  }
  virtual void row(const Run& run, int64_t i) const = 0;

 protected:
  void take(const Builder& b) {
    const pn_op& op = b.op().op;
    std::copy(op.in, op.in + 6, in);
    out = op.out[0];
    if (op.in[0] != PN_NO16) rows_kind = b.slot(op.in[0]).rows;
  }
};

class Binary final : public RowOp {
 public:
  pn_op_elementwise params = {};
  explicit Binary(const Builder& b) : params(b.op().as<pn_op_elementwise>()) { take(b); }
  void row(const Run& run, int64_t i) const override {
    const Rows x = run.slot(in[0]), z = run.slot(in[1]), y = run.slot(out);
    const float* a = x.row(i);
    const float* c = z.row(i);
    const int64_t step_a = x.width == 1 ? 0 : 1, step_c = z.width == 1 ? 0 : 1;
    float* to = y.row(i);
    for (int64_t k = 0; k < y.width; ++k) {
      const float p = a[k * step_a], q = c[k * step_c];
      to[k] = params.scale * (params.kind == PN_BINARY_ADD ? p + q : p * q);
    }
  }
};

// UNARY, and GLU with a second input.
class Unary final : public RowOp {
 public:
  pn_op_elementwise params = {};
  explicit Unary(const Builder& b) : params(b.op().as<pn_op_elementwise>()) { take(b); }
  void row(const Run& run, int64_t i) const override {
    const Rows y = run.slot(out);
    float* to = y.row(i);
    memcpy(to, run.slot(in[0]).row(i), static_cast<size_t>(y.width) * sizeof(float));
    const float limit = params.limit;
    if (limit != 0)
      for (int64_t k = 0; k < y.width; ++k) to[k] = std::clamp(to[k], -limit, limit);
    const float* up = in[1] == PN_NO16 ? nullptr : run.slot(in[1]).row(i);
    gate_rows(run.vectors, {params.kind, 0, 0}, up, y.width, to);
    if (params.scale != 1.0f)
      for (int64_t k = 0; k < y.width; ++k) to[k] *= params.scale;
  }
};

class PickColumns final : public RowOp {
 public:
  uint32_t first = 0;
  explicit PickColumns(const Builder& b) : first(b.op().as<pn_op_columns>().first) { take(b); }
  void row(const Run& run, int64_t i) const override {
    const Rows y = run.slot(out);
    memcpy(y.row(i), run.slot(in[0]).row(i) + first, static_cast<size_t>(y.width) * sizeof(float));
  }
};

class Concat final : public RowOp {
 public:
  explicit Concat(const Builder& b) { take(b); }
  void row(const Run& run, int64_t i) const override {
    float* to = run.slot(out).row(i);
    for (uint16_t s : in) {
      if (s == PN_NO16) continue;
      const Rows x = run.slot(s);
      memcpy(to, x.row(i), static_cast<size_t>(x.width) * sizeof(float));
      to += x.width;
    }
  }
};

class Rope final : public RowOp {
 public:
  pn_op_heads params = {};
  RopeUse rope;
  explicit Rope(const Builder& b) : params(b.op().as<pn_op_heads>()) { take(b); }
  void row(const Run& run, int64_t i) const override {
    const Rows y = run.slot(out);
    float* to = y.row(i);
    memcpy(to, run.slot(in[0]).row(i), static_cast<size_t>(y.width) * sizeof(float));
    for (uint32_t h = 0; h < params.heads; ++h) rope.turn(run, i, to + int64_t{h} * params.dim);
  }
};

class Append final : public RowOp {
 public:
  pn_op_heads params = {};
  int64_t value_dim = 0;
  explicit Append(const Builder& b) : params(b.op().as<pn_op_heads>()) { take(b); }
  void row(const Run& run, int64_t i) const override {
    for (uint32_t h = 0; h < params.heads; ++h)
      append_row(run, run.token[i], params.cache, params.cache_layer, h,
                 run.slot(in[0]).row(i) + int64_t{h} * params.dim,
                 run.slot(in[1]).row(i) + h * value_dim);
  }
};

}  // namespace

std::unique_ptr<Op> build_binary(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows) || !b.input(1, 0, b.slot(op.in[0]).rows) || !b.nothing_else(2, 1, 0))
    return nullptr;
  const uint32_t x = b.slot(op.in[0]).width, z = b.slot(op.in[1]).width;
  if (x != z && x != 1 && z != 1) return b.refuse("widths %u and %u", x, z), nullptr;
  if (!b.output(0, std::max(x, z), b.slot(op.in[0]).rows)) return nullptr;
  if (b.op().as<pn_op_elementwise>().kind > PN_BINARY_MUL) return b.refuse("kind"), nullptr;
  return std::make_unique<Binary>(b);
}

std::unique_ptr<Op> build_unary(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows) || !b.nothing_else(1, 1, 0) ||
      !b.output(0, b.slot(op.in[0]).width, b.slot(op.in[0]).rows))
    return nullptr;
  if (b.op().as<pn_op_elementwise>().kind > PN_ACT_TANH)
    return b.refuse("activation %u", b.op().as<pn_op_elementwise>().kind), nullptr;
  return std::make_unique<Unary>(b);
}

std::unique_ptr<Op> build_glu(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows) || !b.input(1, b.slot(op.in[0]).width, b.slot(op.in[0]).rows) ||
      !b.nothing_else(2, 1, 0) || !b.output(0, b.slot(op.in[0]).width, b.slot(op.in[0]).rows))
    return nullptr;
  if (b.op().as<pn_op_elementwise>().kind > PN_ACT_TANH)
    return b.refuse("activation %u", b.op().as<pn_op_elementwise>().kind), nullptr;
  return std::make_unique<Unary>(b);
}

std::unique_ptr<Op> build_columns(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows) || !b.nothing_else(1, 1, 0) ||
      !b.output(0, 0, b.slot(op.in[0]).rows))
    return nullptr;
  const uint64_t last = uint64_t{b.op().as<pn_op_columns>().first} + b.slot(op.out[0]).width;
  if (last > b.slot(op.in[0]).width)
    return b.refuse("columns up to %llu of %u", static_cast<unsigned long long>(last),
                    b.slot(op.in[0]).width),
           nullptr;
  return std::make_unique<PickColumns>(b);
}

std::unique_ptr<Op> build_concat(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows) || !b.nothing_else(6, 1, 0)) return nullptr;
  int64_t width = b.slot(op.in[0]).width;
  for (uint32_t k = 1; k < 6; ++k) {
    if (!b.has_input(k)) continue;
    if (!b.input(k, 0, b.slot(op.in[0]).rows)) return nullptr;
    width += b.slot(op.in[k]).width;
  }
  if (!b.output(0, width, b.slot(op.in[0]).rows)) return nullptr;
  return std::make_unique<Concat>(b);
}

std::unique_ptr<Op> build_rope(Builder& b) {
  const pn_op& op = b.op().op;
  auto rope = std::make_unique<Rope>(b);
  const pn_op_heads& p = rope->params;
  const int64_t width = int64_t{p.heads} * p.dim;
  if (!b.input(0, width, PN_ROWS_TOKENS) || !b.output(0, width, PN_ROWS_TOKENS) ||
      !b.nothing_else(1, 1, 1) ||
      !plan_rope(b, op.weight[0], p.rope_kind, p.rope_dims, p.dim, p.rope_magnitude, &rope->rope))
    return nullptr;
  return rope;
}

std::unique_ptr<Op> build_append(Builder& b) {
  const pn_op& op = b.op().op;
  auto append = std::make_unique<Append>(b);
  const pn_op_heads& p = append->params;
  if (p.heads == 0 || p.dim == 0) return b.refuse("%u heads of %u", p.heads, p.dim), nullptr;
  if (!b.input(0, int64_t{p.heads} * p.dim, PN_ROWS_TOKENS) || !b.input(1, 0, PN_ROWS_TOKENS) ||
      !b.nothing_else(2, 0, 0))
    return nullptr;
  const uint32_t values = b.slot(op.in[1]).width;
  if (values % p.heads != 0) return b.refuse("%u heads in %u values", p.heads, values), nullptr;
  append->value_dim = values / p.heads;
  const CacheLayer layer = {p.heads, p.dim, static_cast<uint32_t>(append->value_dim)};
  if (!b.cache_layer(p.cache, p.cache_layer, true, layer)) return nullptr;
  return append;
}

}  // namespace pn::cpu
