// SPDX-License-Identifier: Apache-2.0
//
// Files that other tools wrote: all open, none has a warning, and their tables are what they are.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "models/arch/plan.h"
#include "models/gguf/file.h"
#include "models/gguf/vocabulary.h"
#include "tests/support/scratch.h"

namespace {

struct Known {
  size_t tensors;
  const char* architecture;
  size_t tokens;  // 0: no tokenizer
};

const std::map<std::string, Known> kFiles = {
    {"arch/gpt-oss-moe.gguf", {69, "gpt-oss", 0}},
    {"arch/qwen35-dense.gguf", {61, "qwen35", 0}},
    {"arch/qwen35moe-moe.gguf", {73, "qwen35moe", 0}},
    {"arch/qwen3moe-moe.gguf", {61, "qwen3moe", 0}},
    {"quant/tiny-llama-Q4_K_M.gguf", {21, "llama", 512}},
    {"quant/tiny-llama-MXFP4_MOE.gguf", {21, "llama", 512}},
    {"quant/tiny-llama-moe-f16.gguf", {23, "llama", 512}},
    {"quant/tiny-qwen2-f16.gguf", {27, "qwen2", 512}},
    {"quant/tiny-qwen3-f16.gguf", {25, "qwen3", 512}},
    {"real/TinyStories-656K-f32.gguf", {20, "llama", 2048}},
    {"real/llama-2-tiny-random.gguf", {12, "llama", 32000}},
    {"real/stories260K-f32.gguf", {48, "llama", 512}},
};

}  // namespace

TEST_CASE("files of other writers open, and load or are refused by architecture") {
  std::string shared = pn::test::shared_folder();
  if (shared.empty()) {
    std::printf("skipped: no shared models (set PN_SHARED)\n");
    return;
  }
  size_t files = 0;
  std::filesystem::path root = shared + "/models";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".gguf") continue;
    std::string name = std::filesystem::relative(entry.path(), root).string();
    CAPTURE(name);
    ++files;
    auto file = pn::gguf::File::open(entry.path().string());
    REQUIRE_MESSAGE(file, (file ? "" : file.error().message));
    CHECK((*file)->version() == 3);
    CHECK((*file)->warnings().empty());
    std::string architecture = (*file)->text("general.architecture", "").value();
    auto vocabulary = pn::gguf::read_vocabulary(**file);
    auto model = pn::arch::Model::load(*file);
    const auto& known = pn::arch::known_architectures();
    bool runs = std::find(known.begin(), known.end(), architecture) != known.end();
    CHECK(model.has_value() == runs);
    if (!model) {
      CHECK(model.error().code == pn::Code::unsupported);
      CHECK(model.error().message.find("'" + architecture + "'") != std::string::npos);
      CHECK(model.error().message.find("llama") != std::string::npos);
    }
    auto at = kFiles.find(name);
    if (at == kFiles.end()) continue;
    CHECK((*file)->tensors().size() == at->second.tensors);
    CHECK(architecture == at->second.architecture);
    CHECK((vocabulary ? vocabulary->tokens.size() : 0) == at->second.tokens);
  }
  CHECK(files >= kFiles.size());
}
