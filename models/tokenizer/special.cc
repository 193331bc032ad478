// SPDX-License-Identifier: Apache-2.0
//
// One pass finds the places where a token may begin, then one pass over these for each length of
// token. A place that a longer token covers is out, and since all tokens cut so far are at least as
// long as the one being tried, an overlap shows at its first or last byte: no interval search.
#include "models/tokenizer/special.h"

#include <algorithm>
#include <functional>

namespace pn::tok {

void SpecialTokens::add(std::string_view text, int32_t id, bool anywhere) {
  if (text.empty()) return;
  tokens_.emplace(text, Token{id, anywhere});
}

void SpecialTokens::seal() {
  heads_.assign(65536, false);
  lengths_.clear();
  for (const auto& [text, token] : tokens_) {
    lengths_.push_back(text.size());
    size_t first = uint8_t(text[0]) << 8;
    if (text.size() > 1) {
      heads_[first | uint8_t(text[1])] = true;
    } else {
      std::fill_n(heads_.begin() + long(first), 256, true);
    }
  }
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

bool SpecialTokens::may_begin(std::string_view text, size_t at) const {
  size_t first = uint8_t(text[at]) << 8;
  if (at + 1 < text.size()) return heads_[first | uint8_t(text[at + 1])];
  return tokens_.count(text.substr(at)) != 0;
}

std::vector<SpecialTokens::Fragment> SpecialTokens::cut(std::string_view text,
                                                        std::span<const Range> allowed) const {
  std::vector<uint32_t> places;
  if (!lengths_.empty()) {
    for (size_t at = 0; at < text.size(); at++) {
      if (may_begin(text, at)) places.push_back(uint32_t(at));
    }
  }
  struct Hit {
    size_t at, length;
    int32_t id;
  };
  std::vector<Hit> hits;
  std::vector<bool> covered(places.empty() ? 0 : text.size());
  for (size_t length : lengths_) {
    size_t range = 0;
    for (uint32_t at : places) {
      size_t end = at + length;
      if (end > text.size()) break;
      if (covered[at] || covered[end - 1]) continue;
      auto it = tokens_.find(text.substr(at, length));
      if (it == tokens_.end()) continue;
      while (range < allowed.size() && allowed[range].end < end) range++;
      bool inside = range < allowed.size() && allowed[range].begin <= at;
      if (!inside && !it->second.anywhere) continue;
      std::fill_n(covered.begin() + at, length, true);
      hits.push_back({at, length, it->second.id});
    }
  }
  std::sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.at < b.at; });

  std::vector<Fragment> out;
  size_t from = 0;
  for (const Hit& hit : hits) {
    if (hit.at > from) out.push_back({text.substr(from, hit.at - from), -1});
    out.push_back({text.substr(hit.at, hit.length), hit.id});
    from = hit.at + hit.length;
  }
  if (from < text.size()) out.push_back({text.substr(from), -1});
  return out;
}

}  // namespace pn::tok
