// SPDX-License-Identifier: Apache-2.0
//
// The pages of one model copy's KV cache: who holds which.
//
// Owns page numbers and their reference counts. Knows neither sequences nor what a page holds. The
// one idea: a page is free, held by one or more sequences, or cached: held by nobody, its bytes
// still good, the least recently released given away first when no free page is left.
//
// Used on the scheduler's thread only; allocates in the constructor and never again.
#pragma once

#include <cstdint>
#include <vector>

namespace pn::engine {

inline constexpr uint32_t kNoPage = 0xffffffffu;

class Pages {
 public:
  explicit Pages(uint32_t count);

  // A page with one holder, or kNoPage. Its former bytes are void: whoever indexed them forgets.
  uint32_t take();
  // One more holder of a held or cached page, who may only read it.
  void share(uint32_t page);
  // One holder less. The last one decides: keep leaves the page cached, else it becomes free.
  void release(uint32_t page, bool keep);
  // Makes every cached page free: their bytes are no longer to be trusted.
  void drop_cached();

  uint32_t count() const { return static_cast<uint32_t>(holders_.size()); }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()) + cached_count_; }
  uint32_t cached() const { return cached_count_; }
  uint32_t holders(uint32_t page) const { return holders_[page]; }

 private:
  void link_newest(uint32_t page);
  void unlink(uint32_t page);

  std::vector<uint32_t> holders_;
  std::vector<uint32_t> free_;  // a stack, lowest number on top at first
  std::vector<uint8_t> is_cached_;
  std::vector<uint32_t> older_, newer_;  // list of cached pages
  uint32_t oldest_ = kNoPage, newest_ = kNoPage;
  uint32_t cached_count_ = 0;
};

}  // namespace pn::engine
