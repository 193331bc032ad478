// SPDX-License-Identifier: Apache-2.0
//
// EXPERTS: the sum of what a token's chosen experts answer.
//
// The (token, choice) pairs are sorted by expert, so each chosen expert's tiles are read once for
// all its rows. A thread has the same columns of every expert and adds a token's answers in the
// order of its choices: the sum's bits do not depend on who else chose the expert. A decode step's
// single row has its choices as pairs already and is packed by every thread for itself: two
// barriers, not five.
#include <algorithm>
#include <cmath>

#include "backends/cpu/prepare.h"
#include "backends/cpu/routing.h"

namespace pn::cpu {
namespace {

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
  uint64_t in_panels = 0, hidden_panels = 0, one_panels = 0;
  uint64_t gate_rows_at = 0, up_rows_at = 0, answers_at = 0;
  uint64_t buffer_at = 0, buffer_step = 0;

  void run(const Run& run, uint32_t thread) const override {
    const int64_t n = run.count(rows_kind);
    if (n == 1) return run_one(run, thread);
    if (thread == 0) sort_pairs(run, n);
    run.barrier();
    prepare_rows(run, thread, run.weight(gate).info.source_type, true);
    run.barrier();
    uint64_t at = in_panels;
    each_expert(run, [&](uint32_t e, Range pairs) {
      const uint32_t type = run.weight(gate).info.source_type;
      open(run, thread, {e, pairs.first, pairs.size(), run.at<std::byte>(at)});
      at += panel_bytes(type, width, pairs.size());
    });
    run.barrier();
    prepare_rows(run, thread, run.weight(down).info.source_type, false);
    run.barrier();
    at = hidden_panels;
    each_expert(run, [&](uint32_t e, Range pairs) {
      close(run, thread, {e, pairs.first, pairs.size(), run.at<std::byte>(at)});
      at += panel_bytes(run.weight(down).info.source_type, ff, pairs.size());
    });
    const auto* place = run.at<int32_t>(place_at);
    for (int64_t t = 0; t < n; ++t) sum(run, thread, t, place + t * used);
    run.barrier();
  }

 private:
  // Rows of one expert: `rows` pairs from `first` on in the sorted order, with their panel.
  struct Part {
    uint32_t expert;
    int64_t first, rows;
    const std::byte* panel;
  };

  void run_one(const Run& run, uint32_t thread) const {
    const Choice* chosen = choices_of(run, routing, 0);
    const Panels::Made made = alone.run(run, thread, 1);
    const std::byte* panel = made.of(run.weight(gate).info.source_type);
    for (uint32_t k = 0; k < used; ++k)
      open(run, thread, {static_cast<uint32_t>(chosen[k].expert), k, 1, panel});
    run.barrier();
    const uint32_t type = run.weight(down).info.source_type;
    std::byte* own = run.at<std::byte>(one_panels + thread * panel_bytes(type, ff, 1));
    int32_t place[kUsedMax];
    for (uint32_t k = 0; k < used; ++k) {
      const float* h = run.at<float>(gate_rows_at) + int64_t{k} * ff_stride;
      run.matmul.prepare(type, {h, 0, ff, 1}, own, 0, 1);
      close(run, thread, {static_cast<uint32_t>(chosen[k].expert), k, 1, own});
      place[k] = static_cast<int32_t>(k);
    }
    sum(run, thread, 0, place);
    run.barrier();
  }

  bool fused() const { return (params.flags & PN_MLP_FUSED) != 0; }
  int64_t* starts(const Run& run) const { return run.at<int64_t>(starts_at); }
  Range pairs_of(const Run& run, int64_t e) const { return {starts(run)[e], starts(run)[e + 1]}; }
  template <typename Visit>
  void each_expert(const Run& run, Visit&& visit) const {
    for (uint32_t e = 0; e < experts; ++e)
      if (pairs_of(run, e).size() > 0) visit(e, pairs_of(run, e));
  }

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
  void prepare_rows(const Run& run, uint32_t thread, uint32_t type, bool inputs) const {
    const Range mine = split(starts(run)[experts], thread, run.threads);
    const int64_t cols = inputs ? width : ff;
    uint64_t at = inputs ? in_panels : hidden_panels;
    each_expert(run, [&](uint32_t, Range pairs) {
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
    });
  }

