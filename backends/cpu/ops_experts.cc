// SPDX-License-Identifier: Apache-2.0
//
// ROUTER and EXPERTS: which experts a token goes to, and the sum of what they answer.
//
// A routed row is `used` choices of expert and weight, in falling order of score. EXPERTS sorts the
// (token, choice) pairs by expert, so each chosen expert's tiles are read once for all its rows. A
// thread has the same columns of every expert and adds a token's answers in the order of its
// choices: the sum's bits do not depend on who else chose the expert.
#include <algorithm>
#include <cmath>

#include "backends/cpu/prepare.h"

namespace pn::cpu {
namespace {

struct Choice {
  int32_t expert;
  float weight;
};

Choice* choices_of(const Run& run, uint16_t slot, int64_t t) {
  return reinterpret_cast<Choice*>(run.slot(slot).row(t));
}

class Router final : public Op {
 public:
  Panels panels;
  pn_op_router params = {};
  uint16_t weight = PN_NO16, out = PN_NO16;
  uint32_t rows_kind = PN_ROWS_TOKENS;
  int64_t stride = 0;
  uint64_t logits_at = 0;

  void run(const Run& run, uint32_t thread) const override {
    const int64_t n = run.count(rows_kind);
    const Weight& w = run.weight(weight);
    const Matrix matrix = w.matrix();
    const Panels::Made made = panels.run(run, thread, n);
    const Range tiles = split(tile_count(matrix.rows), thread, run.threads);
    const Range columns = columns_of(tiles, matrix.rows);
    float* logits = run.at<float>(logits_at);
    if (tiles.size() > 0 && n > 0) {
      run.matmul.matmul(matrix, made.of(matrix.type), n, logits, stride, tiles.first, tiles.last);
      finish_columns(run, w, 0, {logits, stride, n, columns.first, columns.last});
    }
    run.barrier();
    const Range part = split(n, thread, run.threads);
    for (int64_t t = part.first; t < part.last; ++t)
      choose(run, logits + t * stride, choices_of(run, out, t));
    run.barrier();
  }

 private:
  void choose(const Run& run, float* scores, Choice* chosen) const {
    const int64_t experts = params.experts;
    if (params.gating == PN_GATE_SOFTMAX) run.vectors.softmax(scores, experts);
    if (params.gating == PN_GATE_SIGMOID)
      for (int64_t e = 0; e < experts; ++e) scores[e] = 1.0f / (1.0f + std::exp(-scores[e]));
    for (uint32_t k = 0; k < params.used; ++k) chosen[k] = {-1, 0.0f};
    // Insertion into a short sorted list; a tie stays behind the lower expert. NaN sorts last.
    for (int32_t e = 0; e < experts; ++e) {
      const float score = std::isnan(scores[e]) ? -INFINITY : scores[e];
      uint32_t at = params.used;
      while (at > 0 && (chosen[at - 1].expert < 0 || score > chosen[at - 1].weight)) --at;
      if (at == params.used) continue;
      std::move_backward(chosen + at, chosen + params.used - 1, chosen + params.used);
      chosen[at] = {e, score};
    }
    weigh(chosen);
  }

  void weigh(Choice* chosen) const {
    if (params.gating == PN_GATE_SOFTMAX_SELECTED) {
      const float max = chosen[0].weight;
      float sum = 0;
      for (uint32_t k = 0; k < params.used; ++k)
        sum += chosen[k].weight = std::exp(chosen[k].weight - max);
      for (uint32_t k = 0; k < params.used; ++k) chosen[k].weight /= sum;
    }
    if (params.renormalise != 0) {
      float sum = 0;
      for (uint32_t k = 0; k < params.used; ++k) sum += chosen[k].weight;
      sum = std::max(sum, params.sum_min);
      for (uint32_t k = 0; k < params.used; ++k) chosen[k].weight /= sum;
    }
    for (uint32_t k = 0; k < params.used; ++k) chosen[k].weight *= params.scale;
  }
};

class Experts final : public Op {
 public:
  Panels alone;  // the one row of a decode step
  pn_op_mlp params = {};
  uint16_t gate = PN_NO16, up = PN_NO16, down = PN_NO16;
  uint16_t in = PN_NO16, routing = PN_NO16, residual = PN_NO16, out = PN_NO16;
  FoldedNorm norm;
  uint32_t rows_kind = PN_ROWS_TOKENS;
  uint32_t experts = 0, used = 0;
  int64_t width = 0, out_width = 0, ff = 0, ff_stride = 0, out_stride = 0;
  // Work: the sorted pairs, and rows in their order.
  uint64_t starts_at = 0;  // (experts + 1) first pair of each expert
  uint64_t order_at = 0;   // (pairs) index token * used + choice
  uint64_t place_at = 0;   // (pairs) where a pair stands in the order
  uint64_t in_panels = 0, hidden_panels = 0;
  uint64_t gate_rows_at = 0, up_rows_at = 0, answers_at = 0;
  uint64_t buffer_at = 0, buffer_step = 0;

