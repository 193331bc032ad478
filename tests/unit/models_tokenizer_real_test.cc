// SPDX-License-Identifier: Apache-2.0
//
// Vectors against vocabularies of real models, which are not ours to ship: the folder that
// PN_LLAMA_VOCABS names (ggml-vocab-*.gguf with .inp and .out beside them) and the trained small
// models of the shared folder. Absent folders are skipped with a notice.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/gguf/file.h"
#include "models/gguf/vocabulary.h"
#include "models/tokenizer/stream.h"
#include "models/tokenizer/tokenizer.h"

namespace {

namespace fs = std::filesystem;
using pn::tok::Tokenizer;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::unique_ptr<Tokenizer> load(const fs::path& path) {
  auto file = pn::gguf::File::open(path.string());
  if (!file) FAIL(path.string(), ": ", file.error().message);
  auto vocabulary = pn::gguf::read_vocabulary(**file);
  if (!vocabulary) FAIL(path.string(), ": ", vocabulary.error().message);
  auto tokenizer = Tokenizer::create(*std::move(vocabulary));
  if (!tokenizer) {
    CHECK(tokenizer.error().code == pn::Code::unsupported);
    std::printf("  %-24s refused: %s\n", path.stem().c_str(), tokenizer.error().message.c_str());
    return nullptr;
  }
  return *std::move(tokenizer);
}

std::vector<std::string> split(const std::string& text, const std::string& mark) {
  std::vector<std::string> out;
  size_t from = 0;
  for (size_t at; (at = text.find(mark, from)) != std::string::npos; from = at + mark.size())
    out.push_back(text.substr(from, at - from));
  out.push_back(text.substr(from));
  return out;
}

std::string stream_all(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  pn::tok::TextStream stream(tokenizer, {}, {.start = pn::tok::TextStream::Start::fresh});
  std::string out;
  for (int32_t id : ids) out += stream.push(id).text;
  return out + stream.finish().text;
}

bool supported(const std::string& name) {
  for (const char* known : {"command-r", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt",
                            "phi-3", "qwen2", "qwen35", "refact", "starcoder"})
    if (name == std::string("ggml-vocab-") + known) return true;
  return false;
}

// How many of the file's texts give the listed ids.
void check_vectors(const fs::path& model, int& equal, int& total) {
  auto tokenizer = load(model);
  CHECK((tokenizer != nullptr) == supported(model.stem().string()));
  if (!tokenizer) return;
  auto texts = split(read_text(model.string() + ".inp"), "\n__ggml_vocab_test__\n");
  auto rows = split(read_text(model.string() + ".out"), "\n");
  int same = 0, count = 0;
  for (size_t i = 0; i < texts.size() && i < rows.size(); i++) {
    std::istringstream row(rows[i]);
    std::vector<int32_t> want;
    for (int32_t id; row >> id;) want.push_back(id);
    if (texts[i].empty()) want.clear();  // no text, no token
    auto ids = tokenizer->encode(texts[i], false, false);
    CHECK_MESSAGE(ids == want, model.stem().string(), " text ", i, ": ", texts[i]);
    count++;
    if (ids == want) same++;
    CHECK(stream_all(*tokenizer, ids) == tokenizer->decode(ids, false));
    CHECK(tokenizer->decode(ids, false) == texts[i]);
  }
  std::printf("  %-24s %d of %d texts equal\n", model.stem().c_str(), same, count);
  equal += same;
  total += count;
}

}  // namespace

TEST_CASE("real vocabularies: vectors") {
  const char* folder = std::getenv("PN_LLAMA_VOCABS");
  if (!folder) {
    MESSAGE("skipped: PN_LLAMA_VOCABS names no folder with ggml-vocab-*.gguf");
    return;
  }
  int equal = 0, total = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    fs::path path = entry.path();
    if (path.extension() != ".gguf" || !fs::exists(path.string() + ".inp")) continue;
    check_vectors(path, equal, total);
  }
  std::printf("  real vectors: %d of %d equal\n", equal, total);
  CHECK(total > 0);
}

TEST_CASE("real models: prompts of the golden files") {
  const char* set = std::getenv("PN_SHARED");
  const char* root = std::getenv("PN_SOURCE_ROOT");
  fs::path shared = set ? set : fs::path(root ? root : ".") / "../shared";
  if (!fs::exists(shared / "models/golden/real")) {
    MESSAGE("skipped: no shared models at ", shared.string());
    return;
  }
  int count = 0;
  for (const auto& entry : fs::directory_iterator(shared / "models/golden/real")) {
    if (entry.path().extension() != ".json") continue;
    auto tokenizer = load(shared / "models/real" / (entry.path().stem().string() + ".gguf"));
    REQUIRE(tokenizer);
    for (const auto& golden : nlohmann::json::parse(read_text(entry.path()))) {
      if (!golden.contains("text")) continue;
      auto text = golden["text"].get<std::string>();
      CHECK_MESSAGE(
          tokenizer->encode(text, true, true) == golden["ids"].get<std::vector<int32_t>>(),
          entry.path().stem().string(), ": ", text);
      pn::tok::TextStream stream(*tokenizer, {});
      std::string out;
      for (int32_t id : golden["greedy"]) out += stream.push(id).text;
      CHECK(out + stream.finish().text == golden["greedy_text"].get<std::string>());
      count++;
    }
  }
  std::printf("  golden prompts: %d\n", count);
  CHECK(count > 0);
}
