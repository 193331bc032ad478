// SPDX-License-Identifier: Apache-2.0
//
// Models of architecture llama with random weights, from 1M to 8B parameters.
//
// Owns shapes, type recipes and the keys that go with them. Knows the container through its writer.
// The one idea: deviations are 1 / sqrt(inputs), so activations stay of order one through any depth
// and wrong arithmetic shows in the logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/vocabularies.h"

namespace pn::test {

enum class RopeScaling { none, linear, llama3, yarn, longrope };

struct ModelSpec {
  std::string name = "tiny";
  uint32_t embed = 256, layers = 2, heads = 8, kv_heads = 4, ff = 512, vocab = 512;
  uint32_t key_dim = 0;  // 0: embed / heads, and no key written
  uint32_t context = 1024;
  uint32_t experts = 0, experts_used = 0;
  float rope_base = 10000, norm_eps = 1e-5f;
  float rope_factor = 4;  // of linear, yarn and longrope
  float expert_scale = 0;
  std::string type = "F32";  // a type's name, or Q4_K_M, Q5_K_M
  std::string norm_type = "F32";
  bool tied = false, biases = false, fused_qkv = false;
  RopeScaling rope_scaling = RopeScaling::none;
  VocabularyKind vocabulary = VocabularyKind::spm;
  std::string pre = "gpt-2";  // of bpe
  bool chat_template = true;
  uint64_t seed = 1;
};

// tiny, tiny-moe, small, small-moe, 1b, minicpm5, 8b.
Result<ModelSpec> preset(const std::string& name);
std::vector<std::string> preset_names();

// Refuses what cannot be written: an unknown type, a vocabulary below 512 tokens.
Result<GgufWriter> random_model(const ModelSpec& spec);

}  // namespace pn::test
