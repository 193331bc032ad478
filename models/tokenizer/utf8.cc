// SPDX-License-Identifier: Apache-2.0
//
// The well-formed sequences are those of Unicode 3.9, table 3-7: the second byte's range depends
// on the first, which rules out overlong forms, surrogates and what lies above U+10FFFF.
#include "models/tokenizer/utf8.h"

namespace pn::tok {
namespace {

struct Lead {
  uint32_t bytes = 0;  // of the whole sequence; 0: cannot begin one
  uint8_t low = 0x80, high = 0xBF;
  char32_t bits = 0;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0, byte};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2, 0x80, 0xBF, char32_t(byte & 0x1F)};
  if (byte < 0xF0) {
    uint8_t low = byte == 0xE0 ? 0xA0 : 0x80;
    uint8_t high = byte == 0xED ? 0x9F : 0xBF;
    return {3, low, high, char32_t(byte & 0x0F)};
  }
  if (byte > 0xF4) return {};
  uint8_t low = byte == 0xF0 ? 0x90 : 0x80;
  uint8_t high = byte == 0xF4 ? 0x8F : 0xBF;
  return {4, low, high, char32_t(byte & 0x07)};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  Lead lead = lead_of(uint8_t(text[0]));
  if (lead.bytes == 0) return {kReplacement, 1, false, false};
  char32_t point = lead.bits;
  for (uint32_t i = 1; i < lead.bytes; i++) {
    if (i == text.size()) return {kReplacement, i, false, true};
    uint8_t byte = uint8_t(text[i]);
    uint8_t low = i == 1 ? lead.low : 0x80;
    uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {kReplacement, i, false, false};
    point = point << 6 | (byte & 0x3F);
  }
  return {point, lead.bytes, true, false};
}

void append_utf8(char32_t point, std::string& out) {
  if (point < 0x80) {
    out += char(point);
    return;
  }
  if (point < 0x800) {
    out += char(0xC0 | point >> 6);
  } else {
    if (point < 0x10000) {
      out += char(0xE0 | point >> 12);
    } else {
      out += char(0xF0 | point >> 18);
      out += char(0x80 | (point >> 12 & 0x3F));
    }
    out += char(0x80 | (point >> 6 & 0x3F));
  }
  out += char(0x80 | (point & 0x3F));
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    Utf8Step step = utf8_step(text.substr(at));
    if (!step.valid) return false;
    at += step.bytes;
  }
  return true;
}

std::string repair_utf8(std::string_view text, std::span<size_t> borders) {
  std::string out;
  out.reserve(text.size() + 16);
  size_t border = 0;
  for (size_t at = 0; at < text.size();) {
    for (; border < borders.size() && borders[border] <= at; border++) borders[border] = out.size();
    Utf8Step step = utf8_step(text.substr(at));
    append_utf8(step.point, out);
    at += step.bytes;
  }
  for (; border < borders.size(); border++) borders[border] = out.size();
  return out;
}

}  // namespace pn::tok
