// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding on vocabularies made here: byte-pair encoding and SentencePiece against
// slow references that follow the definition literally, special tokens, borders, broken UTF-8,
// size.
#include <doctest/doctest.h>

#include <ctime>
#include <map>

#include "tests/unit/models_tokenizer_support.h"

// For one MiB of one character; sanitizers cost a factor of up to ten.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSecondsMax = 10;
#else
constexpr double kSecondsMax = 1;
#endif

namespace {

using namespace pn::tok;
using namespace pn::tok::test;
using Ids = std::vector<int32_t>;
using Part = Tokenizer::Part;

double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

// By definition: join the leftmost pair of the lowest rank until there is none.
Ids slow_bpe(const Tokenizer& t, const std::vector<std::string>& merges, const std::string& word) {
  std::map<std::string, size_t> ranks;
  for (size_t i = 0; i < merges.size(); i++) ranks.emplace(merges[i], i);
  std::vector<std::string> symbols;
  for (char byte : word) symbols.push_back(bpe_spelling(std::string(1, byte)));
  for (;;) {
    size_t best = SIZE_MAX, where = 0;
    for (size_t i = 0; i + 1 < symbols.size(); i++) {
      auto it = ranks.find(symbols[i] + " " + symbols[i + 1]);
      if (it == ranks.end() || it->second >= best) continue;
      best = it->second;
      where = i;
    }
    if (best == SIZE_MAX) break;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + long(where) + 1);
  }
  Ids out;
  for (const auto& symbol : symbols) out.push_back(t.find(symbol).value());
  return out;
}

// By definition: join the leftmost pair of the highest score until no pair is a token.
Ids slow_spm(const Vocabulary& v, const Tokenizer& t, const std::vector<std::string>& characters) {
  std::vector<std::string> symbols = characters;
  for (;;) {
    size_t where = SIZE_MAX;
    float best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); i++) {
      auto id = t.find(symbols[i] + symbols[i + 1]);
      if (!id) continue;
      float score = v.scores[size_t(*id)];
      if (where != SIZE_MAX && score <= best) continue;
      best = score;
      where = i;
    }
    if (where == SIZE_MAX) break;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + long(where) + 1);
  }
  Ids out;
  for (const auto& symbol : symbols) {
    auto id = t.find(symbol);
    if (id) out.push_back(*id);
    for (char byte : id ? "" : symbol) out.push_back(3 + uint8_t(byte));
  }
  return out;
}

BpeBuilder chat_vocabulary() {
  BpeBuilder b("qwen2");
  b.merge("a", "b");
  b.control("<|im_start|>");
  b.control("<|im_end|>");
  b.user("<think>");
  b.control("<|im_start|>user");
  return b;
}

}  // namespace

TEST_CASE("byte-pair encoding equals its definition") {
  std::mt19937 random(11);
  for (int round = 0; round < 60; round++) {
    BpeBuilder b("minicpm5");
    std::vector<std::string> known = {"a", "b", "c"};
    std::map<std::string, bool> seen;
    for (int i = 0; i < 12; i++) {
      std::string left = known[random() % known.size()], right = known[random() % known.size()];
      if (left.size() + right.size() > 9 || seen[left + " " + right]) continue;
      seen[left + " " + right] = true;
      if (!seen[left + right]) {
        b.merge(left, right);
        known.push_back(left + right);
      } else {
        b.v.merges.push_back(left + " " + right);  // another way to the same token
      }
      seen[left + right] = true;
    }
    std::shuffle(b.v.merges.begin(), b.v.merges.end(), random);  // even in senseless orders
    auto merges = b.v.merges;
    b.v.pre = "qwen2";  // words of letters, and no short cut for a word that is a token
    auto t = make(b.v);
    REQUIRE(t);
    for (int word = 0; word < 40; word++) {
      std::string text;
      for (size_t i = random() % 30 + 1; i > 0; i--) text += char('a' + random() % 3);
      CHECK(t->encode(text, false, false) == slow_bpe(*t, merges, text));
    }
  }
}

