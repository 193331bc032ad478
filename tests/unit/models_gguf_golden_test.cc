// SPDX-License-Identifier: Apache-2.0
//
// Files that other tools wrote: all open, none has a warning, and their tables are what they are.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "models/arch/plan.h"
#include "models/gguf/file.h"
#include "models/gguf/vocabulary.h"
#include "models/quant/dequantise.h"
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

// Root mean square error over root mean square of `wanted`.
double error(const pn::gguf::Tensor& found, const pn::gguf::Tensor& wanted) {
  auto elements = static_cast<size_t>(wanted.shape[0] * wanted.shape[1]);
  std::vector<float> a(elements), b(elements);
  REQUIRE(pn::quant::dequantise(found.type, found.data, a));
  REQUIRE(pn::quant::dequantise(wanted.type, wanted.data, b));
  double off = 0, all = 0;
  for (size_t i = 0; i < elements; ++i) {
    off += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    all += double{b[i]} * b[i];
  }
  return std::sqrt(off / all);
}

}  // namespace

TEST_CASE("blocks that another encoder made decode to the weights that they were made of") {
  std::string shared = pn::test::shared_folder();
  if (shared.empty()) {
    std::printf("skipped: no shared models (set PN_SHARED)\n");
    return;
  }
  auto original = pn::gguf::File::open(shared + "/models/quant/tiny-llama-f16.gguf");
  REQUIRE(original);
  // Uniform levels over a normal's range: about 1 / levels, with room for the extremes.
  const std::map<uint32_t, double> limit = {
      {pn::quant::kF32, 0},      {pn::quant::kF16, 0},      {pn::quant::kBF16, 0.003},
      {pn::quant::kQ8_0, 0.007}, {pn::quant::kQ6_K, 0.025}, {pn::quant::kQ5_K, 0.05},
      {pn::quant::kQ5_0, 0.055}, {pn::quant::kQ5_1, 0.055}, {pn::quant::kQ4_K, 0.1},
      {pn::quant::kQ4_0, 0.11},  {pn::quant::kQ4_1, 0.11}};
  std::map<uint32_t, int> seen;
  for (const char* name :
       {"BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_0", "Q5_1", "Q4_K_M", "Q4_0", "Q4_1"}) {
    auto file = pn::gguf::File::open(shared + "/models/quant/tiny-llama-" + name + ".gguf");
    REQUIRE(file);
    for (const pn::gguf::Tensor& t : (*file)->tensors()) {
      CAPTURE(name);
      CAPTURE(t.name);
      const pn::gguf::Tensor* wanted = (*original)->tensor(t.name);
      REQUIRE(wanted != nullptr);
      CHECK(error(t, *wanted) <= limit.at(t.type));
      ++seen[t.type];
    }
  }
  for (uint32_t type : pn::quant::decodable_types())
    if (type != pn::quant::kF16) CHECK(seen[type] > 0);
}

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
