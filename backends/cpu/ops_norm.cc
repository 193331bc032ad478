// SPDX-License-Identifier: Apache-2.0
//
// NORM where its result is stored: over groups, or read by something that is no matrix. Norms that
// only matrices read are folded into them (compile.cc) and never come here.
#include "backends/cpu/prepare.h"

namespace pn::cpu {
namespace {

class Norm final : public Op {
 public:
  pn_op_norm params = {};
  uint16_t in = PN_NO16, out = PN_NO16, weight = PN_NO16;
  uint32_t rows_kind = PN_ROWS_TOKENS;
  int64_t group = 0;

  void run(const Run& run, uint32_t thread) const override {
    const Rows x = run.slot(in), y = run.slot(out);
    const NormRow norm = norm_of(run, weight, params, group);
    const Range part = split(run.count(rows_kind), thread, run.threads);
    for (int64_t i = part.first; i < part.last; ++i)
      for (int64_t at = 0; at < x.width; at += group)
        norm_row(run.vectors, norm, x.row(i) + at, y.row(i) + at);
    run.barrier();
  }
};

}  // namespace

std::unique_ptr<Op> build_norm(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, kAnyRows)) return nullptr;
  auto norm = std::make_unique<Norm>();
  norm->params = b.op().as<pn_op_norm>();
  const int64_t width = b.slot(op.in[0]).width;
  norm->rows_kind = b.slot(op.in[0]).rows;
  norm->group = norm->params.group == 0 ? width : norm->params.group;
  if (norm->params.kind > PN_NORM_L2) return b.refuse("norm kind %u", norm->params.kind), nullptr;
  if (width % norm->group != 0)
    return b.refuse("groups of %u in rows of %lld", norm->params.group,
                    static_cast<long long>(width)),
           nullptr;
  if (!b.output(0, width, norm->rows_kind) || !b.nothing_else(1, 1, 1)) return nullptr;
  norm->weight = op.weight[0];
  if (norm->weight != PN_NO16) {
    if (!b.vector(norm->weight, norm->group, "norm weight")) return nullptr;
    const uint16_t bias = b.weight(norm->weight).bias;
    if (bias != PN_NO16 && !b.vector(bias, norm->group, "norm bias")) return nullptr;
  }
  norm->in = op.in[0];
  norm->out = op.out[0];
  return norm;
}

}  // namespace pn::cpu