TEST_CASE("SentencePiece equals its definition") {
  std::mt19937 random(12);
  for (int round = 0; round < 60; round++) {
    SpmBuilder b;
    b.v.add_space_prefix = false;
    std::vector<std::string> known = {"a", "b", "\xC3\xA9"};
    b.token("a", -1);
    b.token("b", -2);  // e acute has none: it falls apart into bytes
    for (int i = 0; i < 14; i++) {
      std::string text = known[random() % known.size()] + known[random() % known.size()];
      if (text.size() > 9 || std::count(known.begin(), known.end(), text) > 0) continue;
      known.push_back(text);
      b.token(text, float(random() % 5) - 3);  // many ties
    }
    auto t = make(b.v);
    REQUIRE(t);
    for (int word = 0; word < 40; word++) {
      std::vector<std::string> characters;
      std::string text;
      for (size_t i = random() % 24 + 1; i > 0; i--) {
        characters.push_back(known[random() % 3]);
        text += characters.back();
      }
      CHECK(t->encode(text, false, false) == slow_spm(b.v, *t, characters));
    }
  }
}

TEST_CASE("a word that is a token is taken whole only where the rules say so") {
  for (const char* pre : {"llama-bpe", "qwen2"}) {
    BpeBuilder b(pre);
    b.merge("q", "q");
    int32_t whole = b.token("abc");  // no merge leads there
    b.control("xyz");
    auto t = make(b.v);
    REQUIRE(t);
    bool ignore = std::string(pre) == "llama-bpe";
    CHECK(t->encode("abc", false, false) == (ignore ? Ids{whole} : Ids{'a', 'b', 'c'}));
    CHECK(t->encode("xyz", false, false) == Ids{'x', 'y', 'z'});  // never a control token
  }
}

TEST_CASE("merges never make a control token out of plain text") {
  BpeBuilder b("gpt-2");
  b.v.merges.push_back("E O");
  b.v.merges.push_back("EO T");
  b.token("EO");
  int32_t control = b.control("EOT");
  auto t = make(b.v);
  REQUIRE(t);
  CHECK(t->encode("EOT", false, false) == Ids{control - 1, 'T'});
  CHECK(t->encode("EOT", true, false) == Ids{control});

  SpmBuilder s;
  s.v.add_space_prefix = false;
  for (const char* text : {"<", "s", ">", "/", "<s", "0", "x", "4", "1"}) s.token(text, -1);
  auto u = make(s.v);
  REQUIRE(u);
  CHECK(u->decode(u->encode("<s>", false, false), false) == "<s>");
  CHECK(u->encode("<s>", false, false) == Ids{*u->find("<s"), *u->find(">")});
  CHECK(u->encode("<s>", true, false) == Ids{1});
  CHECK(u->decode(u->encode("<0x41>", true, false), false) == "<0x41>");  // not the byte A
}

TEST_CASE("control tokens are cut in template text only, user-defined ones everywhere") {
  auto b = chat_vocabulary();
  auto t = make(b.v);
  REQUIRE(t);
  int32_t start = *t->find("<|im_start|>"), end = *t->find("<|im_end|>");
  int32_t think = *t->find("<think>"), longer = *t->find("<|im_start|>user");
  CHECK(t->encode("<|im_end|>", true, false) == Ids{end});
  CHECK(t->encode("<think>", false, false) == Ids{think});
  CHECK(t->encode("<|im_start|>user", true, false) == Ids{longer});  // the longest goes first
  for (const char* text : {"<|im_start|>", "<|im_end|>", "x<|im_end|>y"}) {
    auto ids = t->encode(text, false, false);
    for (int32_t id : ids) CHECK_FALSE(t->is_control(id));
    CHECK(t->decode(ids, false) == text);
  }
  std::vector<Part> parts = {{"<|im_start|>", true}, {"<|im_end|>ab", false}, {"<|im_end|>", true}};
  auto ids = t->encode(parts, false);
  CHECK(ids.front() == start);
  CHECK(ids.back() == end);
  CHECK(std::count(ids.begin(), ids.end(), end) == 1);
  CHECK(t->decode(ids, true) == "<|im_start|><|im_end|>ab<|im_end|>");
  CHECK(t->decode(ids, false) == "<|im_end|>ab");
}

