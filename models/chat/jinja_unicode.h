// SPDX-License-Identifier: Apache-2.0
//
// Just enough Unicode to count, cut, strip, change case and print as Python does.
//
// Owns UTF-8 decoding and the few character properties that string methods need. Knows no value.
// Unassigned code points count as printable, so that no table ages with a Unicode version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pn::jinja {

// The code point at byte `at` of valid UTF-8; advances `at` past it.
char32_t next_char(std::string_view text, size_t& at);

void append_utf8(std::string& out, char32_t c);

// Bytes before the first byte that is not UTF-8; text.size() when all of it is.
size_t valid_utf8_prefix(std::string_view text);

// The same text with each broken byte replaced by U+FFFD.
std::string repair_utf8(std::string_view text);

inline bool starts_char(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }
size_t count_chars(std::string_view text);

bool is_space(char32_t c);      // str.isspace, what strip() removes
bool is_printable(char32_t c);  // str.isprintable, what repr() leaves alone
bool is_alpha(char32_t c);      // letters, roughly beyond the scripts with case
bool is_digit(char32_t c);      // ASCII only
bool is_upper(char32_t c);
bool is_lower(char32_t c);

// Case of one character; may be up to two characters (U+00DF upper is "SS").
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);

}  // namespace pn::jinja
