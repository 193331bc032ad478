// SPDX-License-Identifier: Apache-2.0
//
// TextStream: nothing incomplete is shown, nothing shown is taken back, and the result does not
// depend on how the text falls into tokens.
#include "models/tokenizer/stream.h"

#include <doctest/doctest.h>

#include "tests/unit/models_tokenizer_support.h"

namespace {

using namespace pn::tok;
using namespace pn::tok::test;
using Texts = std::vector<std::string>;

// Tokens are any strings: the stream does not encode.
struct Pieces {
  BpeBuilder b{"gpt-2"};
  std::vector<int32_t> ids;
  explicit Pieces(const Texts& texts) {
    for (const auto& text : texts) ids.push_back(b.user(text));
  }
};

struct Seen {
  std::string text;
  Texts deltas;
  bool stopped = false;
  std::string stop;
  size_t pushed = 0;
};

Seen play(const Tokenizer& t, const std::vector<int32_t>& ids, const Texts& stops) {
  TextStream stream(t, stops);
  Seen seen;
  auto take = [&](const TextStream::Out& out) {
    CHECK(is_utf8(out.text));
    seen.text += out.text;
    seen.deltas.push_back(out.text);
    seen.stopped = out.stopped;
    if (out.stopped && !out.stop.empty()) seen.stop = out.stop;
  };
  for (int32_t id : ids) {
    take(stream.push(id));
    seen.pushed++;
    if (seen.stopped) return seen;
  }
  take(stream.finish());
  return seen;
}

Seen play(const Texts& texts, const Texts& stops) {
  Pieces p(texts);
  auto t = make(p.b.v);
  REQUIRE(t);
  return play(*t, p.ids, stops);
}

}  // namespace

TEST_CASE("a stop string over token borders never leaks") {
  Seen seen = play(Texts{"ABC", "DEF", "G", "HI", "J", "K"}, {"DEFGHIJ"});
  CHECK(seen.text == "ABC");
  CHECK(seen.stopped);
  CHECK(seen.stop == "DEFGHIJ");
  CHECK(seen.pushed == 5);
  CHECK(seen.deltas == Texts{"ABC", "", "", "", ""});
}

TEST_CASE("a near miss comes whole and at once") {
  Seen seen = play(Texts{"DEF", "G", "X"}, {"DEFGHIJ"});
  CHECK(seen.deltas == Texts{"", "", "DEFGX", ""});
  CHECK_FALSE(seen.stopped);
}

TEST_CASE("only what may still become a stop string is held back") {
  Seen seen = play(Texts{"abcab", "ab", "d"}, {"ababc"});
  CHECK(seen.deltas == Texts{"abc", "", "ababd", ""});
  CHECK(play(Texts{"aab", "x"}, {"ab!"}).deltas == Texts{"a", "abx", ""});
  CHECK(play(Texts{"text", "EN"}, {"END"}).deltas == Texts{"text", "", "EN"});  // at the end: out
}

TEST_CASE("a stop string inside one token") {
  Seen seen = play(Texts{"aENDb"}, {"END"});
  CHECK(seen.text == "a");
  CHECK(seen.stopped);
  CHECK(play(Texts{"END"}, {"END"}).text == "");
  CHECK(play(Texts{"aENDbEND"}, {"END"}).text == "a");
}

TEST_CASE("several stop strings: what is complete first wins, however the text is cut") {
  for (const Texts& texts :
       {Texts{"x", "ab", "cdef"}, Texts{"xabcdef"}, Texts{"x", "a", "b", "c", "d"}}) {
    CHECK(play(texts, {"abc", "ab"}).text == "x");
    CHECK(play(texts, {"abc", "ab"}).stop == "ab");  // one is the beginning of the other
    CHECK(play(texts, {"cd", "bcd"}).text == "xa");  // complete together: the one that begins first
    CHECK(play(texts, {"bcd", "cd"}).stop == "bcd");
    CHECK(play(texts, {"abcdef", "cd"}).text == "xab");
    CHECK(play(texts, {"zz", "d", "x"}).text == "");
  }
  CHECK(play(Texts{"ab"}, {"", ""}).text == "ab");  // empty ones are none
  CHECK_FALSE(play(Texts{"ab"}, {""}).stopped);
}

TEST_CASE("after a stop string nothing comes any more") {
  Pieces p(Texts{"END", "more"});
  auto t = make(p.b.v);
  TextStream stream(*t, {"END"});
  CHECK(stream.push(p.ids[0]).stopped);
  CHECK(stream.push(p.ids[1]).text == "");
  CHECK(stream.push(p.ids[1]).stopped);
  CHECK(stream.finish().text == "");
}

