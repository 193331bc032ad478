// SPDX-License-Identifier: Apache-2.0
//
// See emit_rig.h.
#include "hal/check/emit_rig.h"

namespace pn::check {

Result<EmitRig> EmitRig::make(Bench& bench) {
  EmitRig rig;
  Plan plan;
  plan.lanes = 4;
  plan.ids_depth = 2;
  plan.shapes = {{32, 4, kEmitRows, kEmitContext}};
  rig.logits_ = plan.slot(kEmitVocab, PN_SLOT_INPUT, PN_ROWS_OUT);
  plan.op(PN_OP_EMIT, pn_op_emit{0, kEmitVocab}).in[0] = rig.logits_;
  PN_TRY(rig.pair_, make_pair(bench, plan));
  if (!rig) {
    bench.unsupported(rig.pair_.unsupported);
    return rig;
  }
  Rig* const sides[] = {rig.pair_.ours.get(), rig.pair_.theirs.get()};
  for (int i = 0; i < 2; ++i) {
    PN_TRY(rig.lists_[i], sides[i]->side().place(1 << 16));
  }
  return rig;
}

Result<void> EmitRig::fill(uint64_t seed, float scale) {
  std::vector<std::vector<float>> rows;
  for (uint32_t r = 0; r < kEmitRows; ++r)
    rows.push_back(random_values(kEmitVocab, seed + r, scale));
  return fill(rows);
}

Result<void> EmitRig::fill(const std::vector<std::vector<float>>& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  PN_TRY(pair_.ours->write_slot(logits_, all));
  return pair_.theirs->write_slot(logits_, all);
}

Steps EmitRig::rows_of_all(uint32_t flags) const {
  Steps steps;
  for (uint32_t lane = 0; lane < 4; ++lane) {
    steps.lane(lane);
    const int32_t ids[] = {static_cast<int32_t>(lane) + 1, static_cast<int32_t>(lane) + 40};
    steps.entry(lane, 0, ids);
    steps.row(lane, 0, flags);
    steps.row(lane, 1, flags).id_slot = (flags & PN_ROW_SAMPLE) != 0 ? 1 : PN_NONE;
  }
  return steps;
}

Result<void> EmitRig::write_list(const void* from, uint64_t bytes) {
  PN_TRY(pair_.ours->side().write(lists_[0], 0, from, bytes));
  return pair_.theirs->side().write(lists_[1], 0, from, bytes);
}

Result<void> EmitRig::run(Steps& steps, uint32_t kind) {
  Rig* const sides[] = {pair_.ours.get(), pair_.theirs.get()};
  for (int i = 0; i < 2; ++i) {
    for (pn_lane& lane : steps.lanes)
      if (lane.bias_count != 0) lane.bias.buffer = lists_[i].handle();
    for (pn_row& row : steps.rows)
      if (row.mask_count != 0) row.mask.buffer = lists_[i].handle();
    PN_TRY(sides[i]->run(steps, 0, kind));
  }
  return {};
}

}  // namespace pn::check
