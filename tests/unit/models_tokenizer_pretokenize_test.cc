// SPDX-License-Identifier: Apache-2.0
//
// The word rules: by hand for each rule, and against the published regular expressions, run by
// PCRE2 in turns, on random text. PCRE2 10.42 has Unicode 14, as our tables; a newer one may know
// more code points, so the random text holds assigned ones only.
#include "models/tokenizer/pretokenize.h"

#include <doctest/doctest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

#include "models/tokenizer/unicode.h"
#include "tests/unit/models_tokenizer_support.h"

namespace {

using pn::tok::CharClass;
using pn::tok::PreTokenizer;

// White_Space holds U+0085, which PCRE2's \s does not.
#define SP "\\x{85}\\s"
#define GPT2                                                                               \
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SP "\\p{L}\\p{N}]+|[" SP "]+(?![^" SP \
  "])|[" SP "]+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES "[" SP "]*[\\r\\n]+|[" SP "]+(?![^" SP "])|[" SP "]+"
#define LLAMA(digits) \
  CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SP "\\p{L}\\p{N}]+[\\r\\n]*|" LINES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN(after, digits)                                                                  \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" after "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
  "*" after "|" digits "| ?[^" SP "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES

struct Published {
  const char* pre;
  std::vector<const char*> patterns;
};

const Published kPublished[] = {
    {"gpt-2", {GPT2}},
    {"llama-bpe", {LLAMA("\\p{N}{1,3}")}},
    {"qwen2", {LLAMA("\\p{N}")}},
    {"qwen35",
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SP
                  "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES}},
    {"smollm", {"\\p{N}", GPT2}},
    {"minicpm5", {"\\p{N}{1,3}", LLAMA("\\p{N}+")}},
    {"tekken", {TEKKEN("", "\\p{N}")}},
    {"gpt-4o", {TEKKEN(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

std::vector<std::string> split_by(const char* pattern, const std::vector<std::string>& pieces) {
  int error = 0;
  PCRE2_SIZE where = 0;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(PCRE2_SPTR(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                    &where, nullptr),
      pcre2_code_free);
  REQUIRE(code);
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  std::vector<std::string> out;
  for (const std::string& piece : pieces) {
    size_t from = 0;
    while (from < piece.size() && pcre2_match(code.get(), PCRE2_SPTR(piece.data()), piece.size(),
                                              from, 0, match.get(), nullptr) > 0) {
      const PCRE2_SIZE* at = pcre2_get_ovector_pointer(match.get());
      if (at[0] > from) out.push_back(piece.substr(from, at[0] - from));
      out.push_back(piece.substr(at[0], at[1] - at[0]));
      from = at[1];
    }
    if (from < piece.size()) out.push_back(piece.substr(from));
  }
  return out;
}

std::vector<std::string> words(const char* pre, const std::string& text) {
  const PreTokenizer* rules = PreTokenizer::find(pre);
  REQUIRE(rules);
  std::vector<uint32_t> ends;
  rules->split(text, ends);
  std::vector<std::string> out;
  size_t from = 0;
  for (uint32_t end : ends) {
    out.push_back(text.substr(from, end - from));
    from = end;
  }
  CHECK(from == text.size());
  return out;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("classes of code points") {
  using pn::tok::char_class;
  CHECK(pn::tok::unicode_version() == "14.0.0");
  CHECK(char_class('A') == CharClass::upper);
  CHECK(char_class(0x1C5) == CharClass::upper);  // a title-case digraph
  CHECK(char_class('z') == CharClass::lower);
  CHECK(char_class(0x2B0) == CharClass::letter);
  CHECK(char_class(0x4E2D) == CharClass::letter);
  CHECK(char_class(0x301) == CharClass::mark);
  CHECK(char_class(0xB2) == CharClass::number);
  CHECK(char_class('_') == CharClass::punct);
  CHECK(char_class('+') == CharClass::symbol);
  CHECK(char_class(0x85) == CharClass::space);
  CHECK(char_class(0x3000) == CharClass::space);
  CHECK(char_class(0x200B) == CharClass::other);
  CHECK(char_class(0x10FFFF) == CharClass::other);
  CHECK(char_class(0x110000) == CharClass::other);
  CHECK(char_class(0xE0100) == CharClass::mark);  // the last assigned page
}

TEST_CASE("gpt-2 words") {
  CHECK(words("gpt-2", "") == Words{});
  CHECK(words("gpt-2", "Hello world") == Words{"Hello", " world"});
  CHECK(words("gpt-2", "it's IT'S we'll") == Words{"it", "'s", " IT", "'", "S", " we", "'ll"});
  CHECK(words("gpt-2", "a   b") == Words{"a", "  ", " b"});
  CHECK(words("gpt-2", "a\n\nb") == Words{"a", "\n", "\n", "b"});
  CHECK(words("gpt-2", "tail   ") == Words{"tail", "   "});
  CHECK(words("gpt-2", "12345 67") == Words{"12345", " 67"});
  CHECK(words("gpt-2", "?!a") == Words{"?!", "a"});
}

TEST_CASE("the llama family's words") {
  CHECK(words("llama-bpe", "1234567") == Words{"123", "456", "7"});
  CHECK(words("qwen2", "123") == Words{"1", "2", "3"});
  CHECK(words("llama-bpe", "IT'S we'Ll") == Words{"IT", "'S", " we", "'Ll"});
  CHECK(words("llama-bpe", "(foo) \tbar") == Words{"(foo", ")", " ", "\tbar"});
  CHECK(words("llama-bpe", "a  \n \n  b") == Words{"a", "  \n \n", " ", " b"});
  CHECK(words("llama-bpe", "x;\r\n\r\ny") == Words{"x", ";\r\n\r\n", "y"});
  CHECK(words("llama-bpe", " 1  2") == Words{" ", "1", " ", " ", "2"});
  // A combining acute: part of the word in qwen35 alone.
  CHECK(words("qwen2", "ae\xCC\x81z") == Words{"ae", "\xCC\x81z"});
  CHECK(words("qwen35", "ae\xCC\x81z") == Words{"ae\xCC\x81z"});
  CHECK(words("qwen2", "a.\xCC\x81") == Words{"a", ".\xCC\x81"});
  CHECK(words("qwen35", "1.\xCC\x81") == Words{"1", ".\xCC\x81"});
}

TEST_CASE("rules in turns do not see past their piece") {
  CHECK(words("smollm", "a 12") == Words{"a", " ", "1", "2"});
  CHECK(words("smollm", "a  1") == Words{"a", "  ", "1"});  // the digit is behind a border
  CHECK(words("gpt-2", "a  1") == Words{"a", " ", " 1"});
  CHECK(words("minicpm5", "x1234 5") == Words{"x", "123", "4", " ", "5"});
  CHECK(words("falcon", "a,1234`b") == Words{"a", ",", "123", "4", "`", "b"});
  CHECK(words("default", "a=1234 `b") == Words{"a", "=", "123", "4", " `", "b"});
  CHECK(words("default", "a 1234") == Words{"a", " ", "123", "4"});
  CHECK(words("falcon", "a 1234") == Words{"a", " ", "123", "4"});
}

TEST_CASE("words by case") {
  CHECK(words("tekken", "HTTPServer fooBar") == Words{"HTTPServer", " foo", "Bar"});
  CHECK(words("tekken", "12") == Words{"1", "2"});
  CHECK(words("gpt-4o", "1234") == Words{"123", "4"});
  CHECK(words("gpt-4o", "don't DON'T") == Words{"don't", " DON'T"});
  CHECK(words("tekken", "don't") == Words{"don", "'t"});
  CHECK(words("gpt-4o", "a //\n/b") == Words{"a", " //\n/", "b"});
  // The run of upper-likes gives back as far as its last character that may be lower.
  CHECK(words("tekken",
              "A\xE4\xB8\xAD"
              "BC") == Words{"A\xE4\xB8\xAD", "BC"});
}

TEST_CASE("every pre-tokenizer equals its published regular expressions") {
  for (const Published& published : kPublished) {
    std::mt19937 random(7);
    for (int round = 0; round < 1500; round++) {
      std::string text = pn::tok::test::random_text(random, 1 + random() % 24);
      Words want{text};
      for (const char* pattern : published.patterns) want = split_by(pattern, want);
      Words got = words(published.pre, text);
      CHECK_MESSAGE(got == want, published.pre, " round ", round, ": ", text);
      if (got != want) break;
    }
  }
}

TEST_CASE("names") {
  CHECK(PreTokenizer::find("llama3") == PreTokenizer::find("llama-bpe"));
  CHECK(PreTokenizer::find("starcoder") == PreTokenizer::find("smollm"));
  CHECK(PreTokenizer::find("deepseek-r1-qwen") == PreTokenizer::find("qwen2"));
  CHECK(PreTokenizer::find("") == PreTokenizer::find("default"));
  CHECK(PreTokenizer::find("default")->degraded);
  CHECK(PreTokenizer::find("qwen") == nullptr);
  CHECK(PreTokenizer::find("qwen2 deepseek-r1-qwen") == nullptr);
  CHECK(PreTokenizer::find("minicpm5")->ignore_merges);
  CHECK(PreTokenizer::find("llama-bpe")->add_bos);
  CHECK_FALSE(PreTokenizer::find("qwen2")->add_bos);
}
