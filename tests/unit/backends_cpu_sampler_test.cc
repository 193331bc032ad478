// SPDX-License-Identifier: Apache-2.0
//
// EMIT and the sampler of the CPU plugin: published Philox vectors, and every setting against a
// slow, obvious sampler written here.
//
// Knows the step's formulas only. Logits come in through a bound slot, so a test says exactly what
// is sampled from.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "backends/cpu/sampler.h"
#include "tests/support/cpu_host.h"

using namespace pn::test;

namespace {

constexpr uint32_t kVocab = 5003;  // two parts of the scan, the last ragged

// A program that emits rows of an input slot.
struct Sampler {
  CpuHost host;
  PlanBuilder plan;
  uint16_t logits;
  std::unique_ptr<CpuProgram> program;
  CpuHost::Memory lists;

  explicit Sampler(uint32_t vocab = kVocab, const char* threads = "2")
      : host(HostOptions{{"threads", threads}}) {
    plan.lanes = 4;
    plan.ids_depth = 2;
    plan.shapes = {{16, 4, 8, 64}};
    logits = plan.slot(vocab, PN_SLOT_INPUT, PN_ROWS_OUT);
    plan.op(PN_OP_EMIT, pn_op_emit{0, vocab}).in[0] = logits;
    program = std::make_unique<CpuProgram>(host, plan);
    lists = host.allocate(1 << 16);
  }
  float* row(uint32_t r) { return program->slot(logits) + r * plan.slots[logits].width; }
  void fill(const std::vector<float>& values) {
    for (uint32_t r = 0; r < 8; ++r) memcpy(row(r), values.data(), values.size() * 4);
  }
  pn_slice target(uint32_t r) { return program->results().slice(r * 65536, 65536); }
  pn_result result(uint32_t r) {
    pn_result out;
    memcpy(&out, program->results().host + r * 65536, sizeof(out));
    return out;
  }
  void run(const Steps& steps) {
    std::string message;
    const pn_status status = program->run(steps.view(), 0, &message);
    REQUIRE_MESSAGE(status == PN_OK, message);
  }
  // Draws one token of lane 0 whose setup `lane` is, after `past` tokens.
  int32_t draw(const pn_lane& lane, const std::vector<int32_t>& past = {0}) {
    Steps steps;
    steps.lanes.push_back(lane);
    steps.entry(0, 0, past);
    steps.row(0, static_cast<uint32_t>(past.size()) - 1, PN_ROW_SAMPLE, target(0)).id_slot = 1;
    run(steps);
    CHECK(program->ids()[1] == result(0).id);
    return result(0).id;
  }
};

pn_lane setup(float temperature, uint64_t seed = 1) {
  Steps steps;
  pn_lane lane = steps.lane(0, temperature);
  lane.seed = seed;
  lane.flags = PN_LANE_RESET;
  return lane;
}

// The formulas, slowly: everything sorted, everything in double.
int32_t slow_draw(std::vector<float> logits, const pn_lane& lane, uint32_t position) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (lane.temperature == 0) return order[0];
  if (lane.top_k != 0 && lane.top_k < order.size()) order.resize(lane.top_k);
  std::vector<double> p;
  double total = 0;
  for (int32_t id : order) {
    p.push_back(std::exp((double{logits[id]} - logits[order[0]]) / lane.temperature));
    total += p.back();
  }
  if (lane.top_p < 1) {
    double running = 0;
    size_t keep = 0;
    while (keep < p.size() && running < lane.top_p * total) running += p[keep++];
    p.resize(std::max<size_t>(1, keep));
  }
  while (p.back() < lane.min_p) p.pop_back();
  total = 0;
  for (double v : p) total += v;
  const double target = pn::cpu::draw_of(lane.seed, position) * total;
  double running = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    running += p[i];
    if (running > target) return order[i];
  }
  return order[p.size() - 1];
}

}  // namespace

TEST_CASE("cpu sampler: Philox4x32-10 gives the published words") {
  struct Case {
    uint32_t counter[4], key[2], want[4];
  };
  const Case cases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) {
    const pn::cpu::Philox got = pn::cpu::philox4x32_10(c.counter, c.key);
    CHECK(memcmp(got.word, c.want, sizeof(got.word)) == 0);
  }
  CHECK(pn::cpu::draw_of(0, 0) == (0x6627e8d5u >> 8) * 0x1p-24);
}

