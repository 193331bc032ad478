// SPDX-License-Identifier: Apache-2.0
//
// Work that lasts: copies between two buffers, as many as a wanted time takes on this die.
//
// Owns the buffers and the commands. The one idea: the time is measured before it is used, so that
// what a case sees is a share of it.
#pragma once

#include <chrono>
#include <vector>

#include "hal/check/side.h"

namespace pn::check {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start);

constexpr uint64_t kWorkBytes = 8 << 20;

struct LongWork {
  hal::Buffer a, b;  // kWorkBytes each; a is copied to b, again and again
  std::vector<pn_command> commands;
  double ms = 0;  // what it took when alone

  pn_submit submit(uint64_t value) const;  // points into commands
};

// At least `ms` long, unless that takes more than 512 copies.
Result<LongWork> long_work(Side& side, double ms);
pn_command copy_of(const pn_slice& from, const pn_slice& to);

}  // namespace pn::check
