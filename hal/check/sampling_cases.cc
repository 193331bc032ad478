// SPDX-License-Identifier: Apache-2.0
//
// Group ops: pn_lane's sampling, id by id against the reference. What the plugin does not offer is
// not asked for.
#include <algorithm>
#include <cstring>

#include "hal/check/emit_rig.h"

namespace pn::check {

namespace {

// The rig, or empty (and the bench told) when one of `features` is not offered.
Result<EmitRig> rig_with(Bench& bench, uint32_t features) {
  PN_TRY(EmitRig rig, EmitRig::make(bench));
  if (!rig) return rig;
  PN_TRY(const pn_sampler_info info, rig.pair().ours->side().device().sampler());
  if ((info.features & features) == features) return rig;
  bench.unsupported(
      fmt::format("pantheon.sampler/1 offers {:#x}, this needs {:#x}", info.features, features));
  return EmitRig{};
}

Result<bool> same_ids(Bench& bench, EmitRig& rig, Steps& steps, const std::string& where) {
  PN_TRY(rig.run(steps));
  bool same = true;
  for (uint32_t r = 0; r < steps.rows.size(); ++r) {
    const int32_t got = rig.ours(steps, r).result.id, want = rig.theirs(steps, r).result.id;
    same = bench.expect(got == want, "{}, row {}: id {}, wanted {}", where, r, got, want) && same;
  }
  return same;
}

Result<void> seeds(Bench& bench) {
  PN_TRY(EmitRig rig, rig_with(bench, PN_SAMPLES_TEMPERATURE));
  if (!rig) return {};
  PN_TRY(rig.fill(bench.seed(1), 3));
  uint64_t state = bench.seed(2);
  for (uint32_t round = 0; round < (bench.quick() ? 12u : 40u); ++round) {
    Steps steps = rig.rows_of_all(PN_ROW_SAMPLE);
    for (pn_lane& lane : steps.lanes) {
      lane.temperature = 0.8f;
      lane.seed = round == 0 ? lane.lane : random_bits(state);
    }
    for (pn_entry& entry : steps.entries) entry.position = round + entry.lane;
    PN_TRY(same_ids(bench, rig, steps, fmt::format("round {}", round)));
  }
  return {};
}

Result<void> filters(Bench& bench) {
  PN_TRY(EmitRig rig, rig_with(bench, PN_SAMPLES_TEMPERATURE));
  if (!rig) return {};
  struct Filter {
    const char* name;
    float temperature;
    uint32_t top_k;
    float top_p, min_p;
  };
  constexpr Filter kFilters[] = {{"temperature 0.3", 0.3f, 0, 1, 0},
                                 {"temperature 2", 2, 0, 1, 0},
                                 {"top_k 1", 1, 1, 1, 0},
                                 {"top_k 4", 1.5f, 4, 1, 0},
                                 {"top_p 0.5", 1, 0, 0.5f, 0},
                                 {"top_p 0.95", 1, 0, 0.95f, 0},
                                 {"min_p 0.2", 2, 0, 1, 0.2f},
                                 {"min_p 1", 2, 0, 1, 1},
                                 {"all three", 1.2f, 40, 0.9f, 0.05f},
                                 {"top_p 0", 1, 0, 0, 0}};
  PN_TRY(rig.fill(bench.seed(3), 4));
  uint64_t state = bench.seed(4);
  for (const Filter& f : kFilters) {
    for (uint32_t round = 0; round < (bench.quick() ? 3u : 8u); ++round) {
      Steps steps = rig.rows_of_all(PN_ROW_SAMPLE);
      for (pn_lane& lane : steps.lanes) {
        lane.temperature = f.temperature;
        lane.top_k = f.top_k;
        lane.top_p = f.top_p;
        lane.min_p = f.min_p;
        lane.seed = random_bits(state);
      }
      PN_TRY(same_ids(bench, rig, steps, f.name));
    }
  }
  return {};
}

// Logits whose best few are the tokens of the history, so that each penalty moves the choice.
Result<void> fill_contest(EmitRig& rig, uint64_t seed) {
  std::vector<std::vector<float>> rows(rig.rows(), random_values(kEmitVocab, seed, 1));
  for (auto& row : rows) {
    row[10] = 8.0f, row[20] = 7.7f, row[30] = 7.4f, row[40] = 7.1f, row[50] = 6.8f;
    row[4999] = -0.5f;
  }
  return rig.fill(rows);
}

constexpr int32_t kPast[] = {10, 20, 10, 30, 10, 20, 40};

// One lane that has seen kPast; the row is at the last token.
Steps after_past(uint32_t lane_number) {
  Steps steps;
  steps.lane(lane_number);
  steps.entry(lane_number, 0, kPast);
  steps.row(0, std::size(kPast) - 1, PN_ROW_SAMPLE);
  return steps;
}

Result<void> penalties(Bench& bench) {
  PN_TRY(EmitRig rig, rig_with(bench, PN_SAMPLES_GREEDY | PN_SAMPLES_PENALTIES));
  if (!rig) return {};
  PN_TRY(fill_contest(rig, bench.seed(5)));
  struct Penalty {
    const char* name;
    float repeat, presence, frequency;
    uint32_t tokens, from;
  };
  constexpr Penalty kPenalties[] = {
      {"repeat", 1.3f, 0, 0, 64, 0},          {"presence", 1, 2, 0, 64, 0},
      {"frequency", 1, 0, 0.25f, 64, 0},      {"the last 2 tokens", 1.5f, 0, 0, 2, 0},
      {"from position 5", 1.5f, 0, 0, 64, 5}, {"no tokens", 1.5f, 2, 1, 0, 0},
      {"all", 1.1f, 0.5f, 0.2f, 5, 2},        {"negative", 1, -1, 0, 3, 0}};
  for (const Penalty& p : kPenalties) {
    Steps steps = after_past(1);
    pn_lane& lane = steps.lanes[0];
    lane.repeat_penalty = p.repeat;
    lane.presence_penalty = p.presence;
    lane.frequency_penalty = p.frequency;
    lane.penalty_tokens = p.tokens;
    lane.penalty_from = p.from;
    steps.row(0, 3, PN_ROW_SAMPLE);  // sees the history up to its own token
    PN_TRY(same_ids(bench, rig, steps, p.name));
  }
  return {};
}

Result<void> history(Bench& bench) {
  PN_TRY(EmitRig rig, rig_with(bench, PN_SAMPLES_GREEDY | PN_SAMPLES_PENALTIES));
  if (!rig) return {};
  PN_TRY(fill_contest(rig, bench.seed(6)));
  const auto punish = [](pn_lane& lane) {
    lane.presence_penalty = 2;
    lane.penalty_tokens = 64;
  };
  // A reused prefix comes as history.
  Steps sent;
  pn_lane& lane = sent.lane(2);
  punish(lane);
  lane.history_token = 1;
  lane.history_count = 3;
  lane.history_position = 0;
  sent.tokens = {20, 10, 20, 30};  // the first is not part of it
  const int32_t one[] = {7};
  sent.entry(2, 3, one);
  sent.row(0, 0, PN_ROW_SAMPLE);
  PN_TRY(same_ids(bench, rig, sent, "history sent with the lane"));
  // It stays over runs, and going back forgets what followed.
  Steps more;
  const int32_t fourth[] = {40};
  more.entry(2, 4, fourth);
  more.row(0, 0, PN_ROW_SAMPLE);
  PN_TRY(same_ids(bench, rig, more, "the next run"));
  Steps back;
  const int32_t other[] = {50};
  back.entry(2, 1, other);
  back.row(0, 0, PN_ROW_SAMPLE);
  PN_TRY(same_ids(bench, rig, back, "back at position 1"));
  return {};
}

Result<void> bias(Bench& bench) {
  PN_TRY(EmitRig rig, rig_with(bench, PN_SAMPLES_GREEDY | PN_SAMPLES_BIAS));
  if (!rig) return {};
  PN_TRY(fill_contest(rig, bench.seed(7)));
  struct Add {
    int32_t id;
    float add;
  };
  const Add adds[] = {{10, -3}, {20, -0.2f}, {4999, 9}, {10, 1.0f}};
  PN_TRY(rig.write_list(adds, sizeof adds));
  for (const uint32_t count : {1u, 2u, 3u, 4u}) {
    Steps steps = after_past(0);
    steps.lanes[0].bias_count = count;
    steps.lanes[0].bias = {{}, 0, count * sizeof(Add)};
    PN_TRY(same_ids(bench, rig, steps, fmt::format("{} pairs", count)));
  }
  Steps off = after_past(0);
  PN_TRY(same_ids(bench, rig, off, "without bias again"));
  return {};
}

Result<void> mask(Bench& bench) {
  PN_TRY(EmitRig rig,
         rig_with(bench, PN_SAMPLES_GREEDY | PN_SAMPLES_MASK_BITS | PN_SAMPLES_MASK_LIST));
  if (!rig) return {};
  PN_TRY(fill_contest(rig, bench.seed(8)));
  std::vector<uint32_t> words((kEmitVocab + 31) / 32);
  for (const uint32_t id : {20u, 33u, 4999u}) words[id / 32] |= 1u << id % 32;
  const std::vector<int32_t> list = {10, 20, 30};
  std::vector<std::byte> bytes(8192);
  std::memcpy(bytes.data(), words.data(), words.size() * 4);
  std::memcpy(bytes.data() + 4096, list.data(), list.size() * 4);
  PN_TRY(rig.write_list(bytes.data(), bytes.size()));
  struct Form {
    const char* name;
    uint32_t form, count;
    uint64_t offset;
  };
  const Form forms[] = {{"BITS", PN_MASK_BITS, static_cast<uint32_t>(words.size()), 0},
                        {"ALLOW", PN_MASK_ALLOW, 3, 4096},
                        {"DENY", PN_MASK_DENY, 3, 4096},
                        {"DENY of two", PN_MASK_DENY, 2, 4096},
                        {"none", PN_MASK_NONE, 0, 0}};
  for (const Form& f : forms) {
    Steps steps = after_past(3);
    pn_row& row = steps.rows[0];
    row.mask_form = f.form;
    row.mask_count = f.count;
    if (f.count != 0) row.mask = {{}, f.offset, uint64_t{f.count} * 4};
    PN_TRY(same_ids(bench, rig, steps, f.name));
  }
  return {};
}

Result<void> hold(Bench& bench) {
  PN_TRY(EmitRig rig, rig_with(bench, PN_SAMPLES_GREEDY | PN_SAMPLES_HOLD));
  if (!rig) return {};
  PN_TRY(rig.fill(bench.seed(9), 5));
  Steps held = rig.rows_of_all(0);
  held.rows.clear();
  held.row(2, 1, PN_ROW_SAMPLE | PN_ROW_HOLD).id_slot = 0;
  held.row(0, 1, PN_ROW_SAMPLE | PN_ROW_HOLD).id_slot = 1;
  held.row(1, 0, PN_ROW_SAMPLE);
  PN_TRY(rig.run(held));
  for (const uint32_t r : {0u, 1u})
    bench.expect(rig.ours(held, r).result.id == -1, "a held row has id {}, wanted -1",
                 rig.ours(held, r).result.id);
  Steps draw;
  draw.row(2, 1, PN_ROW_SAMPLE).id_slot = 0;
  draw.row(0, 1, PN_ROW_SAMPLE).id_slot = 1;
  PN_TRY(rig.run(draw, PN_CMD_SAMPLE));
  for (const uint32_t r : {0u, 1u})
    bench.expect(rig.ours(draw, r).result.id == rig.theirs(draw, r).result.id,
                 "row {}, drawn later: id {}, wanted {}", r, rig.ours(draw, r).result.id,
                 rig.theirs(draw, r).result.id);
  PN_TRY(const auto ids, rig.pair().ours->read_ids());
  bench.expect(ids[2 * 2 + 0] == rig.ours(draw, 0).result.id, "ids[2][0] is {}, wanted {}",
               ids[2 * 2 + 0], rig.ours(draw, 0).result.id);
  return {};
}

constexpr Case kCases[] = {
    {"ops/seeds", "pn_lane", "draws by seed and position alone", seeds},
    {"ops/filters", "pn_lane", "temperature, top_k, top_p, min_p", filters},
    {"ops/penalties", "pn_lane", "repeat, presence, frequency, over the right tokens", penalties},
    {"ops/history", "pn_lane", "histories sent with a lane; going back forgets", history},
    {"ops/bias", "pn_lane", "bias pairs", bias},
    {"ops/mask", "pn_row", "BITS, ALLOW, DENY", mask},
    {"ops/hold", "pn_row", "HOLD, then SAMPLE", hold},
};

}  // namespace

std::span<const Case> sampling_cases() { return kCases; }

}  // namespace pn::check