TEST_CASE("cpu sampler: greedy takes the lowest of equal ids, and says its log probability") {
  Sampler s;
  std::vector<float> logits = random_values(kVocab, 3, 4.0f);
  logits[4900] = logits[17] = logits[4101] = 9.0f;
  s.fill(logits);
  CHECK(s.draw(setup(0)) == 17);
  double sum = 0;
  for (float v : logits) sum += std::exp(double{v});
  CHECK(s.result(0).log_sum == doctest::Approx(std::log(sum)).epsilon(1e-6));
  CHECK(s.result(0).logprob == doctest::Approx(9.0 - std::log(sum)).epsilon(1e-5));
}

TEST_CASE("cpu sampler: each cut-off agrees with the slow sampler, draw for draw") {
  Sampler s;
  const std::vector<float> logits = random_values(kVocab, 5, 6.0f);
  s.fill(logits);
  struct Case {
    float temperature, top_p, min_p;
    uint32_t top_k;
  };
  int checked = 0;
  for (const Case& c : {Case{1, 1, 0, 0},
                        {0.7f, 1, 0, 40},
                        {1.5f, 0.9f, 0, 0},
                        {1, 1, 0.05f, 0},
                        {2, 0.8f, 0.1f, 300},
                        {5, 1, 0, 0},
                        {1, 0, 0, 0},
                        {1, 0.5f, 0, 4000}}) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      pn_lane lane = setup(c.temperature, seed * 0x9e3779b97f4a7c15u);
      lane.top_p = c.top_p;
      lane.min_p = c.min_p;
      lane.top_k = c.top_k;
      const std::vector<int32_t> past(seed % 7 + 1, 0);
      CHECK(s.draw(lane, past) == slow_draw(logits, lane, static_cast<uint32_t>(past.size())));
      ++checked;
    }
  }
  CHECK(checked == 240);
}

TEST_CASE("cpu sampler: draws follow the distribution") {
  Sampler s(4);
  s.fill({std::log(0.1f), std::log(0.2f), std::log(0.3f), std::log(0.4f)});
  int counts[4] = {};
  for (uint64_t seed = 0; seed < 2000; ++seed) ++counts[s.draw(setup(1, seed))];
  // 2000 draws: a deviation of 4 standard errors is below 90.
  for (int i = 0; i < 4; ++i) CHECK(std::abs(counts[i] - 200 * (i + 1)) < 90);
}

TEST_CASE("cpu sampler: penalties count the window, from where they may") {
  Sampler s;
  std::vector<float> logits(kVocab, 0.0f);
  logits[10] = 5, logits[11] = 4.9f, logits[12] = -1;
  s.fill(logits);
  pn_lane lane = setup(0);
  lane.penalty_tokens = 3;
  CHECK(s.draw(lane, {10, 11, 11}) == 10);  // no penalty set
  lane.presence_penalty = 0.5f;
  CHECK(s.draw(lane, {10, 12, 12}) == 11);
  CHECK(s.draw(lane, {10, 12, 12, 12}) == 10);  // 10 has left the window
  lane.penalty_from = 1;
  CHECK(s.draw(lane, {10, 12, 12}) == 10);
  lane = setup(0);
  lane.penalty_tokens = 64;
  lane.frequency_penalty = 0.06f;
  CHECK(s.draw(lane, {10, 10, 11}) == 10);  // 5 - 0.12 against 4.9 - 0.06
  CHECK(s.draw(lane, {10, 10, 10, 11}) == 11);
  lane = setup(0);
  lane.penalty_tokens = 64;
  lane.repeat_penalty = 2;
  CHECK(s.draw(lane, {10, 11}) == 10);
  CHECK(s.draw(lane, {10, 3}) == 11);
  s.fill(std::vector<float>(kVocab, -2.0f));
  CHECK(s.draw(lane, {0, 1, 2}) == 3);  // a negative logit is multiplied
}

TEST_CASE("cpu sampler: history sent with a lane counts, and going back forgets") {
  Sampler s;
  std::vector<float> logits(kVocab, 0.0f);
  logits[10] = 5, logits[11] = 4.9f;
  s.fill(logits);
  pn_lane lane = setup(0);
  lane.penalty_tokens = 64;
  lane.presence_penalty = 1;
  Steps steps;
  steps.tokens = {10, 7};
  lane.history_count = 2;
  steps.lanes.push_back(lane);
  steps.entry(0, 2, {3});
  steps.row(0, 0, PN_ROW_SAMPLE, s.target(0)).id_slot = PN_NONE;
  s.run(steps);
  CHECK(s.result(0).id == 11);
  Steps back;  // position 0 again: the 10 there is overwritten
  back.entry(0, 0, {4});
  back.row(0, 0, PN_ROW_SAMPLE, s.target(0)).id_slot = PN_NONE;
  s.run(back);
  CHECK(s.result(0).id == 10);
}

