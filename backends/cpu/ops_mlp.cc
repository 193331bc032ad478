// SPDX-License-Identifier: Apache-2.0
//
// MLP: out = g * scale * Wd(act(Wg x) * Wu x) + residual, in two parallel phases.
//
// Phase one: gate and up of the same columns and their activation, so the hidden row is written
// once. Phase two: down and the residual. One barrier between, one at the end.
#include "backends/cpu/prepare.h"

namespace pn::cpu {
namespace {

class Mlp final : public Op {
 public:
  Panels in, hidden;
  pn_op_mlp params = {};
  uint16_t gate = PN_NO16, up = PN_NO16, down = PN_NO16, branch = PN_NO16;
  uint16_t residual = PN_NO16, out = PN_NO16;
  uint32_t rows_kind = PN_ROWS_TOKENS, open_claim = 0, close_claim = 0;
  int64_t ff = 0, stride = 0;  // hidden width, floats between its rows
  uint64_t gate_rows_at = 0, up_rows_at = 0, branch_at = 0;  // work offsets

  void run(const Run& run, uint32_t thread) const override {
    const int64_t n = run.count(rows_kind);
    const Panels::Made made = in.run(run, thread, n);
    if (branch != PN_NO16) gates(run, thread, n);
    if (n > 0)
      share(run, thread, open_claim, tile_count(ff), n,
            [&](Range tiles) { open(run, made, n, tiles); });
    run.barrier();
    const Rows h = {run.at<float>(gate_rows_at), stride, ff};
    const Panels::Made packed = hidden.run(run, thread, h, n);
    if (n > 0)
      share(run, thread, close_claim, tile_count(run.slot(out).width), n,
            [&](Range tiles) { close(run, packed, n, tiles); });
    run.barrier();
  }

 private:
  bool fused() const { return (params.flags & PN_MLP_FUSED) != 0; }

  // sigmoid(w_g . x), a token each.
  void gates(const Run& run, uint32_t thread, int64_t n) const {
    const Range part = split(n, thread, run.threads);
    const Weight& w = run.weight(branch);
    for (int64_t i = part.first; i < part.last; ++i) {
      const float dot = run.vectors.dot(w.values(), in.row(run, thread, i), w.info.shape[0]);
      run.at<float>(branch_at)[i] = activate(PN_ACT_SIGMOID, dot);
    }
  }

  void open(const Run& run, const Panels::Made& made, int64_t n, Range tiles) const {
    const Range columns = columns_of(tiles, ff);
    float* g = run.at<float>(gate_rows_at);
    float* u = run.at<float>(up_rows_at);
    const Weight& wg = run.weight(gate);
    if (fused()) {
      // Gate rows, then up rows, of one matrix; ff is a multiple of 16 (checked at build).
      const Matrix all = wg.matrix();
      const Matrix top = rows_of(all, 0, ff), bottom = rows_of(all, ff, ff);
      run.matmul.matmul(top, made.of(all.type), n, g, stride, tiles.first, tiles.last);
      run.matmul.matmul(bottom, made.of(all.type), n, u, stride, tiles.first, tiles.last);
      finish_columns(run, wg, 0, {g, stride, n, columns.first, columns.last});
      finish_columns(run, wg, 0, {u - ff, stride, n, ff + columns.first, ff + columns.last});
    } else {
      run.matmul.matmul(wg.matrix(), made.of(wg.info.source_type), n, g, stride, tiles.first,
                        tiles.last);
      finish_columns(run, wg, 0, {g, stride, n, columns.first, columns.last});
      if (up != PN_NO16) {
        const Weight& wu = run.weight(up);
        run.matmul.matmul(wu.matrix(), made.of(wu.info.source_type), n, u, stride, tiles.first,
                          tiles.last);
        finish_columns(run, wu, 0, {u, stride, n, columns.first, columns.last});
      }
    }
    const Activation act = {params.activation, params.limit, params.alpha};
    const bool gated = fused() || up != PN_NO16;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * stride + columns.first;
      gate_rows(run.vectors, act, gated ? u + at : nullptr, columns.size(), g + at);
    }
  }

