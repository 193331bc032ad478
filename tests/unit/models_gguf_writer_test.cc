// SPDX-License-Identifier: Apache-2.0
//
// The random models that tests and perf scripts run on: vocabularies that tokenise, templates that
// render, recipes as named, rows that differ, the same bytes for the same seed.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "models/chat/prompt.h"
#include "models/gguf/reader.h"
#include "models/gguf/vocabulary.h"
#include "models/quant/dequantise.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/support/random_model.h"
#include "tests/support/random_rows.h"

namespace {

using pn::test::ModelSpec;
using pn::test::VocabularyKind;

std::unique_ptr<pn::tok::Tokenizer> tokenizer(VocabularyKind kind, const char* pre, uint32_t size,
                                              std::string* chat_template) {
  pn::test::GgufWriter w;
  pn::test::add_vocabulary(w, kind, size, pre, true);
  std::vector<std::byte> image = w.image();
  auto file = pn::gguf::Reader().from_memory(image, "image");
  REQUIRE(file);
  *chat_template = (*file)->text("tokenizer.chat_template", "").value();
  auto vocabulary = pn::gguf::read_vocabulary(**file);
  REQUIRE(vocabulary);
  auto made = pn::tok::Tokenizer::create(std::move(*vocabulary));
  REQUIRE_MESSAGE(made, (made ? "" : made.error().message));
  return std::move(*made);
}

}  // namespace

TEST_CASE("made-up vocabularies merge, come back as text, and have a template that renders") {
  const std::pair<VocabularyKind, const char*> kinds[] = {{VocabularyKind::spm, ""},
                                                          {VocabularyKind::bpe, "gpt-2"},
                                                          {VocabularyKind::bpe, "minicpm5"},
                                                          {VocabularyKind::bpe, "llama-bpe"}};
  const std::string text = "the seat is near a tent, caf\u00e9 no. 17";
  for (const auto& one : kinds) {
    const auto kind = one.first;
    const auto pre = one.second;
    for (uint32_t size : {512u, 32000u}) {
      CAPTURE(pre);
      CAPTURE(size);
      std::string source;
      auto t = tokenizer(kind, pre, size, &source);
      std::vector<int32_t> ids = t->encode(text, false, false);
      CHECK(t->decode(ids, false) == text);
      CHECK(ids.size() < text.size() * (size > 1000 ? 3 : 4) / 4);
      auto chat = pn::chat::Template::parse(source);
      REQUIRE(chat);
      pn::chat::RenderInput input;
      input.messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
      input.bos_token = "<s>";
      input.eos_token = "</s>";
      auto pieces = chat->render(input);
      REQUIRE(pieces);
      CHECK(pn::chat::flat(*pieces) == (kind == VocabularyKind::spm
                                            ? "<s>[user] Hi</s>\n[assistant]"
                                            : "<|im_start|>user\nHi<|im_end|>\n"
                                              "<|im_start|>assistant\n"));
    }
  }
}

TEST_CASE("recipes: Q4_K_M has Q6_K where it should, narrow rows get a type that fits") {
  ModelSpec spec;
  spec.type = "Q4_K_M";
  auto w = pn::test::random_model(spec);
  REQUIRE(w);
  CHECK(w->find("output.weight").type == pn::quant::kQ6_K);
  CHECK(w->find("token_embd.weight").type == pn::quant::kQ4_K);
  CHECK(w->find("blk.0.ffn_down.weight").type == pn::quant::kQ6_K);
  CHECK(w->find("blk.0.attn_v.weight").type == pn::quant::kQ6_K);
  CHECK(w->find("blk.1.ffn_down.weight").type == pn::quant::kQ4_K);
  CHECK(w->find("blk.0.attn_norm.weight").type == pn::quant::kF32);
  spec.embed = 96, spec.ff = 40, spec.heads = 4;
  w = pn::test::random_model(spec);
  REQUIRE(w);
  CHECK(w->find("blk.1.attn_q.weight").type == pn::quant::kQ5_0);
  CHECK(w->find("output.weight").type == pn::quant::kQ8_0);
  CHECK(w->find("blk.0.ffn_down.weight").type == pn::quant::kF16);
  spec.type = "Q9_Z";
  CHECK(!pn::test::random_model(spec));
  CHECK(!pn::test::preset("huge"));
}

TEST_CASE("rows are random, differ, have the wanted deviation, and do not depend on chunks") {
  for (uint32_t type : pn::quant::decodable_types()) {
    CAPTURE(type);
    constexpr uint64_t kWidth = 512, kRows = 600;
    auto rows = pn::test::random_rows(type, kWidth, 0.25f, 7);
    const pn::gguf::TypeInfo* info = pn::gguf::type_info(type);
    uint64_t row_bytes = kWidth / info->block * info->block_bytes;
    std::vector<std::byte> all(kRows * row_bytes), piece(row_bytes);
    rows(0, kRows, all.data());
    rows(41, 1, piece.data());
    CHECK(std::equal(piece.begin(), piece.end(), all.begin() + static_cast<long>(41 * row_bytes)));
    std::set<std::vector<std::byte>> distinct;
    for (uint64_t r = 0; r < kRows; ++r)
      distinct.emplace(all.begin() + static_cast<long>(r * row_bytes),
                       all.begin() + static_cast<long>((r + 1) * row_bytes));
    CHECK(distinct.size() == kRows);
    std::vector<float> values(kRows * kWidth);
    REQUIRE(pn::quant::dequantise(type, all.data(), values));
    double sum = 0, squares = 0;
    for (float v : values) sum += v, squares += double{v} * v;
    CHECK(std::fabs(sum / double(values.size())) < 0.005);
    CHECK(std::sqrt(squares / double(values.size())) == doctest::Approx(0.25).epsilon(0.03));
  }
}

TEST_CASE("equal seeds give equal files, other seeds others") {
  ModelSpec spec;
  auto bytes = [&](uint64_t seed) {
    spec.seed = seed;
    return pn::test::random_model(spec).value().image();
  };
  CHECK(bytes(1) == bytes(1));
  CHECK(bytes(1) != bytes(2));
}
