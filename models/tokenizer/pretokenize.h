// SPDX-License-Identifier: Apache-2.0
//
// Text -> words: what byte-pair encoding may not merge across, by the name in `tokenizer.ggml.pre`.
//
// Owns the rules of each known name. It must not know vocabularies. The rules are published as
// regular expressions; here they are hand-written scanners over character classes, which need no
// backtracking, no stack and no limits, and are linear in the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pn::tok {

struct Chars;  // pretokenize_rules.h
using Rule = size_t (*)(const Chars&, size_t at);

struct PreTokenizer {
  std::string_view names;       // all that mean this, by spaces
  std::span<const Rule> rules;  // run in turn: each splits what the one before left
  bool ignore_merges = false;   // a word that is a token is taken whole
  bool add_bos = false;         // where the file does not say
  bool degraded = false;        // the file did not name its rules: words may be cut wrongly

  // nullptr: not known.
  static const PreTokenizer* find(std::string_view name);
  static std::string known_names();

  // Appends the end offset of each word. `text` is valid UTF-8.
  void split(std::string_view text, std::vector<uint32_t>& ends) const;
};

}  // namespace pn::tok
