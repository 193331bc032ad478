// SPDX-License-Identifier: Apache-2.0
//
// UTF-8, step by step: the one place that decides what is a character, what is broken and what is
// merely unfinished. Replacement follows the Unicode recommendation (one U+FFFD for each maximal
// part of an ill-formed sequence), so that a stream and a whole text are repaired alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pn::tok {

inline constexpr char32_t kReplacement = 0xFFFD;

struct Utf8Step {
  char32_t point = kReplacement;  // U+FFFD when ill-formed
  uint32_t bytes = 0;             // what it takes from the text, at least 1
  bool valid = false;
  bool unfinished = false;  // well-formed so far, but the text ended
};

// `text` is not empty.
Utf8Step utf8_step(std::string_view text);
void append_utf8(char32_t point, std::string& out);
bool is_utf8(std::string_view text);

// A copy with U+FFFD for what is ill-formed. `borders` are ascending offsets into text and are
// moved to the same places of the copy; one inside a sequence moves to its end.
std::string repair_utf8(std::string_view text, std::span<size_t> borders);

}  // namespace pn::tok