  void run(const Run& run, uint32_t thread) const override {
    const int64_t n = run.count(rows_kind);
    Panels::Made one;
    if (n == 1) one = alone.run(run, thread, 1);
    if (thread == 0) sort_pairs(run, n);
    run.barrier();
    if (n != 1) {
      prepare_rows(run, thread, in_type(run), in_panels, true);
      run.barrier();
    }
    open(run, thread, n == 1 ? &one : nullptr);
    run.barrier();
    prepare_rows(run, thread, run.weight(down).info.source_type, hidden_panels, false);
    run.barrier();
    close(run, thread, n);
    run.barrier();
  }

 private:
  bool fused() const { return (params.flags & PN_MLP_FUSED) != 0; }
  uint32_t in_type(const Run& run) const { return run.weight(gate).info.source_type; }
  int64_t* starts(const Run& run) const { return run.at<int64_t>(starts_at); }
  Range pairs_of(const Run& run, int64_t e) const { return {starts(run)[e], starts(run)[e + 1]}; }

  // Counting sort by expert; pairs of one expert stay in token order.
  void sort_pairs(const Run& run, int64_t n) const {
    int64_t* first = starts(run);
    std::fill(first, first + experts + 1, 0);
    for (int64_t t = 0; t < n; ++t)
      for (uint32_t k = 0; k < used; ++k) ++first[choices_of(run, routing, t)[k].expert + 1];
    for (uint32_t e = 0; e < experts; ++e) first[e + 1] += first[e];
    auto* order = run.at<int32_t>(order_at);
    auto* place = run.at<int32_t>(place_at);
    for (int64_t t = 0; t < n; ++t) {
      for (uint32_t k = 0; k < used; ++k) {
        // first[e] walks to the start of e + 1; shifted back below.
        const int64_t at = first[choices_of(run, routing, t)[k].expert]++;
        order[at] = static_cast<int32_t>(t * used + k);
        place[t * used + k] = static_cast<int32_t>(at);
      }
    }
    for (uint32_t e = experts; e > 0; --e) first[e] = first[e - 1];
    first[0] = 0;
  }

  // Panels of every expert's rows: of its tokens' inputs, or of their hidden rows.
  void prepare_rows(const Run& run, uint32_t thread, uint32_t type, uint64_t panels_at,
                    bool inputs) const {
    const int64_t total = starts(run)[experts];
    const Range mine = split(total, thread, run.threads);
    const int64_t cols = inputs ? width : ff;
    uint64_t at = panels_at;
    for (int64_t e = 0; e < experts; ++e) {
      const Range pairs = pairs_of(run, e);
      if (pairs.size() == 0) continue;
      std::byte* panel = run.at<std::byte>(at);
      at += panel_bytes(type, cols, pairs.size());
      const Range part = {std::max(pairs.first, mine.first), std::min(pairs.last, mine.last)};
      for (int64_t p = part.first; p < part.last; ++p) {
        const int64_t row = p - pairs.first;
        const float* x = inputs ? input_row(run, thread, run.at<int32_t>(order_at)[p] / used)
                                : run.at<float>(gate_rows_at) + p * ff_stride;
        // One row at a time: stride 0 makes every row of the panel read it.
        run.matmul.prepare(type, {x, 0, cols, pairs.size()}, panel, row, row + 1);
      }
    }
  }

  const float* input_row(const Run& run, uint32_t thread, int64_t t) const {
    if (!norm.folded) return run.slot(in).row(t);
    float* buffer = run.at<float>(buffer_at + thread * buffer_step);
    norm_row(run.vectors, norm_of(run, norm.weight, norm.params, width), run.slot(in).row(t),
             buffer);
    return buffer;
  }

  struct Product {
    const Weight& w;
    uint64_t expert;
    Matrix matrix;
    const std::byte* panel;
    int64_t rows;
  };
  // y (rows, stride): the thread's columns of one expert's product, scale and bias applied.
  static void multiply(const Run& run, const Product& p, float* y, int64_t stride, Range tiles,
                       int64_t bias_shift) {
    run.matmul.matmul(p.matrix, p.panel, p.rows, y, stride, tiles.first, tiles.last);
    const Range columns = columns_of(tiles, p.matrix.rows);
    finish_columns(
        run, p.w, p.expert,
        {y - bias_shift, stride, p.rows, columns.first + bias_shift, columns.last + bias_shift});
  }

