// SPDX-License-Identifier: Apache-2.0
//
// LINEAR: out = cap(scale * W x) + residual, one pass over the tiles of each thread.
//
// Rows are prepared (through a folded norm), multiplied, and finished in the columns the thread
// wrote, while they are in its cache.
#include <cmath>

#include "backends/cpu/prepare.h"

namespace pn::cpu {
namespace {

class Linear final : public Op {
 public:
  Panels panels;
  pn_op_linear params = {};
  uint16_t weight = PN_NO16, residual = PN_NO16, out = PN_NO16;
  uint32_t rows_kind = PN_ROWS_TOKENS, claim = 0;

  void run(const Run& run, uint32_t thread) const override {
    const int64_t n = run.count(rows_kind);
    const Weight& w = run.weight(weight);
    const Matrix matrix = w.matrix();
    const Panels::Made made = panels.run(run, thread, n);
    const Rows y = run.slot(out);
    if (n > 0)
      share(run, thread, claim, tile_count(matrix.rows), n, [&](Range tiles) {
        run.matmul.matmul(matrix, made.of(matrix.type), n, y.data, y.stride, tiles.first,
                          tiles.last);
        finish(run, w, y, columns_of(tiles, matrix.rows), n);
      });
    run.barrier();
  }

 private:
  void finish(const Run& run, const Weight& w, const Rows& y, Range columns, int64_t n) const {
    finish_columns(run, w, 0, {y.data, y.stride, n, columns.first, columns.last});
    for (int64_t i = 0; i < n; ++i) {
      float* row = y.row(i);
      if (params.scale != 1.0f)
        for (int64_t c = columns.first; c < columns.last; ++c) row[c] *= params.scale;
      if (params.softcap != 0.0f)
        for (int64_t c = columns.first; c < columns.last; ++c)
          row[c] = params.softcap * std::tanh(row[c] / params.softcap);
      if (residual != PN_NO16)
        run.vectors.add(row + columns.first, run.slot(residual).row(i) + columns.first,
                        columns.size(), row + columns.first);
    }
  }
};

}  // namespace

std::unique_ptr<Op> build_linear(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows) || !b.output(0, 0, kAnyRows)) return nullptr;
  auto linear = std::make_unique<Linear>();
  linear->params = b.op().as<pn_op_linear>();
  linear->out = op.out[0];
  linear->rows_kind = b.slot(op.in[0]).rows;
  const uint32_t width = b.slot(op.out[0]).width;
  if (!b.output(0, width, linear->rows_kind) || !b.nothing_else(2, 1, 1) ||
      !b.matrix(0, b.slot(op.in[0]).width, width, "LINEAR"))
    return nullptr;
  if (b.has_input(1)) {
    if (!b.input(1, width, linear->rows_kind)) return nullptr;
    if (b.norms[op.in[1]].folded) return b.refuse("in[1] is a norm that is not stored"), nullptr;
    linear->residual = op.in[1];
  }
  linear->weight = op.weight[0];
  linear->claim = b.claim();
  linear->panels.plan(b, op.in[0], op.weight, 1, b.plan.slot_rows(op.in[0]));
  return linear;
}

}  // namespace pn::cpu