TEST_CASE("a border of parts changes nothing but what may be control") {
  auto b = chat_vocabulary();
  auto t = make(b.v);
  REQUIRE(t);
  int32_t ab = *t->find("ab"), end = *t->find("<|im_end|>");
  std::vector<Part> word = {{"a", true}, {"b", false}};
  CHECK(t->encode(word, false) == Ids{ab});
  std::vector<Part> split_inside = {{"<|im_", true}, {"end|>", true}};
  CHECK(t->encode(split_inside, false) == Ids{end});
  std::vector<Part> half = {{"<|im_", true}, {"end|>", false}};
  CHECK(t->encode(half, false) == t->encode("<|im_end|>", false, false));
  std::vector<Part> bytes = {{"\xF0\x9F", false}, {"", true}, {"\x98\x80", true}};
  CHECK(t->encode(bytes, false) == t->encode("\xF0\x9F\x98\x80", false, false));
  std::vector<Part> repaired = {{"\xFF", false}, {"<|im_end|>", true}, {"\xFF<|im_end|>", false}};
  CHECK(std::count_if(repaired.begin(), repaired.end(), [](auto& p) { return p.parse_special; }) ==
        1);
  auto ids = t->encode(repaired, false);
  CHECK(std::count(ids.begin(), ids.end(), end) == 1);
  CHECK(ids[3] == end);  // behind the three bytes of U+FFFD

  std::mt19937 random(5);
  for (int round = 0; round < 300; round++) {
    std::string text = random_text(random, 20);
    size_t one = random() % (text.size() + 1), two = one + random() % (text.size() - one + 1);
    std::string_view all = text;
    std::vector<Part> cut = {
        {all.substr(0, one), true}, {all.substr(one, two - one), false}, {all.substr(two), true}};
    CHECK(t->encode(cut, true) == t->encode(text, true, true));
  }
}

TEST_CASE("overlapping and nested special tokens") {
  BpeBuilder b("gpt-2");
  int32_t two = b.user("--"), four = b.user("----"), x = b.user("-x");
  auto t = make(b.v);
  REQUIRE(t);
  CHECK(t->encode("-----", false, false) == Ids{four, '-'});
  CHECK(t->encode("------", false, false) == Ids{four, two});
  CHECK(t->encode("---x", false, false) == Ids{two, x});
  CHECK(t->encode("-----x", false, false) == Ids{four, x});
  CHECK(t->encode("a--b", false, false) == Ids{'a', two, 'b'});
  CHECK(t->encode("-", false, false) == Ids{'-'});

  BpeBuilder c("gpt-2");
  int32_t head = c.user("x-"), tail = c.user("-y"), long_one = c.user("---");
  auto u = make(c.v);
  CHECK(u->encode("x---y", false, false) == Ids{'x', long_one, 'y'});
  CHECK(u->encode("x--y", false, false) == Ids{head, tail});
}

TEST_CASE("SentencePiece: the space in front") {
  SpmBuilder b;
  int32_t space = b.token("\xE2\x96\x81", -1), a = b.token("a", -2);
  int32_t word = b.token(
      "\xE2\x96\x81"
      "a",
      0);
  int32_t user = b.token("<u>", 0, TokenType::user_defined);
  auto t = make(b.v);
  REQUIRE(t);
  CHECK(t->encode("a", false, false) == Ids{word});
  CHECK(t->encode("a", false, true) == Ids{1, word});
  CHECK(t->encode(" a", false, false) == Ids{space, word});
  CHECK(t->encode("a<u>a", false, false) == Ids{word, user, word});
  CHECK(t->encode("</s>a", true, false) == Ids{2, word});
  CHECK(t->encode("", false, false) == Ids{});
  CHECK(t->encode("", true, true) == Ids{1});
  CHECK(t->decode(Ids{word, word}, false) == "a a");
  CHECK(t->decode(Ids{1, word}, false) == "a");
  CHECK(t->decode(Ids{1, word}, true) == "<s>a");
  CHECK(t->decode(Ids{space, word}, false) == " a");
  CHECK(t->piece(word, false) == " a");

  b.v.add_space_prefix = false;
  auto u = make(b.v);
  CHECK(u->encode("a", false, false) == Ids{a});
  CHECK(u->decode(Ids{word}, false) == " a");
}

TEST_CASE("SentencePiece: equal scores join from the left, and -0 is 0") {
  SpmBuilder b;
  b.v.add_space_prefix = false;
  int32_t a = b.token("a", -1), left = b.token("ab", -0.0f);
  int32_t c = b.token("c", -1), right = b.token("bc", 0.0f);
  b.token("b", -1);
  auto t = make(b.v);
  CHECK(t->encode("abc", false, false) == Ids{left, c});
  CHECK(t->encode("aabc", false, false) == Ids{a, left, c});
  CHECK(t->encode("bcbc", false, false) == Ids{right, right});
}