TEST_CASE("cpu sampler: bias and masks") {
  Sampler s;
  std::vector<float> logits = random_values(kVocab, 8);
  logits[100] = 3, logits[5002] = 2.5f;
  s.fill(logits);
  struct Pair {
    int32_t id;
    float add;
  };
  const Pair pairs[] = {{200, 30}, {100, -1}, {kVocab + 5, 99}, {-3, 99}};
  memcpy(s.lists.host, pairs, sizeof(pairs));
  pn_lane lane = setup(0);
  lane.bias_count = 4;
  lane.bias = s.lists.slice(0, sizeof(pairs));
  CHECK(s.draw(lane) == 200);
  const auto masked = [&](uint32_t form, const void* data, uint32_t count) {
    memcpy(s.lists.host + 4096, data, count * 4);
    Steps steps;
    steps.lanes.push_back(setup(0));
    steps.entry(0, 0, {0});
    pn_row& row = steps.row(0, 0, PN_ROW_SAMPLE, s.target(0));
    row.id_slot = PN_NONE;
    row.mask_form = form;
    row.mask_count = count;
    row.mask = s.lists.slice(4096, count == 0 ? 4 : count * 4);
    s.run(steps);
    return s.result(0).id;
  };
  const int32_t deny[] = {100}, allow[] = {7, 100000, 5002, -1};
  CHECK(masked(PN_MASK_DENY, deny, 1) == 5002);
  CHECK(masked(PN_MASK_ALLOW, allow, 4) == 5002);
  CHECK(masked(PN_MASK_ALLOW, allow, 1) == 7);
  CHECK(masked(PN_MASK_ALLOW, allow, 0) == -1);
  std::vector<uint32_t> bits((kVocab + 31) / 32, 0);
  bits[0] = 1u << 9;
  CHECK(masked(PN_MASK_BITS, bits.data(), static_cast<uint32_t>(bits.size())) == 9);
  bits[5002 / 32] |= 1u << (5002 % 32);
  CHECK(masked(PN_MASK_BITS, bits.data(), static_cast<uint32_t>(bits.size())) == 5002);
  bits.assign(bits.size(), 0);
  CHECK(masked(PN_MASK_BITS, bits.data(), static_cast<uint32_t>(bits.size())) == -1);
  CHECK(std::isnan(s.result(0).logprob));
}

TEST_CASE("cpu sampler: candidates, logits, and a row that is not finite") {
  Sampler s;
  const std::vector<float> logits = random_values(kVocab, 8);
  s.fill(logits);
  s.row(1)[77] = NAN;
  s.row(2)[77] = INFINITY;
  s.row(3)[77] = -INFINITY;
  Steps steps;
  steps.entry(0, 0, {0, 0});
  steps.entry(1, 0, {0, 0});
  steps.row(0, 0, PN_ROW_SAMPLE | PN_ROW_LOGITS, s.target(0)).top = 5;
  steps.row(0, 1, PN_ROW_SAMPLE, s.target(1));
  steps.row(1, 0, PN_ROW_SAMPLE, s.target(2));
  steps.row(1, 1, PN_ROW_SAMPLE, s.target(3)).top = 1000;
  for (pn_row& row : steps.rows) row.id_slot = 0;
  s.run(steps);
  std::vector<std::pair<float, int32_t>> sorted;
  for (uint32_t i = 0; i < kVocab; ++i) sorted.push_back({-logits[i], static_cast<int32_t>(i)});
  std::sort(sorted.begin(), sorted.end());
  const auto* top = reinterpret_cast<const pn_candidate*>(s.program->results().host + 16);
  CHECK(s.result(0).top == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(top[i].id == sorted[i].second);
    CHECK(top[i].logit == -sorted[i].first);
  }
  CHECK(memcmp(top + 5, logits.data(), kVocab * 4) == 0);
  CHECK(s.result(1).id == -1);
  CHECK(std::isnan(s.result(1).log_sum));
  CHECK(s.result(2).id == -1);
  CHECK(s.result(3).id == sorted[0].second);
  const auto* many =
      reinterpret_cast<const pn_candidate*>(s.program->results().host + 3 * 65536 + 16);
  CHECK(many[999].id == sorted[999].second);
  // Two rows name id slot 0 of lane 0: the later one's id stays.
  CHECK(s.program->ids()[0] == -1);
  CHECK(s.program->ids()[2] == sorted[0].second);
}

