// SPDX-License-Identifier: Apache-2.0
//
// See suggest.h.
#include "engine/profile/suggest.h"

#include <algorithm>

namespace pn::profile {

namespace {

// Insertions, deletions, replacements and swaps of neighbours, each one edit.
size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() > 100) return "";
  std::string best;
  size_t least = 4;
  for (const std::string& candidate : known) {
    const size_t n = edits(word, candidate);
    const size_t allowed = std::max<size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (n >= least || n > allowed) continue;
    least = n;
    best = candidate;
  }
  return best;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  if (!near.empty()) return "; did you mean '" + near + "'?";
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  return "; known are " + list;
}

}  // namespace pn::profile
