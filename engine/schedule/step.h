// SPDX-License-Identifier: Apache-2.0
//
// The arrays of one step, sized once: entries, tokens, page edits, lane setups, rows.
//
// Owns their memory and the pn_step over them. Knows neither sequences nor results; says nothing
// about what should run. The one idea: a step is written into the same few kilobytes again and
// again, since the HAL keeps nothing after a submit returns.
//
// Used on the scheduler's thread only; allocates in the constructor and never again.
#pragma once

#include <pantheon/hal.h>

#include <cstdint>
#include <span>
#include <vector>

namespace pn::engine {

class StepArrays {
 public:
  struct Limits {
    uint32_t tokens = 0;   // of one shape
    uint32_t lanes = 0;    // entries, rows and setups are at most one a lane
    uint32_t history = 0;  // tokens of history that setups may add
    uint32_t pages = 0;    // page edits
    uint64_t bytes = 0;    // all arrays together; 0 no bound
  };
  explicit StepArrays(const Limits& limits);

  void clear();
  // Room left under every limit for one more entry of count tokens with edits page edits.
  bool fits(uint32_t count, uint32_t edits, bool given_tokens) const;

  // Each returns the index of what was added.
  uint32_t feed(uint32_t lane, uint32_t position);  // one token, the lane's last id on the device
  uint32_t give(uint32_t lane, uint32_t position, std::span<const int32_t> tokens);
  uint32_t row(const pn_row& row);
  // setup is completed with where its history stands in step.tokens.
  void lane(pn_lane setup, std::span<const int32_t> history);
  // table[cache][lane][index + i] = pages[i], written as runs of consecutive numbers.
  void pages(uint32_t cache, uint32_t lane, uint32_t index, std::span<const uint32_t> pages);

  uint32_t entries() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t rows() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t run_tokens() const { return run_tokens_; }  // that entries advance by
  uint64_t bytes() const;
  pn_step view() const;

 private:
  Limits limits_;
  uint32_t run_tokens_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<pn_lane> lanes_;
  std::vector<pn_pages> pages_;
  std::vector<pn_entry> entries_;
  std::vector<pn_row> rows_;
};

// The smallest of shapes (smallest first) that holds the step; shapes.size() when none does.
uint32_t pick_shape(std::span<const pn_shape> shapes, const pn_shape& need);

}  // namespace pn::engine
