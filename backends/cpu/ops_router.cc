// SPDX-License-Identifier: Apache-2.0
//
// ROUTER: which experts a token goes to, and how much each counts.
//
// The logits are one small product; a token's choices are then made by one thread.
#include "backends/cpu/routing.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/prepare.h"

namespace pn::cpu {
namespace {

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
  if (p.used == 0 || p.used > p.experts || p.used > kUsedMax)
    return b.refuse("%u of %u experts; %u at most", p.used, p.experts, kUsedMax), nullptr;
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

}  // namespace pn::cpu
