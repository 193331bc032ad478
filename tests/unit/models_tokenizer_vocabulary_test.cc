// SPDX-License-Identifier: Apache-2.0
//
// What Tokenizer::create makes of a vocabulary: refusals, defaults, warnings, and which tokens end
// a generation.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/unit/models_tokenizer_support.h"

namespace {

using namespace pn::tok;
using namespace pn::tok::test;

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("refusals name what is wrong") {
  for (const char* model : {"bert", "t5", "rwkv", "gemma4", "none", ""}) {
    SpmBuilder b;
    b.v.model = model;
    auto made = Tokenizer::create(b.v);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == pn::Code::unsupported);
    CHECK(has(made.error().message, ("\"" + std::string(model) + "\"").c_str()));
  }
  BpeBuilder pre("qwen99");
  CHECK(has(message_of(pre.v), "qwen99"));
  CHECK(has(message_of(pre.v), "llama-bpe"));  // what is known

  SpmBuilder none;
  none.v.tokens.clear();
  CHECK(has(message_of(none.v), "tokenizer.ggml.tokens has 0"));

  SpmBuilder scores;
  scores.v.scores.pop_back();
  CHECK(has(message_of(scores.v), "tokenizer.ggml.scores has 258 entries for 259"));
  SpmBuilder nan;
  nan.v.scores[7] = NAN;
  CHECK(has(message_of(nan.v), "tokenizer.ggml.scores[7]"));

  SpmBuilder types;
  types.v.types.pop_back();
  CHECK(has(message_of(types.v), "tokenizer.ggml.token_type has 258 entries for 259"));
  SpmBuilder type;
  type.v.types[5] = 9;
  CHECK(has(message_of(type.v), "tokenizer.ggml.token_type[5] is 9"));
  SpmBuilder byte;
  byte.v.tokens[4] = "<0xZZ>";
  CHECK(has(message_of(byte.v), "\"<0xZZ>\""));

  for (const char* merge : {"ab", "a ", " a", ""}) {
    BpeBuilder b("qwen2");
    b.merge("x", "y");
    b.v.merges.push_back(merge);
    CHECK(has(message_of(b.v), "tokenizer.ggml.merges[1]"));
  }
  BpeBuilder lost("qwen2");
  lost.merge("x", "y");
  lost.v.merges.clear();
  CHECK(has(message_of(lost.v), "tokenizer.ggml.merges"));
  BpeBuilder bytes_only("qwen2");  // nothing to merge is nothing missing
  CHECK(message_of(bytes_only.v) == "");
}

TEST_CASE("a merge is cut at the first space behind its first byte") {
  BpeBuilder b("qwen2");
  b.v.merges.push_back("  x");  // " " and "x": some files keep raw spaces
  CHECK(message_of(b.v) == "");
  b.v.merges.push_back(" x");
  CHECK(has(message_of(b.v), "merges[1]"));
}

TEST_CASE("defaults") {
  SpmBuilder s;
  auto spm = make(s.v);
  REQUIRE(spm);
  CHECK(spm->bos() == 1);
  CHECK(spm->eos() == 2);
  CHECK(spm->unk() == 0);
  CHECK(spm->add_bos());
  CHECK_FALSE(spm->add_eos());
  CHECK(spm->add_space_prefix());

  BpeBuilder q("qwen2");
  auto bpe = make(q.v);
  CHECK(bpe->bos() == -1);  // token 11 is a byte here, not an end of text
  CHECK(bpe->eos() == -1);
  CHECK_FALSE(bpe->is_eog(11));
  CHECK_FALSE(bpe->add_bos());
  CHECK_FALSE(bpe->add_space_prefix());

  BpeBuilder f("falcon");
  f.v.tokens[11] = "<|endoftext|>";
  f.v.types[11] = int32_t(TokenType::control);
  CHECK(make(f.v)->eos() == 11);

  BpeBuilder l("llama-bpe");
  l.v.bos = l.control("<|begin_of_text|>");
  CHECK(make(l.v)->add_bos());
  CHECK(make(l.v)->encode("a", false, true).front() == *l.v.bos);
  l.v.add_bos = false;  // a key that is there wins
  l.v.add_eos = true;
  l.v.eos = l.control("<|eot_id|>");
  CHECK(make(l.v)->encode("a", false, true) == std::vector<int32_t>{'a', *l.v.eos});
}