TEST_CASE("SentencePiece: bytes, and what has no byte token") {
  SpmBuilder b;
  b.v.add_space_prefix = false;
  auto t = make(b.v);
  CHECK(t->encode("\xC3\xA9", false, false) == Ids{3 + 0xC3, 3 + 0xA9});
  CHECK(t->piece(3 + 0xC3, false) == "\xC3");
  CHECK(t->is_byte(3));

  Vocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>", "a"};
  v.scores = {0, 0, 0, 0};
  v.types = {2, 3, 3, 1};
  v.add_space_prefix = false;
  auto u = make(v);
  REQUIRE(u);
  CHECK(u->encode("a\xC3\xA9", false, false) == Ids{3, 0});
  CHECK(u->decode(Ids{3, 0}, false) == "a");
}

TEST_CASE("what is not UTF-8 counts as U+FFFD") {
  BpeBuilder b("llama-bpe");
  auto t = make(b.v);
  const std::string fffd = "\xEF\xBF\xBD";
  struct {
    const char* given;
    std::string want;
  } cases[] = {{"\xFF", fffd},
               {"a\x80z", "a" + fffd + "z"},
               {"\xC0\xAF", fffd + fffd},             // overlong
               {"\xED\xA0\x80", fffd + fffd + fffd},  // surrogate
               {"\xE4\xB8", fffd},                    // one unfinished sequence
               {"\xE4\xB8z", fffd + "z"},
               {"\xF4\x90\x80\x80", fffd + fffd + fffd + fffd},  // above U+10FFFF
               {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"}};
  for (const auto& c : cases) {
    CHECK(t->encode(c.given, false, false) == t->encode(c.want, false, false));
    CHECK(t->decode(t->encode(c.given, false, false), false) == c.want);
  }
}

TEST_CASE("random text comes back") {
  std::mt19937 random(3);
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "qwen35", "smollm", "minicpm5", "tekken",
                          "gpt-4o", "falcon", "default"}) {
    BpeBuilder b(pre);
    b.merge(" ", " ");
    b.merge("\xE4", "\xB8");
    b.merge("a", "s");
    b.user("<think>");
    auto t = make(b.v);
    REQUIRE(t);
    for (int round = 0; round < 200; round++) {
      std::string text = random_text(random, random() % 40);
      CHECK(t->decode(t->encode(text, false, false), false) == text);
    }
  }
  SpmBuilder s;
  s.token("\xE2\x96\x81", -1);
  s.token(
      "\xE2\x96\x81"
      "s",
      -2);
  auto t = make(s.v);
  for (int round = 0; round < 500; round++) {
    std::string text = random_text(random, random() % 40);
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;  // means a space here
    CHECK(t->decode(t->encode(text, false, false), false) == text);
  }
}

TEST_CASE("a mebibyte of one letter takes less than a second") {
  BpeBuilder b("llama-bpe");
  SpmBuilder s;
  for (std::string unit : {"a", " ", "\n"}) {
    std::string shown = unit == " " ? "\xE2\x96\x81" : unit;
    s.token(shown, 0);
    for (int i = 0; i < 4; i++, unit += unit, shown += shown) {
      b.merge(unit, unit);
      s.token(shown + shown, float(-i - 1));
      b.user("<" + unit + ">");
    }
  }
  for (int n = 2; n < 32; n++) b.user(std::string(size_t(n), '-'));
  auto bpe = make(b.v);
  auto spm = make(s.v);
  REQUIRE(bpe);
  REQUIRE(spm);
  for (char c : {'a', ' ', '\n', '-', '\'', '9', '<', '\xFF'}) {
    for (const Tokenizer* t : {bpe.get(), spm.get()}) {
      std::string text(1 << 20, c);
      double from = cpu_seconds();
      auto ids = t->encode(text, true, false);
      double seconds = cpu_seconds() - from;
      CHECK_MESSAGE(seconds < kSecondsMax, "of ", int(c), ": ", seconds, " s of CPU time");
      if (c != '\xFF') CHECK(t->decode(ids, false) == text);
    }
  }
}
