// SPDX-License-Identifier: Apache-2.0
//
// A hash table chained through the pages themselves. Parents are named by serial, not by page:
// when a page is evicted and filled anew, what hung on its old content does not hang on the new.
#include "engine/schedule/prefix.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pn::engine {

PrefixIndex::PrefixIndex(uint32_t page_count, uint32_t page_tokens)
    : page_tokens_(page_tokens),
      nodes_(page_count),
      tokens_(static_cast<size_t>(page_count) * page_tokens),
      buckets_(std::bit_ceil(std::max(16u, page_count * 2)), kNoPage) {}

uint32_t PrefixIndex::find(std::span<const int32_t> tokens, std::span<uint32_t> into) const {
  uint32_t found = 0;
  uint64_t parent = 0;
  while (found < into.size() && (found + 1ull) * page_tokens_ <= tokens.size()) {
    uint32_t page = lookup(parent, tokens.data() + static_cast<size_t>(found) * page_tokens_);
    if (page == kNoPage) break;
    into[found++] = page;
    parent = nodes_[page].serial;
  }
  return found;
}

void PrefixIndex::add(std::span<const int32_t> tokens, std::span<const uint32_t> pages) {
  uint64_t parent = 0;
  for (size_t i = 0; i < pages.size() && (i + 1) * page_tokens_ <= tokens.size(); ++i) {
    const int32_t* run = tokens.data() + i * page_tokens_;
    uint32_t page = lookup(parent, run);
    if (page == kNoPage) {
      forget(pages[i]);  // hung on another's page that has since been given away
      page = insert(parent, run, pages[i]);
    }
    parent = nodes_[page].serial;
  }
}

void PrefixIndex::forget(uint32_t page) {
  Node& node = nodes_[page];
  if (node.serial == 0) return;
  uint32_t* link = &buckets_[node.key & (buckets_.size() - 1)];
  while (*link != page) link = &nodes_[*link].next;
  *link = node.next;
  node = Node{};
}

void PrefixIndex::clear() {
  for (Node& node : nodes_) node = Node{};
  std::fill(buckets_.begin(), buckets_.end(), kNoPage);
}

uint64_t PrefixIndex::key_of(uint64_t parent, const int32_t* tokens) const {
  uint64_t key = parent * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
  for (uint32_t i = 0; i < page_tokens_; ++i) {
    key = (key ^ static_cast<uint32_t>(tokens[i])) * 0xff51afd7ed558ccdull;
    key ^= key >> 32;
  }
  return key;
}

uint32_t PrefixIndex::lookup(uint64_t parent, const int32_t* tokens) const {
  uint64_t key = key_of(parent, tokens);
  uint32_t page = buckets_[key & (buckets_.size() - 1)];
  for (; page != kNoPage; page = nodes_[page].next) {
    const Node& node = nodes_[page];
    if (node.key != key || node.parent != parent) continue;
    const int32_t* held = tokens_.data() + static_cast<size_t>(page) * page_tokens_;
    if (std::memcmp(held, tokens, page_tokens_ * sizeof(int32_t)) == 0) return page;
  }
  return kNoPage;
}

uint32_t PrefixIndex::insert(uint64_t parent, const int32_t* tokens, uint32_t page) {
  Node& node = nodes_[page];
  node.serial = next_serial_++;
  node.parent = parent;
  node.key = key_of(parent, tokens);
  uint32_t& bucket = buckets_[node.key & (buckets_.size() - 1)];
  node.next = bucket;
  bucket = page;
  std::memcpy(tokens_.data() + static_cast<size_t>(page) * page_tokens_, tokens,
              page_tokens_ * sizeof(int32_t));
  return page;
}

}  // namespace pn::engine
