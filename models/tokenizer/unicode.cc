// SPDX-License-Identifier: Apache-2.0
//
// A two-level table, expanded once from 3,419 runs: 4,352 pages of 256 code points, of which the
// equal ones are shared (about 50 KiB in all), so that a lookup is two loads.
#include "models/tokenizer/unicode.h"

#include <array>
#include <map>
#include <vector>

namespace pn::tok {
namespace {

#include "models/tokenizer/unicode_data.inc"

using Page = std::array<CharClass, 256>;

struct Table {
  std::vector<Page> pages;
  std::array<uint16_t, 0x1100> page_of{};

  Table() {
    std::map<Page, uint16_t> known;
    size_t run = 0;
    constexpr size_t kRuns = sizeof(kClassRuns) / sizeof(kClassRuns[0]);
    for (uint32_t high = 0; high < page_of.size(); high++) {
      Page page;
      for (uint32_t low = 0; low < 256; low++) {
        uint32_t point = high << 8 | low;
        while (run + 1 < kRuns && kClassRuns[run + 1] >> 4 <= point) run++;
        page[low] = CharClass(kClassRuns[run] & 15);
      }
      auto [it, added] = known.emplace(page, uint16_t(pages.size()));
      if (added) pages.push_back(page);
      page_of[high] = it->second;
    }
  }
};

}  // namespace

CharClass char_class(char32_t point) {
  static const Table table;
  if (point > 0x10FFFF) return CharClass::other;
  return table.pages[table.page_of[point >> 8]][point & 255];
}

std::string_view unicode_version() { return kUnicodeVersion; }

}  // namespace pn::tok
