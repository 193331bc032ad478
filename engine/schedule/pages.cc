// SPDX-License-Identifier: Apache-2.0
//
// Page numbers as a stack of free ones and an intrusive list of cached ones: every call is O(1),
// since admission takes a whole context's pages (128 at 8192 tokens) at once.
#include "engine/schedule/pages.h"

namespace pn::engine {

Pages::Pages(uint32_t count)
    : holders_(count, 0), is_cached_(count, 0), older_(count, kNoPage), newer_(count, kNoPage) {
  free_.reserve(count);
  for (uint32_t page = count; page-- > 0;) free_.push_back(page);
}

uint32_t Pages::take() {
  uint32_t page = kNoPage;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (oldest_ != kNoPage) {
    page = oldest_;
    unlink(page);
  } else {
    return kNoPage;
  }
  holders_[page] = 1;
  return page;
}

void Pages::share(uint32_t page) {
  if (is_cached_[page] != 0) unlink(page);
  ++holders_[page];
}

void Pages::release(uint32_t page, bool keep) {
  if (--holders_[page] != 0) return;
  if (keep) {
    link_newest(page);
  } else {
    free_.push_back(page);
  }
}

void Pages::drop_cached() {
  while (oldest_ != kNoPage) {
    uint32_t page = oldest_;
    unlink(page);
    free_.push_back(page);
  }
}

void Pages::link_newest(uint32_t page) {
  is_cached_[page] = 1;
  older_[page] = newest_;
  newer_[page] = kNoPage;
  if (newest_ != kNoPage) newer_[newest_] = page;
  newest_ = page;
  if (oldest_ == kNoPage) oldest_ = page;
  ++cached_count_;
}

void Pages::unlink(uint32_t page) {
  is_cached_[page] = 0;
  if (older_[page] != kNoPage) newer_[older_[page]] = newer_[page];
  if (newer_[page] != kNoPage) older_[newer_[page]] = older_[page];
  if (oldest_ == page) oldest_ = newer_[page];
  if (newest_ == page) newest_ = older_[page];
  --cached_count_;
}

}  // namespace pn::engine