TEST_CASE("cpu sampler: a held row is drawn later, with a mask") {
  Sampler s;
  std::vector<float> logits = random_values(kVocab, 8);
  s.fill(logits);
  Steps steps;
  steps.lanes.push_back(setup(0));
  steps.entry(0, 0, {0, 1, 2});
  steps.row(0, 2, PN_ROW_SAMPLE | PN_ROW_HOLD, s.target(0)).id_slot = 1;
  s.run(steps);
  CHECK(s.result(0).id == -1);
  s.fill(std::vector<float>(kVocab, 1.0f));  // the held logits are the program's own copy
  const int32_t allow[] = {40, 41};
  memcpy(s.lists.host, allow, sizeof(allow));
  Steps later;
  pn_row& row = later.row(0, 2, PN_ROW_SAMPLE, s.target(0));
  row.id_slot = 1;
  row.mask_form = PN_MASK_ALLOW;
  row.mask_count = 2;
  row.mask = s.lists.slice(0, 8);
  REQUIRE(s.program->sample(later.view()) == PN_OK);
  CHECK(s.result(0).id == (logits[40] >= logits[41] ? 40 : 41));
  CHECK(s.program->ids()[1] == s.result(0).id);
  later.rows[0].token = 1;
  std::string message;
  CHECK(s.program->sample(later.view(), &message) == PN_FAILED);
  CHECK(message.find("not held") != std::string::npos);
}

TEST_CASE("cpu sampler: the draw depends on seed and position only") {
  std::vector<int32_t> first;
  for (const char* threads : {"1", "3"}) {
    Sampler s(kVocab, threads);
    s.fill(random_values(kVocab, 8, 3.0f));
    std::vector<int32_t> got;
    for (uint32_t lane = 0; lane < 4; ++lane) {
      Steps steps;
      for (uint32_t l = 0; l < 4; ++l) {
        pn_lane set = setup(1, 99);
        set.lane = l;
        steps.lanes.push_back(set);
        steps.entry(l, l == lane ? 12 : 20 + l, {0});
        steps.row(l, 0, PN_ROW_SAMPLE, s.target(l)).id_slot = 0;
      }
      s.run(steps);
      got.push_back(s.result(lane).id);
    }
    for (int32_t id : got) CHECK(id == got[0]);
    if (first.empty()) first = got;
    CHECK(got == first);
  }
}

TEST_CASE("cpu sampler: a fed -1 spoils the row also where another die embeds") {
  Sampler s;
  s.fill(random_values(kVocab, 8));
  s.program->ids()[0] = -1;
  s.program->ids()[2] = 5;
  Steps steps;
  for (uint32_t lane : {0u, 1u}) {
    steps.entry(lane, 0, {0});
    steps.entries[lane].flags = PN_ENTRY_FEED;
    steps.entries[lane].token = 0;
    steps.row(lane, 0, PN_ROW_SAMPLE, s.target(lane)).id_slot = 1;
  }
  s.run(steps);
  CHECK(s.result(0).id == -1);
  CHECK(s.program->ids()[1] == -1);
  CHECK(s.result(1).id >= 0);
}

TEST_CASE("cpu sampler: more rows than can be held are refused at submit") {
  CpuHost host(HostOptions{{"threads", "1"}});
  PlanBuilder plan;
  plan.shapes = {{2, 1, 2, 16}};
  const uint16_t logits = plan.slot(8, PN_SLOT_INPUT, PN_ROWS_OUT);
  plan.op(PN_OP_EMIT, pn_op_emit{0, 8}).in[0] = logits;
  CpuProgram program(host, plan);
  Steps steps;
  steps.entry(0, 0, {1, 2});
  for (uint32_t r : {0u, 1u})
    steps.row(0, r, PN_ROW_SAMPLE | PN_ROW_HOLD, program.results().slice(r * 64, 64)).id_slot = 0;
  std::string message;
  CHECK(program.run(steps.view(), 0, &message) == PN_INVALID);
  CHECK(message.find("row 1: 1 rows can be held") != std::string::npos);
  steps.rows.pop_back();
  CHECK(program.run(steps.view(), 0, &message) == PN_OK);
}