  const float* input_row(const Run& run, uint32_t thread, int64_t t) const {
    if (!norm.folded) return run.slot(in).row(t);
    float* buffer = run.at<float>(buffer_at + thread * buffer_step);
    norm_row(run.vectors, norm_of(run, norm.weight, norm.params, width), run.slot(in).row(t),
             buffer);
    return buffer;
  }

  // y (rows, stride): the thread's columns of one expert's product, scale and bias applied. The
  // matrix may be the lower half of a fused one: its bias stands `shift` rows on.
  static void multiply(const Run& run, const Weight& w, const Matrix& matrix, const Part& part,
                       const Rows& y, Range tiles, int64_t shift) {
    run.matmul.matmul(matrix, part.panel, part.rows, y.data, y.stride, tiles.first, tiles.last);
    const Range columns = columns_of(tiles, matrix.rows);
    finish_columns(
        run, w, part.expert,
        {y.data - shift, y.stride, part.rows, columns.first + shift, columns.last + shift});
  }

  // Gate, up and activation of one expert's rows, in the thread's columns.
  void open(const Run& run, uint32_t thread, const Part& part) const {
    const Range tiles = split(tile_count(ff), thread, run.threads);
    const Range columns = columns_of(tiles, ff);
    if (tiles.size() == 0) return;
    const Rows g = {run.at<float>(gate_rows_at) + part.first * ff_stride, ff_stride, ff};
    const Rows u = {run.at<float>(up_rows_at) + part.first * ff_stride, ff_stride, ff};
    const Weight& wg = run.weight(gate);
    const Matrix all = wg.matrix(part.expert);
    if (fused()) {
      multiply(run, wg, rows_of(all, 0, ff), part, g, tiles, 0);
      multiply(run, wg, rows_of(all, ff, ff), part, u, tiles, ff);
    } else {
      multiply(run, wg, all, part, g, tiles, 0);
      const Weight& wu = run.weight(up);
      multiply(run, wu, wu.matrix(part.expert), part, u, tiles, 0);
    }
    const Activation act = {params.activation, params.limit, params.alpha};
    for (int64_t i = 0; i < part.rows; ++i)
      gate_rows(run.vectors, act, u.row(i) + columns.first, columns.size(),
                g.row(i) + columns.first);
  }

  // Down of one expert's rows, in the thread's columns of the answers.
  void close(const Run& run, uint32_t thread, const Part& part) const {
    const Weight& w = run.weight(down);
    const Range tiles = split(tile_count(out_width), thread, run.threads);
    if (tiles.size() == 0) return;
    const Rows y = {run.at<float>(answers_at) + part.first * out_stride, out_stride, out_width};
    multiply(run, w, w.matrix(part.expert), part, y, tiles, 0);
  }

  // A token's answers, each at its place in the order, in the order of its choices.
  void sum(const Run& run, uint32_t thread, int64_t t, const int32_t* place) const {
    const Range tiles = split(tile_count(out_width), thread, run.threads);
    const Range columns = columns_of(tiles, out_width);
    float* y = run.slot(out).row(t);
    std::fill(y + columns.first, y + columns.last, 0.0f);
    const Choice* chosen = choices_of(run, routing, t);
    for (uint32_t k = 0; k < used; ++k)
      run.vectors.axpy(chosen[k].weight * params.scale,
                       run.at<float>(answers_at) + place[k] * out_stride + columns.first,
                       columns.size(), y + columns.first);
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
  op->one_panels = b.work.take(panel_bytes(b.weight(op->down).source_type, op->ff, 1) * b.threads);
  op->ff_stride = (op->ff + 15) / 16 * 16;
  op->out_stride = (op->out_width + 15) / 16 * 16;
  op->gate_rows_at = floats(op->ff_stride);
  op->up_rows_at = floats(op->ff_stride);
  op->answers_at = floats(op->out_stride);
  op->buffer_step = static_cast<uint64_t>((op->width + 15) / 16 * 16) * sizeof(float);
  op->buffer_at = b.work.take(op->buffer_step * b.threads);
}

}  // namespace

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
  for (const PlanOp& other : b.plan.ops) {
    const bool router = other.op.op == PN_OP_ROUTER && other.op.out[0] == op.in[1];
    if (router && other.as<pn_op_router>().experts != e.experts)
      return b.refuse("a router of %u experts before a stack of %u",
                      other.as<pn_op_router>().experts, e.experts),
             nullptr;
  }
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
