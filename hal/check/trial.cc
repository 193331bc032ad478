// SPDX-License-Identifier: Apache-2.0
//
// See trial.h.
#include "hal/check/trial.h"

#include <numeric>

namespace pn::check {

Steps spread(uint32_t tokens, std::vector<uint32_t>* position, uint32_t vocab, uint64_t seed) {
  struct Share {
    uint32_t lane, count;
  };
  std::vector<Share> shares;
  if (tokens < 3) {
    shares = {{2, tokens}};
  } else if (tokens < 16) {
    shares = {{3, tokens / 2}, {1, tokens - tokens / 2}};
  } else {
    shares = {{1, tokens / 2 - 1}, {0, 1}, {3, tokens - tokens / 2}};
  }
  Steps steps;
  for (const Share& share : shares) {
    std::vector<int32_t> ids(share.count);
    for (int32_t& id : ids)
      if (vocab != 0) id = static_cast<int32_t>(random_bits(seed) % vocab);
    uint32_t& at = (*position)[share.lane];
    steps.entry(share.lane, at, ids);
    at += share.count;
  }
  return steps;
}

uint32_t dealt_page(const Plan& plan, uint32_t cache, uint32_t lane, uint32_t index) {
  const uint32_t units = plan.caches[cache].units_per_lane, all = units * plan.lanes;
  uint32_t stride = 7;
  while (std::gcd(stride, all) != 1) ++stride;
  return ((lane * units + index) * stride + 3) % all;
}

void deal_pages(const Plan& plan, Steps* steps) {
  for (uint32_t c = 0; c < plan.caches.size(); ++c) {
    if (plan.caches[c].kind != PN_CACHE_PAGED) continue;
    for (uint32_t lane = 0; lane < plan.lanes; ++lane)
      for (uint32_t i = 0; i < plan.caches[c].units_per_lane; ++i)
        steps->page(lane, i, dealt_page(plan, c, lane, i), 1, c);
  }
}

Result<void> Trials::add(Trial trial) {
  ++tried_;
  if (trial.plan.shapes.empty()) trial.plan.shapes = {kTrialShape};
  PN_TRY(Pair pair, make_pair(bench_, trial.plan));
  if (!pair) {
    if (left_out_.size() < 600) left_out_ += "; " + trial.name + ": " + pair.unsupported;
    return {};
  }
  ++supported_;
  return compare_runs(trial, pair);
}

Result<void> Trials::compare_runs(Trial& trial, Pair& pair) {
  std::vector<uint32_t> position(trial.plan.lanes);
  uint64_t use = 1000 * tried_;
  for (size_t run = 0; run < trial.tokens.size(); ++run) {
    const uint32_t tokens = trial.tokens[run];
    for (const uint16_t slot : trial.inputs) {
      const auto values = random_values(uint64_t{tokens} * trial.plan.slots[slot].width,
                                        bench_.seed(++use), trial.scale);
      PN_TRY(pair.ours->write_slot(slot, values));
      PN_TRY(pair.theirs->write_slot(slot, values));
    }
    Steps steps = spread(tokens, &position, trial.vocab, bench_.seed(++use));
    if (run == 0) deal_pages(trial.plan, &steps);
    PN_TRY(pair.ours->run(steps));
    PN_TRY(pair.theirs->run(steps));
    for (const uint16_t slot : trial.outputs) {
      PN_TRY(const auto got, pair.ours->read_slot(slot, tokens));
      PN_TRY(const auto want, pair.theirs->read_slot(slot, tokens));
      const double tolerance = trial.tolerance != 0 ? trial.tolerance : pair.ours->tolerance();
      const std::string where =
          fmt::format("{}, run {} of {} tokens, slot {} of width {}", trial.name, run, tokens, slot,
                      trial.plan.slots[slot].width);
      bench_.close(got, want, tolerance, where);
    }
  }
  PN_TRY(const std::string touched, pair.ours->touched_guard());
  bench_.expect(touched.empty(), "{}: writes past the end of {}", trial.name, touched);
  return {};
}

Result<void> Trials::finish() {
  const std::string why = left_out_.empty() ? "" : left_out_.substr(2);
  if (supported_ == 0) bench_.unsupported(why);
  if (supported_ != 0 && supported_ < tried_)
    bench_.note(fmt::format("{} of {} forms; unsupported: {}", supported_, tried_, why));
  return {};
}

}  // namespace pn::check