TEST_CASE("ids outside the vocabulary are ignored with a warning") {
  SpmBuilder b;
  b.v.bos = 259;
  b.v.eos = -1;  // how files say none
  b.v.suppress = {1, 500, -4};
  auto t = make(b.v);
  REQUIRE(t);
  CHECK(t->bos() == -1);
  CHECK(t->eos() == -1);
  CHECK(t->encode("", false, true).empty());
  CHECK(t->vocabulary().suppress == std::vector<int32_t>{1});
  REQUIRE(t->warnings().size() == 3);
  CHECK(has(t->warnings()[0], "bos_token_id is 259 of 259 tokens"));
  CHECK(has(t->warnings()[1], "suppress_tokens names 2"));
  CHECK(has(t->warnings()[2], "BOS"));

  BpeBuilder d("default");
  REQUIRE(make(d.v)->warnings().size() == 1);
  CHECK(has(make(d.v)->warnings()[0], "quality"));
}

TEST_CASE("ids that do not exist are harmless") {
  SpmBuilder b;
  auto t = make(b.v);
  for (int32_t id : {-1, 259, INT32_MAX, INT32_MIN}) {
    CHECK(t->piece(id, true).empty());
    CHECK_FALSE(t->is_eog(id));
    CHECK_FALSE(t->is_control(id));
  }
}

TEST_CASE("what ends a generation") {
  BpeBuilder b("qwen2");
  int32_t end = b.control("<|im_end|>"), text = b.control("<|endoftext|>");
  int32_t eom = b.control("<end-of-message>"), pad = b.control("<pad>"), start = b.control("<x>");
  b.v.eom = eom;
  b.v.fim_pad = pad;
  auto t = make(b.v);
  REQUIRE(t);
  CHECK(t->eog_ids() == std::vector<int32_t>{end, text, eom, pad});
  CHECK_FALSE(t->is_eog(start));
  CHECK(t->eot() == end);
  b.v.eot = start;
  CHECK(make(b.v)->eot() == start);
  CHECK(make(b.v)->is_eog(start));
}

TEST_CASE("end-of-generation tokens that the file types as text") {
  BpeBuilder b("qwen2");
  int32_t end = b.token("<|im_end|>"), strike = b.token("</s>");
  b.merge("a", "b");
  auto t = make(b.v);
  CHECK(t->is_eog(end));
  CHECK(t->is_control(end));
  CHECK(t->piece(end, false).empty());
  CHECK(t->encode("<|im_end|>", false, false).size() == 10);
  CHECK_FALSE(t->is_eog(strike));  // a tag of HTML
  CHECK(t->warnings().size() == 1);

  BpeBuilder c("qwen2");
  int32_t real = c.control("</s>");
  CHECK(make(c.v)->is_eog(real));
}

TEST_CASE("harmony: a message's end is not the answer's, and channel marks are shown") {
  BpeBuilder b("gpt-4o");
  int32_t end = b.control("<|end|>"), ret = b.control("<|return|>");
  CHECK(make(b.v)->is_eog(end));
  int32_t call = b.control("<|call|>"), channel = b.control("<|channel|>");
  auto t = make(b.v);
  REQUIRE(t);
  CHECK_FALSE(t->is_eog(end));
  CHECK(t->is_eog(ret));
  CHECK(t->is_eog(call));
  CHECK(t->piece(channel, false) == "<|channel|>");
  CHECK(t->piece(end, false).empty());
  // Shown, and yet not for users to write.
  CHECK(t->encode("<|channel|>", false, false).size() > 1);
}

TEST_CASE("gemma: a tool response ends, </s> does not") {
  SpmBuilder b;
  b.v.eos = 1;
  CHECK(make(b.v)->is_eog(2));
  int32_t tool = b.token("<|tool_response>", 0, TokenType::control);
  auto t = make(b.v);
  CHECK(t->is_eog(tool));
  CHECK_FALSE(t->is_eog(2));
}

TEST_CASE("a vocabulary without types") {
  SpmBuilder b;
  b.token("a", 0);
  b.v.types.clear();
  auto t = make(b.v);
  REQUIRE(t);
  CHECK(t->piece(3 + 'x', false) == "x");
  CHECK(t->encode("\xC3", false, false).size() == 6);  // U+FFFD and the space in front, as bytes
}
