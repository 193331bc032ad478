// SPDX-License-Identifier: Apache-2.0
//
// Strings that remember which of their bytes came from the request.
//
// Owns Str (text plus marked ranges) and StrBuilder, the only way to make one while rendering. The
// idea: a builder is fed with pieces of other strings and copies their marks, and charges the
// runtime for each byte, so neither trust nor cost can be forgotten by a filter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/jinja_limits.h"

namespace pn::jinja {

struct Span {
  uint32_t begin = 0, end = 0;  // bytes
};

struct Str {
  std::string text;         // valid UTF-8
  std::vector<Span> input;  // ranges that came from the request: sorted, disjoint, not touching
  size_t chars = 0;         // code points
  bool markup = false;      // went through `safe`: `+` escapes what is joined to it, as Python does

  bool ascii() const { return chars == text.size(); }
  bool has_input() const { return !input.empty(); }
  // Byte offset of the code point with this index (index <= chars).
  size_t offset(size_t index) const;
};
using StrPtr = std::shared_ptr<const Str>;

// Text of the template itself, or of the host: trusted.
StrPtr make_str(std::string text);
// Text of the request. Broken UTF-8 is replaced by U+FFFD.
StrPtr make_input(std::string_view text);

class StrBuilder {
 public:
  explicit StrBuilder(Runtime& rt, size_t max_bytes = 0)
      : rt_(rt), max_bytes_(max_bytes != 0 ? max_bytes : rt.limits().max_string_bytes) {}

  void add(std::string_view text, bool input = false);
  void add(const Str& s) { add(s, 0, s.text.size()); }
  void add(const Str& s, size_t begin, size_t end);  // bytes
  void add_char(char32_t c, bool input);
  void repeat(const Str& s, size_t times);  // refused before it is made when it would be too long

  size_t size() const { return out_.text.size(); }
  bool full() const { return full_; }
  const std::string& text() const { return out_.text; }

  // Refused when any add went over a limit; what was added after that was dropped.
  Result<StrPtr> finish();

 private:
  bool room(size_t n);
  void mark(size_t begin, size_t end);

  Runtime& rt_;
  size_t max_bytes_;
  bool full_ = false;
  Str out_;
};

// Is this byte from the request? Spans are asked in rising order: `cursor` starts at 0.
bool is_input(const Str& s, size_t byte, size_t& cursor);

}  // namespace pn::jinja
