// SPDX-License-Identifier: Apache-2.0
//
// Vectors that never grow past what the constructor reserved: fits() is asked before every entry.
#include "engine/schedule/step.h"

namespace pn::engine {

StepArrays::StepArrays(const Limits& limits) : limits_(limits) {
  tokens_.reserve(static_cast<size_t>(limits.tokens) + limits.history);
  lanes_.reserve(limits.lanes);
  pages_.reserve(limits.pages);
  entries_.reserve(limits.lanes);
  rows_.reserve(limits.lanes);
}

void StepArrays::clear() {
  run_tokens_ = 0;
  tokens_.clear();
  lanes_.clear();
  pages_.clear();
  entries_.clear();
  rows_.clear();
}

bool StepArrays::fits(uint32_t count, uint32_t edits, bool given_tokens) const {
  if (entries_.size() >= limits_.lanes || run_tokens_ + count > limits_.tokens) return false;
  if (pages_.size() + edits > limits_.pages) return false;
  if (limits_.bytes == 0) return true;
  uint64_t more = sizeof(pn_entry) + sizeof(pn_row) + sizeof(pn_lane) + edits * sizeof(pn_pages) +
                  (given_tokens ? count * sizeof(int32_t) : 0);
  return bytes() + more <= limits_.bytes;
}

uint32_t StepArrays::feed(uint32_t lane, uint32_t position) {
  entries_.push_back({.lane = lane,
                      .count = 1,
                      .token = 0,
                      .position = position,
                      .state_in = PN_NONE,
                      .state_out = PN_NONE,
                      .state_at = 0,
                      .flags = PN_ENTRY_FEED});
  ++run_tokens_;
  return entries() - 1;
}

uint32_t StepArrays::give(uint32_t lane, uint32_t position, std::span<const int32_t> tokens) {
  entries_.push_back({.lane = lane,
                      .count = static_cast<uint32_t>(tokens.size()),
                      .token = static_cast<uint32_t>(tokens_.size()),
                      .position = position,
                      .state_in = PN_NONE,
                      .state_out = PN_NONE,
                      .state_at = 0,
                      .flags = 0});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  run_tokens_ += static_cast<uint32_t>(tokens.size());
  return entries() - 1;
}

uint32_t StepArrays::row(const pn_row& row) {
  rows_.push_back(row);
  return rows() - 1;
}

void StepArrays::lane(pn_lane setup, std::span<const int32_t> history) {
  setup.history_token = static_cast<uint32_t>(tokens_.size());
  setup.history_count = static_cast<uint32_t>(history.size());
  tokens_.insert(tokens_.end(), history.begin(), history.end());
  lanes_.push_back(setup);
}

void StepArrays::pages(uint32_t cache, uint32_t lane, uint32_t index,
                       std::span<const uint32_t> pages) {
  for (size_t i = 0; i < pages.size();) {
    size_t end = i + 1;
    while (end < pages.size() && pages[end] == pages[end - 1] + 1) ++end;
    pages_.push_back({.cache = cache,
                      .lane = lane,
                      .index = index + static_cast<uint32_t>(i),
                      .page = pages[i],
                      .count = static_cast<uint32_t>(end - i),
                      .reserved = 0});
    i = end;
  }
}

uint64_t StepArrays::bytes() const {
  return tokens_.size() * sizeof(int32_t) + lanes_.size() * sizeof(pn_lane) +
         pages_.size() * sizeof(pn_pages) + entries_.size() * sizeof(pn_entry) +
         rows_.size() * sizeof(pn_row);
}

pn_step StepArrays::view() const {
  return {.struct_size = sizeof(pn_step),
          .token_count = static_cast<uint32_t>(tokens_.size()),
          .lane_count = static_cast<uint32_t>(lanes_.size()),
          .page_count = static_cast<uint32_t>(pages_.size()),
          .entry_count = entries(),
          .row_count = rows(),
          .tokens = tokens_.data(),
          .lanes = lanes_.data(),
          .pages = pages_.data(),
          .entries = entries_.data(),
          .rows = rows_.data()};
}

uint32_t pick_shape(std::span<const pn_shape> shapes, const pn_shape& need) {
  uint32_t i = 0;
  for (; i < shapes.size(); ++i) {
    const pn_shape& s = shapes[i];
    if (s.tokens >= need.tokens && s.entries >= need.entries && s.rows >= need.rows &&
        s.context >= need.context) {
      break;
    }
  }
  return i;
}

}  // namespace pn::engine
