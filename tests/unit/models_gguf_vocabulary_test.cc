// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer keys become a vocabulary; lists of unequal length and impossible ids do not.
#include "models/gguf/vocabulary.h"

#include <doctest/doctest.h>

#include "models/gguf/reader.h"
#include "tests/support/vocabularies.h"

namespace {

using pn::test::GgufWriter;
using pn::test::VocabularyKind;

GgufWriter vocabulary(VocabularyKind kind) {
  GgufWriter w;
  pn::test::add_vocabulary(w, kind, 600, "gpt-2", true);
  return w;
}

pn::Result<pn::tok::Vocabulary> read(const GgufWriter& w, std::vector<std::string>* warnings) {
  std::vector<std::byte> image = w.image();
  auto file = pn::gguf::Reader().from_memory(image, "image");
  REQUIRE(file);
  return pn::gguf::read_vocabulary(**file, warnings);
}

std::string refused(const GgufWriter& w) {
  auto v = read(w, nullptr);
  REQUIRE(!v);
  return v.error().message;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("SPM keys") {
  std::vector<std::string> warnings;
  auto v = read(vocabulary(VocabularyKind::spm), &warnings);
  REQUIRE(v);
  CHECK(v->model == "llama");
  CHECK(v->tokens.size() == 600);
  CHECK(v->scores.size() == 600);
  CHECK(v->types[1] == 3);
  CHECK(v->bos == 1);
  CHECK(v->eos == 2);
  CHECK(v->unk == 0);
  CHECK(v->add_bos == true);
  CHECK(!v->eot);
  CHECK(!v->add_space_prefix);
  CHECK(v->merges.empty());
  CHECK(warnings.empty());
}

TEST_CASE("BPE keys") {
  auto v = read(vocabulary(VocabularyKind::bpe), nullptr);
  REQUIRE(v);
  CHECK(v->model == "gpt2");
  CHECK(v->pre == "gpt-2");
  CHECK(v->tokens.size() == 600);
  CHECK(v->merges.size() == 600 - 256 - 3);
  CHECK(v->scores.empty());
  CHECK(v->add_bos == false);
  CHECK(v->tokens[v->eos.value()] == "<|im_end|>");
}

TEST_CASE("every special id and flag has its key") {
  GgufWriter w = vocabulary(VocabularyKind::bpe);
  const char* ids[] = {"eot",     "eom",     "unknown", "seperator", "padding", "mask",
                       "fim_pre", "fim_suf", "fim_mid", "fim_pad",   "fim_rep", "fim_sep"};
  uint32_t next = 100;
  for (const char* id : ids) w.u32(std::string("tokenizer.ggml.") + id + "_token_id", next++);
  w.boolean("tokenizer.ggml.add_eos_token", true).boolean("tokenizer.ggml.add_sep_token", true);
  w.boolean("tokenizer.ggml.add_space_prefix", false);
  w.boolean("tokenizer.ggml.remove_extra_whitespaces", true);
  w.i32s("tokenizer.ggml.suppress_tokens", {5, 9999, 6});
  std::vector<std::string> warnings;
  auto v = read(w, &warnings);
  REQUIRE(v);
  using V = pn::tok::Vocabulary;
  std::optional<int32_t> V::*members[] = {&V::eot,     &V::eom,     &V::unk,     &V::sep,
                                          &V::pad,     &V::mask,    &V::fim_pre, &V::fim_suf,
                                          &V::fim_mid, &V::fim_pad, &V::fim_rep, &V::fim_sep};
  int32_t wanted = 100;
  for (auto member : members) CHECK((*v).*member == wanted++);
  CHECK(v->add_eos == true);
  CHECK(v->add_sep == true);
  CHECK(v->add_space_prefix == false);
  CHECK(v->remove_extra_whitespaces == true);
  CHECK(v->suppress == std::vector<int32_t>{5, 6});
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "token 9999"));
}

TEST_CASE("ids outside the vocabulary are dropped with a warning, none is none") {
  GgufWriter w = vocabulary(VocabularyKind::spm);
  w.u32("tokenizer.ggml.eot_token_id", 600).u32("tokenizer.ggml.padding_token_id", 0xffffffff);
  w.i32("tokenizer.ggml.mask_token_id", -1);
  std::vector<std::string> warnings;
  auto v = read(w, &warnings);
  REQUIRE(v);
  CHECK(!v->eot);
  CHECK(!v->pad);
  CHECK(!v->mask);
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "'tokenizer.ggml.eot_token_id' names token 600"));
}

TEST_CASE("scores and types may be whole numbers of any width") {
  GgufWriter w = vocabulary(VocabularyKind::spm);
  w.i32s("tokenizer.ggml.scores", std::vector<int32_t>(600, -7));
  auto v = read(w, nullptr);
  REQUIRE(v);
  CHECK(v->scores[3] == -7.0f);
}

TEST_CASE("what cannot be a vocabulary is refused by its key") {
  GgufWriter w = vocabulary(VocabularyKind::spm);
  CHECK(has(refused(GgufWriter(w).erase("tokenizer.ggml.tokens")), "'tokenizer.ggml.tokens'"));
  CHECK(
      has(refused(GgufWriter(w).f32s("tokenizer.ggml.scores", {1, 2})), "has 2 elements for 600"));
  CHECK(has(refused(GgufWriter(w).i32s("tokenizer.ggml.token_type", {1})),
            "'tokenizer.ggml.token_type'"));
  CHECK(has(refused(GgufWriter(w).f32s("tokenizer.ggml.token_type", std::vector<float>(600, 1))),
            "not possible"));
  CHECK(has(refused(GgufWriter(w).u32("tokenizer.ggml.tokens", 3)), "array of texts"));
  CHECK(has(refused(GgufWriter(w).text("tokenizer.ggml.bos_token_id", "1")), "whole number"));
  CHECK(has(refused(GgufWriter(w).u32("tokenizer.ggml.add_bos_token", 1)), "add_bos_token"));
  auto none = read(GgufWriter().text("tokenizer.ggml.model", "none"), nullptr);
  REQUIRE(!none);
  CHECK(none.error().code == pn::Code::unsupported);
}