  void close(const Run& run, const Panels::Made& made, int64_t n, Range tiles) const {
    const Weight& w = run.weight(down);
    const Matrix matrix = w.matrix();
    const Range columns = columns_of(tiles, matrix.rows);
    const Rows y = run.slot(out);
    run.matmul.matmul(matrix, made.of(matrix.type), n, y.data, y.stride, tiles.first, tiles.last);
    finish_columns(run, w, 0, {y.data, y.stride, n, columns.first, columns.last});
    for (int64_t i = 0; i < n; ++i) {
      float* row = y.row(i);
      float scale = params.scale;
      if (branch != PN_NO16) scale *= run.at<float>(branch_at)[i];
      if (scale != 1.0f)
        for (int64_t c = columns.first; c < columns.last; ++c) row[c] *= scale;
      if (residual != PN_NO16)
        run.vectors.add(row + columns.first, run.slot(residual).row(i) + columns.first,
                        columns.size(), row + columns.first);
    }
  }
};

}  // namespace

std::unique_ptr<Op> build_mlp(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows) || !b.has_weight(2)) {
    b.refuse("weight[2] (down) is missing");
    return nullptr;
  }
  auto mlp = std::make_unique<Mlp>();
  mlp->params = b.op().as<pn_op_mlp>();
  const pn_op_mlp& params = mlp->params;
  const int64_t width = b.slot(op.in[0]).width;
  mlp->rows_kind = b.slot(op.in[0]).rows;
  mlp->ff = b.weight(op.weight[2]).shape[0];
  const bool fused = (params.flags & PN_MLP_FUSED) != 0;
  if ((params.flags & ~PN_MLP_FUSED) != 0) return b.refuse("flags %#x", params.flags), nullptr;
  if (!activation_known(params.activation))
    return b.refuse("activation %u", params.activation), nullptr;
  if (fused && mlp->ff % kTileRows != 0)
    return b.refuse("fused gate and up of %lld rows each; a multiple of 16 is needed",
                    static_cast<long long>(mlp->ff)),
           nullptr;
  if (fused && b.has_weight(1)) return b.refuse("weight[1] beside a fused weight[0]"), nullptr;
  if (params.activation == PN_ACT_SWIGLU_OAI && !fused && !b.has_weight(1))
    return b.refuse("SWIGLU_OAI needs up rows"), nullptr;
  if (!b.matrix(0, width, fused ? 2 * mlp->ff : mlp->ff, fused ? "gate and up" : "gate") ||
      (b.has_weight(1) && !b.matrix(1, width, mlp->ff, "up")))
    return nullptr;
  const int64_t out_width = op.out[0] == PN_NO16 ? width : b.slot(op.out[0]).width;
  if (!b.output(0, out_width, mlp->rows_kind) || !b.matrix(2, mlp->ff, out_width, "down") ||
      !b.nothing_else(2, 1, 4))
    return nullptr;
  if (b.has_weight(3) && !b.vector(op.weight[3], width, "branch gate")) return nullptr;
  if (b.has_input(1) && !b.input(1, out_width, mlp->rows_kind)) return nullptr;
  mlp->open_claim = b.claim();
  mlp->close_claim = b.claim();
  mlp->gate = op.weight[0];
  mlp->up = op.weight[1];
  mlp->down = op.weight[2];
  mlp->branch = op.weight[3];
  mlp->residual = op.in[1];
  mlp->out = op.out[0];
  const int64_t rows = b.plan.slot_rows(op.in[0]);
  mlp->stride = (mlp->ff + 15) / 16 * 16;
  const uint64_t bytes = static_cast<uint64_t>(rows * mlp->stride) * sizeof(float);
  mlp->in.plan(b, op.in[0], op.weight, 2, rows);
  mlp->hidden.plan(b, PN_NO16, op.weight + 2, 1, rows);
  mlp->gate_rows_at = b.work.take(bytes);
  mlp->up_rows_at = b.work.take(bytes);
  mlp->branch_at = b.work.take(static_cast<uint64_t>(rows) * sizeof(float));
  return mlp;
}

}  // namespace pn::cpu
