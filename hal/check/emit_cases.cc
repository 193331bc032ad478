// SPDX-License-Identifier: Apache-2.0
//
// Group ops: what EMIT gives for a row of logits that is known to the last bit.
//
// Logits come in through a bound slot, so ids are compared by equality and never by luck.
#include <cmath>
#include <cstring>
#include <limits>

#include "hal/check/emit_rig.h"

namespace pn::check {

namespace {

Result<void> emit(Bench& bench) {
  Plan plan;
  plan.shapes = {{16, 4, 8, 64}};
  const uint16_t logits = plan.slot(301, PN_SLOT_INPUT, PN_ROWS_OUT);
  const uint16_t hidden = plan.slot(48, PN_SLOT_INPUT, PN_ROWS_OUT);
  pn_op& op = plan.op(PN_OP_EMIT, pn_op_emit{0, 290});  // the last 11 columns are padding
  op.in[0] = logits;
  op.in[1] = hidden;
  PN_TRY(Pair pair, make_pair(bench, plan));
  if (!pair) return bench.unsupported(pair.unsupported), Result<void>{};
  auto values = random_values(8 * 301, bench.seed(1), 5);
  for (int r = 0; r < 8; ++r) values[r * 301 + 295] = 99;  // past vocab: never drawn, never summed
  const auto states = random_values(8 * 48, bench.seed(2));
  Steps steps;
  steps.lane(0), steps.lane(2);
  steps.entry(2, 0, 5), steps.entry(0, 0, 3);
  steps.row(0, 4, PN_ROW_SAMPLE | PN_ROW_LOGITS | PN_ROW_HIDDEN).top = 3;
  steps.row(0, 1, PN_ROW_LOGITS);
  steps.row(1, 2, PN_ROW_HIDDEN);
  steps.row(1, 0, PN_ROW_SAMPLE | PN_ROW_HIDDEN);
  for (Rig* rig : {pair.ours.get(), pair.theirs.get()}) {
    PN_TRY(rig->write_slot(logits, values));
    PN_TRY(rig->write_slot(hidden, states));
    PN_TRY(rig->side().fill(rig->results(), 0xee));
    PN_TRY(rig->run(steps));
  }
  for (uint32_t r = 0; r < 4; ++r) {
    const Rig::RowData row = pair.ours->row(steps, r);
    const auto same = [&](const std::vector<float>& got, const float* want) {
      return got.empty() || std::memcmp(got.data(), want, got.size() * 4) == 0;
    };
    bench.expect(same(row.logits, values.data() + r * 301), "row {}: logits are not raw", r);
    bench.expect(same(row.hidden, states.data() + r * 48), "row {}: another hidden row", r);
  }
  const auto got = pair.ours->row(steps, 3), want = pair.theirs->row(steps, 3);
  bench.expect(got.result.id == want.result.id, "row 3: id {}, wanted {}", got.result.id,
               want.result.id);
  return {};
}

Result<void> result(Bench& bench) {
  PN_TRY(EmitRig rig, EmitRig::make(bench));
  if (!rig) return {};
  PN_TRY(rig.fill(bench.seed(3), 6));
  Steps steps = rig.rows_of_all(PN_ROW_SAMPLE);
  for (pn_row& row : steps.rows) row.top = 5;
  PN_TRY(rig.run(steps));
  for (uint32_t r = 0; r < rig.rows(); ++r) {
    const pn_result got = rig.ours(steps, r).result, want = rig.theirs(steps, r).result;
    bench.expect(std::fabs(got.log_sum - want.log_sum) < 1e-4f, "row {}: log_sum {}, wanted {}", r,
                 got.log_sum, want.log_sum);
    bench.expect(std::fabs(got.logprob - want.logprob) < 1e-4f, "row {}: logprob {}, wanted {}", r,
                 got.logprob, want.logprob);
    bench.expect(got.top == 5, "row {}: it says {} candidates, 5 were asked for", r, got.top);
  }
  return {};
}

Result<void> argmax(Bench& bench) {
  PN_TRY(EmitRig rig, EmitRig::make(bench));
  if (!rig) return {};
  // Ties at both ends, across vector and block borders, all negative, and -inf.
  std::vector<std::vector<float>> rows(rig.rows(), random_values(kEmitVocab, bench.seed(4), 5));
  rows[0][7] = rows[0][kEmitVocab - 1] = 50;
  rows[1][4095] = rows[1][4096] = rows[1][64] = 50;
  for (float& v : rows[2]) v = -100 - std::fabs(v);
  rows[2][4097] = -99;
  rows[3].assign(kEmitVocab, 1.5f);
  rows[4].assign(kEmitVocab, -std::numeric_limits<float>::infinity());
  rows[4][33] = rows[4][4500] = -3;
  rows[5][kEmitVocab - 1] = 60;
  rows[6][0] = 60;
  PN_TRY(rig.fill(rows));
  Steps steps = rig.rows_of_all(PN_ROW_SAMPLE);
  PN_TRY(rig.run(steps));
  const int32_t wanted[] = {7, 64, 4097, 0, 33, static_cast<int32_t>(kEmitVocab) - 1, 0};
  for (uint32_t r = 0; r < 7; ++r) {
    const int32_t id = rig.ours(steps, r).result.id;
    bench.expect(id == wanted[r], "row {}: id {}, wanted {} (the lowest of the largest)", r, id,
                 wanted[r]);
  }
  return {};
}

Result<void> top(Bench& bench) {
  PN_TRY(EmitRig rig, EmitRig::make(bench));
  if (!rig) return {};
  std::vector<std::vector<float>> rows(rig.rows(), random_values(kEmitVocab, bench.seed(5), 5));
  for (float& v : rows[1]) v = std::round(v);  // hundreds of ties
  rows[2].assign(kEmitVocab, 0.25f);
  PN_TRY(rig.fill(rows));
  uint32_t most = 64;
  PN_TRY(const pn_sampler_info info, rig.pair().ours->side().device().sampler());
  if (info.top_max != 0) most = std::min(most, info.top_max);
  for (const uint32_t count : {1u, 5u, most}) {
    Steps steps = rig.rows_of_all(PN_ROW_SAMPLE);
    for (pn_row& row : steps.rows) row.top = std::min(count, most);
    PN_TRY(rig.run(steps));
    for (uint32_t r = 0; r < rig.rows(); ++r) {
      const auto got = rig.ours(steps, r).top, want = rig.theirs(steps, r).top;
      for (uint32_t i = 0; i < got.size(); ++i) {
        if (got[i].id == want[i].id && got[i].logit == want[i].logit) continue;
        bench.fail(fmt::format("row {}, candidate {} of {}: id {} logit {}, wanted id {} logit {}",
                               r, i, count, got[i].id, got[i].logit, want[i].id, want[i].logit));
        break;
      }
    }
  }
  return {};
}

Result<void> not_finite(Bench& bench) {
  PN_TRY(EmitRig rig, EmitRig::make(bench));
  if (!rig) return {};
  std::vector<std::vector<float>> rows(rig.rows(), random_values(kEmitVocab, bench.seed(6), 5));
  rows[0][0] = rows[1][kEmitVocab - 1] = rows[2][4321] = NAN;
  rows[3][17] = std::numeric_limits<float>::infinity();
  PN_TRY(rig.fill(rows));
  Steps steps = rig.rows_of_all(PN_ROW_SAMPLE);
  PN_TRY(rig.run(steps));
  for (uint32_t r = 0; r < 5; ++r) {
    const pn_result got = rig.ours(steps, r).result;
    if (r == 4) {
      bench.expect(got.id >= 0, "a finite row beside them gives id {}", got.id);
      continue;
    }
    bench.expect(got.id == -1, "row {} is not finite, yet its id is {}, wanted -1", r, got.id);
    bench.expect(std::isnan(got.log_sum), "row {}: log_sum is {}, wanted NaN", r, got.log_sum);
  }
  return {};
}

constexpr Case kCases[] = {
    {"ops/emit", "EMIT", "raw logits and hidden rows in the contract's order", emit},
    {"ops/result", "EMIT", "logprob, log_sum, top", result},
    {"ops/argmax", "EMIT", "temperature 0: the largest, the lowest id on a tie", argmax},
    {"ops/top", "EMIT", "candidates by falling logit, then rising id", top},
    {"ops/not_finite", "EMIT", "a logit that is not finite gives id -1", not_finite},
};

}  // namespace

std::span<const Case> emit_cases() { return kCases; }

}  // namespace pn::check
