// SPDX-License-Identifier: Apache-2.0
//
// Cuts special tokens out of a text: user-defined ones anywhere, control and unknown ones only in
// the ranges that allow it. Longer tokens go first over the whole text, then shorter ones in what
// is left.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pn::tok {

class SpecialTokens {
 public:
  // Half-open, in bytes; ascending and apart.
  struct Range {
    size_t begin, end;
  };
  // A fragment is a token (id >= 0) or plain text (id -1).
  struct Fragment {
    std::string_view text;
    int32_t id = -1;
  };

  // `text` must stay where it is. `anywhere`: user-defined.
  void add(std::string_view text, int32_t id, bool anywhere);
  void seal();  // after the last add

  std::vector<Fragment> cut(std::string_view text, std::span<const Range> allowed) const;

 private:
  struct Token {
    int32_t id;
    bool anywhere;
  };
  bool may_begin(std::string_view text, size_t at) const;

  std::unordered_map<std::string_view, Token> tokens_;
  std::vector<size_t> lengths_;  // distinct, descending
  // (65536) which first two bytes begin a token: all but a few places of a text are ruled out by
  // one look. A token of one byte sets all 256.
  std::vector<bool> heads_;
};

}  // namespace pn::tok