TEST_CASE("characters come whole") {
  BpeBuilder b("gpt-2");
  auto t = make(b.v);
  std::vector<int32_t> smile = {0xF0, 0x9F, 0x98, 0x80, '!'};
  CHECK(play(*t, smile, {}).deltas == Texts{"", "", "", "\xF0\x9F\x98\x80", "!", ""});
  const std::string fffd = "\xEF\xBF\xBD";
  CHECK(play(*t, {0xF0, 0x9F}, {}).deltas == Texts{"", "", fffd});
  CHECK(play(*t, {0xF0, 0x9F, '!'}, {}).deltas == Texts{"", "", fffd + "!", ""});
  CHECK(play(*t, {0x80, 'a'}, {}).deltas == Texts{fffd, "a", ""});
  CHECK(play(*t, {0xE4, 0xE4, 0xB8, 0xAD}, {}).text == fffd + "\xE4\xB8\xAD");
}

TEST_CASE("stop strings and split characters") {
  BpeBuilder b("gpt-2");
  int32_t head = b.user("\xF0\x9F"), tail = b.token(bpe_spelling("\x98\x80"
                                                                 "E"));
  int32_t rest = b.user("ND");
  b.merge("N", "D");
  b.v.types[size_t(head)] = int32_t(TokenType::normal);
  b.v.tokens[size_t(head)] = bpe_spelling("\xF0\x9F");
  auto t = make(b.v);
  REQUIRE(t);
  // It begins with a character whose bytes come in two tokens.
  CHECK(play(*t, {'a', head, tail, rest},
             {"\xF0\x9F\x98\x80"
              "END"})
            .text == "a");
  CHECK(play(*t, {'a', head, tail, rest}, {"END"}).text == "a\xF0\x9F\x98\x80");
  CHECK(play(*t, {'a', head, tail, rest}, {"\xF0\x9F\x98\x80"}).text == "a");
}

TEST_CASE("tokens that are not text") {
  BpeBuilder b("gpt-2");
  int32_t control = b.control("<x>"), end = b.control("<|im_end|>");
  auto t = make(b.v);
  CHECK(play(*t, {'a', control, 'b', end}, {}).text == "ab");
  TextStream shown(*t, {}, {.render_special = true});
  CHECK(shown.push(control).text == "<x>");
  CHECK(shown.push(end).text == "");  // ends the answer, never shown
}

TEST_CASE("SentencePiece: the space in front of the first word") {
  SpmBuilder b;
  int32_t word = b.token(
      "\xE2\x96\x81"
      "a",
      0);
  auto t = make(b.v);
  TextStream fresh(*t, {}, {.start = TextStream::Start::fresh});
  CHECK(fresh.push(1).text == "");
  CHECK(fresh.push(word).text == "a");
  CHECK(fresh.push(word).text == " a");
  TextStream continues(*t, {});
  CHECK(continues.push(word).text == " a");
}

TEST_CASE("all pushes together are the decoded text, repaired") {
  std::mt19937 random(9);
  BpeBuilder b("llama-bpe");
  for (int i = 0; i < 40; i++) {
    std::string bytes;
    for (size_t n = random() % 5 + 1; n > 0; n--) bytes += char(random() % 256);
    b.token(bpe_spelling(bytes));
  }
  b.v.merges.push_back("a b");
  SpmBuilder s;
  s.token(
      "\xE2\x96\x81"
      "a",
      0);
  auto bpe = make(b.v);
  auto spm = make(s.v);
  for (int round = 0; round < 600; round++) {
    const Tokenizer& t = round % 2 ? *bpe : *spm;
    std::vector<int32_t> ids;
    for (size_t n = random() % 30; n > 0; n--) ids.push_back(int32_t(random() % size_t(t.size())));
    TextStream stream(t, {}, {.start = TextStream::Start::fresh});
    std::string text;
    for (int32_t id : ids) text += stream.push(id).text;
    text += stream.finish().text;
    std::erase_if(ids, [&](int32_t id) { return t.is_eog(id); });
    CHECK(text == repair_utf8(t.decode(ids, false), {}));
  }
}

TEST_CASE("random stop strings: cutting the text differently changes nothing") {
  std::mt19937 random(21);
  auto word = [&](size_t most) {
    std::string out;
    for (size_t n = random() % most + 1; n > 0; n--) out += char('a' + random() % 2);
    return out;
  };
  BpeBuilder b("gpt-2");
  std::vector<std::string> known;
  for (int i = 0; i < 30; i++) known.push_back(word(4));
  std::vector<int32_t> first;
  for (const auto& text : known) first.push_back(b.user(text));
  auto t = make(b.v);
  for (int round = 0; round < 1000; round++) {
    Texts stops = {word(6), word(6), word(9)};
    std::vector<int32_t> ids, letters;
    for (size_t n = random() % 12; n > 0; n--) {
      size_t pick = random() % known.size();
      ids.push_back(first[pick]);
      for (char c : known[pick]) letters.push_back(c);
    }
    Seen whole = play(*t, ids, stops), single = play(*t, letters, stops);
    CHECK(whole.text == single.text);
    CHECK(whole.stop == single.stop);
    CHECK(whole.stopped == single.stopped);
  }
}
