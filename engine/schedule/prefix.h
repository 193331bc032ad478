// SPDX-License-Identifier: Apache-2.0
//
// Which full pages hold which tokens, so that a prompt can start where an earlier one ended.
//
// Owns the index from token runs to page numbers. Knows nothing of requests or devices; the page
// numbers are Pages'. The one idea: a page is found only through the page before it, and only when
// all its tokens are equal, so a hit is exact and never a matter of a hash alone.
//
// Used on the scheduler's thread only; allocates in the constructor and never again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/pages.h"

namespace pn::engine {

class PrefixIndex {
 public:
  PrefixIndex(uint32_t page_count, uint32_t page_tokens);

  // Pages of the longest indexed run of full pages at the front of tokens, at most into.size();
  // returns how many were written.
  uint32_t find(std::span<const int32_t> tokens, std::span<uint32_t> into) const;
  // Says that pages[i] holds tokens [i * page_tokens, (i + 1) * page_tokens). A run that is already
  // indexed under another page keeps that page, and what follows hangs on it.
  void add(std::span<const int32_t> tokens, std::span<const uint32_t> pages);
  // The page was given to somebody else. Pages that hung on it can no longer be found.
  void forget(uint32_t page);
  void clear();
  bool indexed(uint32_t page) const { return nodes_[page].serial != 0; }

 private:
  struct Node {
    uint64_t serial = 0;  // of this indexing, never used again; 0: not indexed
    uint64_t parent = 0;  // serial of the page before; 0: it is the first
    uint64_t key = 0;
    uint32_t next = kNoPage;  // of the same bucket
  };
  uint64_t key_of(uint64_t parent, const int32_t* tokens) const;
  uint32_t lookup(uint64_t parent, const int32_t* tokens) const;  // kNoPage when absent
  uint32_t insert(uint64_t parent, const int32_t* tokens, uint32_t page);

  uint32_t page_tokens_;
  uint64_t next_serial_ = 1;
  std::vector<Node> nodes_;        // (page_count)
  std::vector<int32_t> tokens_;    // (page_count, page_tokens)
  std::vector<uint32_t> buckets_;  // first page of each; a power of two of them
};

}  // namespace pn::engine
