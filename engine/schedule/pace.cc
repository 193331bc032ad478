// SPDX-License-Identifier: Apache-2.0
//
// The two figures behind a nap: how long a step should take, and how long it has been running.
// Owns the constants; reads no clock.
#include "engine/schedule/pace.h"

#include <algorithm>

namespace pn::engine {
namespace {

// Timer and wake-up together cost 60-100 us on a loaded 2-core host (EPYC 7003, 1 us slack), so
// the nap ends this much early. Staying awake for longer than that buys nothing: the next step is
// queued already.
constexpr uint64_t kEarlyNs = 50'000;
constexpr uint64_t kNapMinNs = 20'000;
// A late step is looked at about 64 times a step's length: each look costs 10-15 us on that host,
// and on one that is overrun by other work steps come a whole length late.
constexpr uint64_t kLooksPerStep = 64;
constexpr uint64_t kNapMaxNs = 5'000'000;
constexpr uint64_t kSleepMaxNs = 1'000'000'000;

}  // namespace

Pace::Pace(const std::vector<uint64_t>& predicted_ns) : means_(predicted_ns.size()) {
  for (size_t i = 0; i < means_.size(); ++i) means_[i] = {predicted_ns[i], 0, true};
}

void Pace::measured(uint32_t shape, uint32_t tokens, uint64_t ns) {
  Mean& mean = means_[shape];
  if (mean.ns == 0 || mean.predicted) {
    mean = {ns, tokens, false};
    return;
  }
  // Follows within 8 steps; half-filled chunks count by their tokens.
  uint64_t scaled = tokens == mean.tokens || tokens == 0 ? ns : ns * mean.tokens / tokens;
  mean.ns = (mean.ns * 7 + scaled) / 8;
}

uint64_t Pace::expected_ns(uint32_t shape, uint32_t tokens) const {
  const Mean& mean = means_[shape];
  if (mean.tokens == 0 || tokens == 0) return mean.ns;
  return mean.ns * tokens / mean.tokens;
}

uint64_t Pace::nap_ns(uint64_t expected, uint64_t elapsed) {
  if (elapsed + 2 * kEarlyNs < expected) {
    return std::min(expected - elapsed - kEarlyNs, kSleepMaxNs);
  }
  if (elapsed < expected + kEarlyNs && expected > 0) return 0;
  uint64_t late = elapsed - expected;
  uint64_t most = std::clamp(std::max(expected, elapsed) / kLooksPerStep, kNapMinNs, kNapMaxNs);
  return std::clamp(late / 4, kNapMinNs, most);
}

}  // namespace pn::engine
