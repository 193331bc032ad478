// SPDX-License-Identifier: Apache-2.0
//
// Small vocabularies for the tokenizer tests, and random text. Everything is built here from bytes
// and code points, so that no test needs a model file.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

namespace pn::tok::test {

// The GPT-2 alphabet, stated once more on its own: the tests must not trust bpe.cc for it.
inline std::string bpe_spelling(std::string_view bytes) {
  std::string out;
  for (unsigned char byte : bytes) {
    char32_t next = 0x100, point = 0;
    for (char32_t b = 0; b <= byte; b++) {
      bool self = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      point = self ? b : next++;
    }
    append_utf8(point, out);
  }
  return out;
}

// 256 byte tokens with ids 0 to 255, then one token for each merge of "left" and "right" bytes.
struct BpeBuilder {
  Vocabulary v;

  explicit BpeBuilder(std::string pre) {
    v.model = "gpt2";
    v.pre = std::move(pre);
    for (int byte = 0; byte < 256; byte++) token(bpe_spelling(std::string(1, char(byte))));
  }
  int32_t token(const std::string& text, TokenType type = TokenType::normal) {
    v.tokens.push_back(text);
    v.types.push_back(int32_t(type));
    return int32_t(v.tokens.size() - 1);
  }
  int32_t control(const std::string& text) { return token(text, TokenType::control); }
  int32_t user(const std::string& text) { return token(text, TokenType::user_defined); }
  int32_t merge(const std::string& left, const std::string& right) {
    v.merges.push_back(bpe_spelling(left) + " " + bpe_spelling(right));
    return token(bpe_spelling(left + right));
  }
};

// <unk> <s> </s>, then the 256 byte tokens with ids 3 to 258; tokens take U+2581 for spaces.
struct SpmBuilder {
  Vocabulary v;

  SpmBuilder() {
    v.model = "llama";
    token("<unk>", 0, TokenType::unknown);
    token("<s>", 0, TokenType::control);
    token("</s>", 0, TokenType::control);
    const char* digits = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++)
      token(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", 0, TokenType::byte);
  }
  int32_t token(const std::string& text, float score, TokenType type = TokenType::normal) {
    v.tokens.push_back(text);
    v.scores.push_back(score);
    v.types.push_back(int32_t(type));
    return int32_t(v.tokens.size() - 1);
  }
};

inline std::unique_ptr<Tokenizer> make(Vocabulary v) {
  auto made = Tokenizer::create(std::move(v));
  return made ? *std::move(made) : nullptr;
}

inline std::string message_of(Vocabulary v) {
  auto made = Tokenizer::create(std::move(v));
  return made ? "" : made.error().message;
}

// Text of all classes of characters, rich in what the rules look at. Unassigned code points are
// left out: a library with newer tables may know some.
inline std::string random_text(std::mt19937& random, size_t points) {
  static const char32_t kOften[] = {' ',   ' ',    ' ',    '\n',   '\r',    '\t',   '\'',   's',
                                    'S',   't',    'r',    'e',    'l',     'L',    'a',    'Z',
                                    '0',   '7',    '.',    '/',    '<',     '$',    '`',    0x85,
                                    0xA0,  0x2003, 0x3000, 0xE9,   0xC9,    0x1C5,  0x2B0,  0x301,
                                    0x660, 0xB2,   0x4E2D, 0x3042, 0x1F600, 0x200D, 0xFEFF, 0x2581};
  std::string out;
  for (size_t i = 0; i < points; i++) {
    char32_t point = kOften[random() % std::size(kOften)];
    if (random() % 4 == 0) {
      static const char32_t kTops[] = {0x80, 0x800, 0x3100, 0x10000, 0x110000};
      do {
        point = random() % kTops[random() % std::size(kTops)];
      } while (char_class(point) == CharClass::other);
    }
    append_utf8(point, out);
  }
  return out;
}

}  // namespace pn::tok::test