  void open(const Run& run, uint32_t thread, const Panels::Made* one) const {
    const Range tiles = split(tile_count(ff), thread, run.threads);
    const Range columns = columns_of(tiles, ff);
    if (tiles.size() == 0) return;
    const Weight& wg = run.weight(gate);
    const uint32_t type = wg.info.source_type;
    const Activation act = {params.activation, params.limit, params.alpha};
    uint64_t at = in_panels;
    for (uint32_t e = 0; e < experts; ++e) {
      const Range pairs = pairs_of(run, e);
      const int64_t rows = pairs.size();
      if (rows == 0) continue;
      const std::byte* panel = one != nullptr ? one->of(type) : run.at<std::byte>(at);
      at += one != nullptr ? 0 : panel_bytes(type, width, rows);
      float* g = run.at<float>(gate_rows_at) + pairs.first * ff_stride;
      float* u = run.at<float>(up_rows_at) + pairs.first * ff_stride;
      const Matrix all = wg.matrix(e);
      if (fused()) {
        multiply(run, {wg, e, rows_of(all, 0, ff), panel, rows}, g, ff_stride, tiles, 0);
        multiply(run, {wg, e, rows_of(all, ff, ff), panel, rows}, u, ff_stride, tiles, ff);
      } else {
        multiply(run, {wg, e, all, panel, rows}, g, ff_stride, tiles, 0);
        const Weight& wu = run.weight(up);
        multiply(run, {wu, e, wu.matrix(e), panel, rows}, u, ff_stride, tiles, 0);
      }
      for (int64_t i = 0; i < rows; ++i)
        gate_rows(run.vectors, act, u + i * ff_stride + columns.first, columns.size(),
                  g + i * ff_stride + columns.first);
    }
  }

  void close(const Run& run, uint32_t thread, int64_t n) const {
    const Weight& w = run.weight(down);
    const uint32_t type = w.info.source_type;
    const Range tiles = split(tile_count(out_width), thread, run.threads);
    const Range columns = columns_of(tiles, out_width);
    if (tiles.size() == 0) return;
    float* answers = run.at<float>(answers_at);
    uint64_t at = hidden_panels;
    for (uint32_t e = 0; e < experts; ++e) {
      const Range pairs = pairs_of(run, e);
      if (pairs.size() == 0) continue;
      multiply(run, {w, e, w.matrix(e), run.at<std::byte>(at), pairs.size()},
               answers + pairs.first * out_stride, out_stride, tiles, 0);
      at += panel_bytes(type, ff, pairs.size());
    }
    for (int64_t t = 0; t < n; ++t) sum(run, t, columns, answers);
  }

