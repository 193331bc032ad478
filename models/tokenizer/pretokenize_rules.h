// SPDX-License-Identifier: Apache-2.0
//
// The rules that pre-tokenizers are made of. A rule looks at one position of a piece and says where
// its match ends, or the position itself when there is none; it never looks past the piece.
//
// Names: L letters, N numbers, M marks, P punctuation, S symbols; s white space.
#pragma once

#include <cstddef>

#include "models/tokenizer/unicode.h"

namespace pn::tok {

// A piece of text, decoded: positions are code points.
struct Chars {
  const char32_t* points;
  const CharClass* classes;
  size_t end;

  CharClass cls(size_t at) const { return at < end ? classes[at] : CharClass::other; }
  char32_t point(size_t at) const { return at < end ? points[at] : 0; }
  bool space(size_t at) const { return cls(at) == CharClass::space; }
  bool number(size_t at) const { return cls(at) == CharClass::number; }
  bool mark(size_t at) const { return cls(at) == CharClass::mark; }
  bool letter(size_t at) const {
    return cls(at) >= CharClass::upper && cls(at) <= CharClass::letter;
  }
  bool line_end(size_t at) const { return point(at) == '\r' || point(at) == '\n'; }
};

// 's 't 're 've 'm 'll 'd | ?L+ | ?N+ | ?[^sLN]+ | s+(?!\S) | s+
size_t rule_gpt2(const Chars& c, size_t at);

// (?i 's ...) | [^\r\nLN]?L+ | N{1,k} | ?[^sLN]+[\r\n]* | s*[\r\n]+ | s+(?!\S) | s+
size_t rule_llama3(const Chars& c, size_t at);    // k = 3
size_t rule_qwen2(const Chars& c, size_t at);     // k = 1
size_t rule_minicpm5(const Chars& c, size_t at);  // any k
size_t rule_qwen35(const Chars& c, size_t at);    // k = 1; marks count as letters

// Words by case: [^\r\nLN]? then upper* lower+ or upper+ lower*, where Lm, Lo and M are both;
// N{1,k} | ?[^sLN]+[\r\n/]* | white space as above.
size_t rule_tekken(const Chars& c, size_t at);  // k = 1
size_t rule_gpt4o(const Chars& c, size_t at);   // k = 3; a contraction belongs to the word before

size_t rule_digit(const Chars& c, size_t at);           // N
size_t rule_digits3(const Chars& c, size_t at);         // N{1,3}
size_t rule_digits(const Chars& c, size_t at);          // N+
size_t rule_ascii_digits3(const Chars& c, size_t at);   // [0-9][0-9][0-9]
size_t rule_punct(const Chars& c, size_t at);           // [P$+<=>^~|]+
size_t rule_punct_backtick(const Chars& c, size_t at);  // [P$+<=>^~|`]+

}  // namespace pn::tok
