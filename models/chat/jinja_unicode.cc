// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 and character properties.
//
// Owns the decoding rules (shortest form, no surrogates, up to U+10FFFF). ASCII is answered without
// a table; beyond it, ranges are searched one by one: such characters are rare in case mapping.
#include "models/chat/jinja_unicode.h"

#include "models/chat/jinja_unicode_tables.h"

namespace pn::jinja {
namespace {

unsigned char byte(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Length of the valid sequence at `at`, or 0.
size_t sequence_length(std::string_view text, size_t at) {
  unsigned char b = byte(text, at);
  if (b < 0x80) return 1;
  size_t n = b >= 0xF0 && b < 0xF5 ? 4 : b >= 0xE0 && b < 0xF0 ? 3 : b >= 0xC2 && b < 0xE0 ? 2 : 0;
  if (n == 0 || at + n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(text, at + i) & 0xC0) != 0x80) return 0;
  }
  unsigned char second = byte(text, at + 1);
  if (b == 0xE0 && second < 0xA0) return 0;   // overlong
  if (b == 0xED && second >= 0xA0) return 0;  // surrogate
  if (b == 0xF0 && second < 0x90) return 0;   // overlong
  if (b == 0xF4 && second >= 0x90) return 0;  // beyond U+10FFFF
  return n;
}

template <size_t N>
int32_t case_delta(const CaseRange (&table)[N], int32_t c) {
  for (const CaseRange& r : table) {
    if (c >= r.first && c <= r.last && (c - r.first) % r.step == 0) return r.delta;
  }
  return 0;
}

}  // namespace

char32_t next_char(std::string_view text, size_t& at) {
  unsigned char b = byte(text, at++);
  if (b < 0x80) return b;
  size_t more = b >= 0xF0 ? 3 : b >= 0xE0 ? 2 : 1;
  char32_t c = b & (0x3F >> more);
  for (; more > 0 && at < text.size(); --more) c = (c << 6) | (byte(text, at++) & 0x3F);
  return c;
}

void append_utf8(std::string& out, char32_t c) {
  auto put = [&out](char32_t b) { out.push_back(static_cast<char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t n = sequence_length(text, at);
    if (n == 0) return at;
    at += n;
  }
  return at;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t n = sequence_length(text, at);
    if (n == 0) {
      append_utf8(out, 0xFFFD);
      ++at;
    } else {
      out.append(text.substr(at, n));
      at += n;
    }
  }
  return out;
}

size_t count_chars(std::string_view text) {
  size_t n = 0;
  for (char c : text) n += starts_char(c) ? 1 : 0;
  return n;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 32;
  for (const CharRange& r : kUnprintable) {
    if (static_cast<int32_t>(c) >= r.first && static_cast<int32_t>(c) <= r.last) return false;
  }
  return true;
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return case_delta(kToLower, static_cast<int32_t>(c)) != 0;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return c == 0xDF || case_delta(kToUpper, static_cast<int32_t>(c)) != 0;
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return is_upper(c) || is_lower(c);
  if (is_upper(c) || is_lower(c) || c == 0xAA || c == 0xB5 || c == 0xBA) return true;
  // Scripts without case: taken as letters, except for the blocks of punctuation and symbols.
  if (c < 0x5D0 || (c >= 0x2000 && c < 0x2C00) || (c >= 0x3000 && c < 0x3005)) return false;
  return !(c >= 0xFE00 && c < 0xFE70) && !(c >= 0xFF00 && c < 0xFF66) && c < 0x1F000;
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (c == 0xDF) {
    out.append("SS");
  } else {
    append_utf8(out, c + static_cast<char32_t>(case_delta(kToUpper, static_cast<int32_t>(c))));
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else {
    append_utf8(out, c + static_cast<char32_t>(case_delta(kToLower, static_cast<int32_t>(c))));
  }
}

}  // namespace pn::jinja
