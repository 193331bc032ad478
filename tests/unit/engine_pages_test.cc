// SPDX-License-Identifier: Apache-2.0
//
// The books of pages and prefixes, and the arrays of a step, each alone: no queue and no thread
// takes part.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/schedule/pages.h"
#include "engine/schedule/prefix.h"
#include "engine/schedule/step.h"

using namespace pn::engine;

TEST_CASE("pages: every page is handed out once, then none") {
  Pages pages(5);
  std::set<uint32_t> taken;
  for (int i = 0; i < 5; ++i) taken.insert(pages.take());
  CHECK(taken == std::set<uint32_t>{0, 1, 2, 3, 4});
  CHECK(pages.take() == kNoPage);
  pages.release(3, false);
  CHECK(pages.available() == 1);
  CHECK(pages.take() == 3);
}

TEST_CASE("pages: a shared page is free only after its last holder") {
  Pages pages(2);
  uint32_t page = pages.take();
  pages.share(page);
  pages.release(page, false);
  CHECK(pages.holders(page) == 1);
  CHECK(pages.available() == 1);
  pages.release(page, false);
  CHECK(pages.available() == 2);
}

TEST_CASE("pages: cached pages go last, the least recently released first") {
  Pages pages(4);
  for (int i = 0; i < 4; ++i) pages.take();
  pages.release(2, true);
  pages.release(0, true);
  pages.release(3, true);
  pages.release(1, false);
  CHECK(pages.available() == 4);
  CHECK(pages.take() == 1);
  pages.share(0);  // out of the middle of the list
  CHECK(pages.cached() == 2);
  CHECK(pages.take() == 2);
  CHECK(pages.take() == 3);
  CHECK(pages.take() == kNoPage);
  pages.release(0, true);
  pages.drop_cached();
  CHECK(pages.cached() == 0);
  CHECK(pages.take() == 0);
}

TEST_CASE("pages: random use keeps the books") {
  std::mt19937 random(7);
  Pages pages(16);
  std::map<uint32_t, uint32_t> held;
  for (int i = 0; i < 20000; ++i) {
    uint32_t free = 16 - static_cast<uint32_t>(held.size());
    REQUIRE(pages.available() == free);
    if (random() % 2 == 0) {
      uint32_t page = pages.take();
      REQUIRE((page == kNoPage) == (free == 0));
      if (page == kNoPage) continue;
      REQUIRE(held.count(page) == 0);
      held[page] = 1;
    } else if (!held.empty()) {
      auto at = std::next(held.begin(), static_cast<long>(random() % held.size()));
      if (random() % 3 == 0) {
        pages.share(at->first);
        ++at->second;
      } else {
        pages.release(at->first, random() % 2 == 0);
        if (--at->second == 0) held.erase(at);
      }
    }
  }
}

TEST_CASE("prefix: finds exactly the full pages of an equal run") {
  PrefixIndex index(8, 4);
  std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<uint32_t> pages{5, 2};
  index.add(tokens, pages);
  std::vector<uint32_t> into(4);
  CHECK(index.find(tokens, into) == 2);
  CHECK(into[0] == 5);
  CHECK(into[1] == 2);
  std::vector<int32_t> other = tokens;
  other[7] = 0;
  CHECK(index.find(other, into) == 1);
  other[0] = 0;
  CHECK(index.find(other, into) == 0);
  CHECK(index.find(std::vector<int32_t>{5, 6, 7, 8}, into) == 0);  // not at the front
  CHECK(index.find(std::vector<int32_t>{1, 2, 3}, into) == 0);     // no full page
}

TEST_CASE("prefix: what hung on a forgotten page is not found under its new content") {
  PrefixIndex index(8, 2);
  index.add(std::vector<int32_t>{1, 2, 3, 4}, std::vector<uint32_t>{0, 1});
  index.forget(0);
  std::vector<uint32_t> into(2);
  CHECK(index.find(std::vector<int32_t>{1, 2, 3, 4}, into) == 0);
  index.add(std::vector<int32_t>{9, 9, 5, 6}, std::vector<uint32_t>{0, 3});
  CHECK(index.find(std::vector<int32_t>{9, 9, 3, 4}, into) == 1);
  CHECK(index.find(std::vector<int32_t>{9, 9, 5, 6}, into) == 2);
  index.add(std::vector<int32_t>{1, 2, 3, 4}, std::vector<uint32_t>{4, 1});
  CHECK(index.find(std::vector<int32_t>{1, 2, 3, 4}, into) == 2);
  CHECK(into[0] == 4);
  CHECK(into[1] == 1);
  index.clear();
  CHECK(index.find(std::vector<int32_t>{9, 9}, into) == 0);
}

TEST_CASE("step: page edits are runs of consecutive numbers") {
  StepArrays step({.tokens = 8, .lanes = 2, .history = 8, .pages = 8, .bytes = 0});
  step.pages(0, 1, 3, std::vector<uint32_t>{4, 5, 6, 2, 3, 9});
  pn_step view = step.view();
  REQUIRE(view.page_count == 3);
  CHECK(view.pages[0].index == 3);
  CHECK(view.pages[0].page == 4);
  CHECK(view.pages[0].count == 3);
  CHECK(view.pages[1].index == 6);
  CHECK(view.pages[1].page == 2);
  CHECK(view.pages[1].count == 2);
  CHECK(view.pages[2].index == 8);
  CHECK(view.pages[2].count == 1);
}

TEST_CASE("step: history stands behind what entries name") {
  StepArrays step({.tokens = 8, .lanes = 2, .history = 8, .pages = 8, .bytes = 0});
  step.give(0, 0, std::vector<int32_t>{7, 8});
  pn_lane setup{};
  setup.lane = 1;
  step.lane(setup, std::vector<int32_t>{1, 2, 3});
  step.give(1, 3, std::vector<int32_t>{4});
  pn_step view = step.view();
  CHECK(view.token_count == 6);
  CHECK(view.lanes[0].history_token == 2);
  CHECK(view.lanes[0].history_count == 3);
  CHECK(view.entries[1].token == 5);
  CHECK(view.tokens[view.entries[1].token] == 4);
  CHECK(step.run_tokens() == 3);
}

TEST_CASE("step: fits() holds every limit") {
  StepArrays step({.tokens = 4, .lanes = 2, .history = 0, .pages = 2, .bytes = 0});
  CHECK(step.fits(4, 2, true));
  CHECK_FALSE(step.fits(5, 0, true));
  CHECK_FALSE(step.fits(1, 3, true));
  step.feed(0, 1);
  step.feed(1, 1);
  CHECK_FALSE(step.fits(1, 0, false));
  uint64_t one = sizeof(pn_entry) + sizeof(pn_row) + sizeof(pn_lane) + 4;
  StepArrays tight({.tokens = 4, .lanes = 2, .history = 0, .pages = 2, .bytes = one});
  CHECK(tight.fits(1, 0, true));
  CHECK_FALSE(tight.fits(2, 0, true));
  CHECK_FALSE(tight.fits(1, 1, true));
}

TEST_CASE("step: the smallest shape that holds every need") {
  std::vector<pn_shape> shapes{{1, 1, 1, 64}, {4, 4, 4, 64}, {32, 4, 4, 64}};
  CHECK(pick_shape(shapes, {1, 1, 1, 64}) == 0);
  CHECK(pick_shape(shapes, {2, 2, 0, 5}) == 1);
  CHECK(pick_shape(shapes, {5, 1, 1, 5}) == 2);
  CHECK(pick_shape(shapes, {1, 1, 1, 65}) == 3);
}