  void sum(const Run& run, int64_t t, Range columns, const float* answers) const {
    float* y = run.slot(out).row(t);
    std::fill(y + columns.first, y + columns.last, 0.0f);
    const Choice* chosen = choices_of(run, routing, t);
    for (uint32_t k = 0; k < used; ++k) {
      const int64_t place = run.at<int32_t>(place_at)[t * used + k];
      run.vectors.axpy(chosen[k].weight * params.scale,
                       answers + place * out_stride + columns.first, columns.size(),
                       y + columns.first);
    }
    if (residual != PN_NO16)
      run.vectors.add(y + columns.first, run.slot(residual).row(t) + columns.first, columns.size(),
                      y + columns.first);
  }
};

bool plan_weights(Builder& b, Experts* op) {
  const pn_op& from = b.op().op;
  const bool fused = (op->params.flags & PN_MLP_FUSED) != 0;
  if ((op->params.flags & ~PN_MLP_FUSED) != 0) return b.refuse("flags %#x", op->params.flags);
  if (!activation_known(op->params.activation))
    return b.refuse("activation %u", op->params.activation);
  if (fused && op->ff % kTileRows != 0)
    return b.refuse("fused gate and up of %lld rows each; a multiple of 16 is needed",
                    static_cast<long long>(op->ff));
  if (fused && b.has_weight(1)) return b.refuse("weight[1] beside a fused weight[0]");
  if (!b.matrix(0, op->width, fused ? 2 * op->ff : op->ff, "gate", op->experts) ||
      (!fused && !b.matrix(1, op->width, op->ff, "up", op->experts)) ||
      !b.matrix(2, op->ff, op->out_width, "down", op->experts))
    return false;
  if (!fused && b.weight(from.weight[0]).source_type != b.weight(from.weight[1]).source_type)
    return b.refuse("gate experts of type %u, up experts of type %u; one type is needed",
                    b.weight(from.weight[0]).source_type, b.weight(from.weight[1]).source_type);
  return true;
}

void plan_work(Builder& b, Experts* op) {
  const pn_op& from = b.op().op;
  const int64_t rows = b.plan.slot_rows(from.in[0]);
  const int64_t pairs = rows * op->used, live = std::min<int64_t>(pairs, op->experts);
  const auto floats = [&](int64_t stride) {
    return b.work.take(static_cast<uint64_t>(pairs * stride) * sizeof(float));
  };
  // A panel may pad its rows; each live expert's panel pads by less than a panel of one row.
  const auto panels = [&](uint32_t type, int64_t cols) {
    return b.work.take(panel_bytes(type, cols, pairs) +
                       static_cast<uint64_t>(live) * panel_bytes(type, cols, 1));
  };
  op->norm = b.norms[from.in[0]];
  op->alone.plan(b, from.in[0], from.weight, 1, 1);
  op->starts_at = b.work.take((uint64_t{op->experts} + 1) * sizeof(int64_t));
  op->order_at = b.work.take(static_cast<uint64_t>(pairs) * sizeof(int32_t));
  op->place_at = b.work.take(static_cast<uint64_t>(pairs) * sizeof(int32_t));
  op->in_panels = panels(b.weight(op->gate).source_type, op->width);
  op->hidden_panels = panels(b.weight(op->down).source_type, op->ff);
  op->ff_stride = (op->ff + 15) / 16 * 16;
  op->out_stride = (op->out_width + 15) / 16 * 16;
  op->gate_rows_at = floats(op->ff_stride);
  op->up_rows_at = floats(op->ff_stride);
  op->answers_at = floats(op->out_stride);
  op->buffer_step = static_cast<uint64_t>((op->width + 15) / 16 * 16) * sizeof(float);
  op->buffer_at = b.work.take(op->buffer_step * b.threads);
}

}  // namespace

std::unique_ptr<Op> build_router(Builder& b) {
  const pn_op& op = b.op().op;
  auto router = std::make_unique<Router>();
  router->params = b.op().as<pn_op_router>();
  const pn_op_router& p = router->params;
  if (!b.input(0, 0, kAnyRows)) return nullptr;
  router->rows_kind = b.slot(op.in[0]).rows;
  if (p.gating < PN_GATE_SOFTMAX || p.gating > PN_GATE_SOFTMAX_SELECTED)
    return b.refuse("gating %u", p.gating), nullptr;
  if (p.used == 0 || p.used > p.experts)
    return b.refuse("%u of %u experts", p.used, p.experts), nullptr;
  if (!b.output(0, p.used, router->rows_kind) || !b.nothing_else(1, 1, 1) ||
      !b.matrix(0, b.slot(op.in[0]).width, p.experts, "router"))
    return nullptr;
  if (b.slot(op.out[0]).kind != PN_SLOT_INTERNAL)
    return b.refuse("a routing slot cannot leave the program"), nullptr;
  for (uint32_t reader : b.readers[op.out[0]])
    if (b.plan.ops[reader].op.op != PN_OP_EXPERTS)
      return b.refuse("only EXPERTS can read a routing slot"), nullptr;
  router->weight = op.weight[0];
  router->out = op.out[0];
  b.row_floats[op.out[0]] = int64_t{p.used} * 2;  // expert and weight
  const int64_t rows = b.plan.slot_rows(op.in[0]);
  router->panels.plan(b, op.in[0], op.weight, 1, rows);
  router->stride = (int64_t{p.experts} + 15) / 16 * 16;
  router->logits_at = b.work.take(static_cast<uint64_t>(rows * router->stride) * sizeof(float));
  return router;
}

std::unique_ptr<Op> build_experts(Builder& b) {
  const pn_op& op = b.op().op;
  auto experts = std::make_unique<Experts>();
  Experts& e = *experts;
  e.params = b.op().as<pn_op_mlp>();
  if (!b.input(0, 0, kAnyRows)) return nullptr;
  e.rows_kind = b.slot(op.in[0]).rows;
  e.width = b.slot(op.in[0]).width;
  if (!b.input(1, 0, e.rows_kind) || !b.output(0, 0, e.rows_kind) || !b.nothing_else(3, 1, 3))
    return nullptr;
  e.used = b.slot(op.in[1]).width;
  if (b.row_floats[op.in[1]] != int64_t{e.used} * 2)
    return b.refuse("in[1] is slot %u, which no ROUTER has written", op.in[1]), nullptr;
  if (!b.has_weight(2)) return b.refuse("weight[2] (down) is missing"), nullptr;
  e.out_width = b.slot(op.out[0]).width;
  e.ff = b.weight(op.weight[2]).shape[0];
  e.experts = static_cast<uint32_t>(b.weight(op.weight[2]).shape[2]);
  if (!plan_weights(b, &e)) return nullptr;
  if (b.has_input(2) && !b.input(2, e.out_width, e.rows_kind)) return nullptr;
  e.gate = op.weight[0];
  e.up = op.weight[1];
  e.down = op.weight[2];
  e.routing = op.in[1];
  e.residual = op.in[2];
  e.out = op.out[0];
  plan_work(b, &e);
  e.in = e.norm.folded ? e.norm.source : op.in[0];
  return experts;
}

}  // namespace pn::cpu
