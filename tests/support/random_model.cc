// SPDX-License-Identifier: Apache-2.0
//
// Fills a writer with a llama model.
//
// Owns tensor names, shapes, type recipes. Knows no bytes.
#include "tests/support/random_model.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <optional>

#include "models/gguf/file.h"
#include "models/quant/dequantise.h"
#include "tests/support/random_rows.h"

namespace pn::test {
namespace {

std::optional<uint32_t> type_number(const std::string& name) {
  for (uint32_t t : quant::decodable_types())
    if (gguf::type_info(t)->name == name) return t;
  return std::nullopt;
}

// The K types need rows of 256; others stand in for them, as in the common recipes.
uint32_t for_width(uint32_t type, uint32_t width) {
  if (width % gguf::type_info(type)->block == 0) return type;
  if (width % 32 != 0) return quant::kF16;
  return type == quant::kQ4_K ? quant::kQ5_0 : quant::kQ8_0;
}

class Maker {
 public:
  Maker(const ModelSpec& spec, uint32_t base, bool mixed)
      : s_(spec),
        base_(base),
        mixed_(mixed),
        key_dim_(spec.key_dim ? spec.key_dim : spec.embed / spec.heads) {}

  GgufWriter run() {
    keys();
    add_vocabulary(w_, s_.vocabulary, s_.vocab, s_.pre, s_.chat_template);
    rope_scaling();
    // Tied tables are matrices too: deviation 1 would put sqrt(D) on every logit.
    matrix("token_embd", s_.embed, s_.vocab, {.sigma = s_.tied ? 0 : 1.0f});
    for (uint32_t i = 0; i < s_.layers; ++i) layer(i);
    norm("output_norm");
    if (!s_.tied) matrix("output", s_.embed, s_.vocab, {.better = true});
    return std::move(w_);
  }

 private:
  struct Extra {
    float sigma = 0;      // 0: 1 / sqrt(in)
    bool better = false;  // Q6_K in a mixed recipe
    uint32_t experts = 0;
    bool bias = false;
    bool exact = false;  // F32
  };

  void keys() {
    w_.text("general.architecture", "llama").text("general.name", "random " + s_.name);
    w_.u32("llama.context_length", s_.context).u32("llama.embedding_length", s_.embed);
    w_.u32("llama.block_count", s_.layers).u32("llama.feed_forward_length", s_.ff);
    w_.u32("llama.attention.head_count", s_.heads);
    w_.u32("llama.attention.head_count_kv", s_.kv_heads);
    w_.f32("llama.attention.layer_norm_rms_epsilon", s_.norm_eps);
    w_.f32("llama.rope.freq_base", s_.rope_base);
    w_.u32("llama.rope.dimension_count", key_dim_);
    w_.u32("llama.vocab_size", s_.vocab);
    if (s_.key_dim != 0) {
      w_.u32("llama.attention.key_length", s_.key_dim);
      w_.u32("llama.attention.value_length", s_.key_dim);
    }
    if (s_.experts != 0) {
      w_.u32("llama.expert_count", s_.experts).u32("llama.expert_used_count", s_.experts_used);
      if (s_.expert_scale != 0) w_.f32("llama.expert_weights_scale", s_.expert_scale);
    }
  }

  void rope_scaling() {
    uint32_t pairs = key_dim_ / 2;
    auto scaled = [&](const char* kind) {
      w_.text("llama.rope.scaling.type", kind).f32("llama.rope.scaling.factor", s_.rope_factor);
      w_.u32("llama.rope.scaling.original_context_length", s_.context / 4);
    };
    if (s_.rope_scaling == RopeScaling::linear) scaled("linear");
    if (s_.rope_scaling == RopeScaling::yarn) scaled("yarn");
    if (s_.rope_scaling == RopeScaling::llama3) {
      std::vector<float> factors(pairs);
      for (uint32_t i = 0; i < pairs; ++i) {
        double turns =
            s_.context * std::pow(s_.rope_base, -2.0 * i / key_dim_) / (2 * std::numbers::pi);
        factors[i] = turns > 4 ? 1 : turns < 1 ? 8 : static_cast<float>(8 - 7 * (turns - 1) / 3);
      }
      w_.values("rope_freqs.weight", {pairs}, factors);
    }
    if (s_.rope_scaling == RopeScaling::longrope) {
      scaled("longrope");
      w_.erase("llama.rope.scaling.factor").f32("llama.rope.scaling.attn_factor", 1.19f);
      std::vector<float> near(pairs, 1.05f), far(pairs);
      for (uint32_t i = 0; i < pairs; ++i) far[i] = 1 + static_cast<float>(i);
      w_.values("rope_factors_long.weight", {pairs}, far);
      w_.values("rope_factors_short.weight", {pairs}, near);
    }
  }

  void layer(uint32_t i) {
    prefix_ = fmt::format("blk.{}.", i);
    bool better = i % 2 == 0;  // half of the layers
    uint32_t q = s_.heads * key_dim_, kv = s_.kv_heads * key_dim_;
    norm("attn_norm");
    if (s_.fused_qkv) {
      matrix("attn_qkv", s_.embed, q + 2 * kv, {.bias = s_.biases});
    } else {
      matrix("attn_q", s_.embed, q, {.bias = s_.biases});
      matrix("attn_k", s_.embed, kv, {.bias = s_.biases});
      matrix("attn_v", s_.embed, kv, {.better = better, .bias = s_.biases});
    }
    matrix("attn_output", q, s_.embed, {.bias = s_.biases});
    norm("ffn_norm");
    if (s_.experts != 0) {
      matrix("ffn_gate_inp", s_.embed, s_.experts, {.exact = true});
      matrix("ffn_gate_exps", s_.embed, s_.ff, {.experts = s_.experts, .bias = s_.biases});
      matrix("ffn_up_exps", s_.embed, s_.ff, {.experts = s_.experts, .bias = s_.biases});
      matrix("ffn_down_exps", s_.ff, s_.embed,
             {.better = better, .experts = s_.experts, .bias = s_.biases});
    } else {
      matrix("ffn_gate", s_.embed, s_.ff, {.bias = s_.biases});
      matrix("ffn_up", s_.embed, s_.ff, {.bias = s_.biases});
      matrix("ffn_down", s_.ff, s_.embed, {.better = better, .bias = s_.biases});
    }
    prefix_.clear();
  }

  void matrix(const std::string& name, uint32_t in, uint32_t out, Extra x) {
    uint32_t type = x.exact ? uint32_t{quant::kF32}
                            : for_width(mixed_ && x.better ? uint32_t{quant::kQ6_K} : base_, in);
    float sigma = x.sigma != 0 ? x.sigma : 1 / std::sqrt(static_cast<float>(in));
    std::vector<int64_t> shape = {in, out};
    if (x.experts != 0) shape.push_back(x.experts);
    w_.tensor(prefix_ + name + ".weight", type, std::move(shape),
              random_rows(type, in, sigma, next_seed()));
    if (!x.bias) return;
    uint32_t count = out * (x.experts ? x.experts : 1);
    std::vector<int64_t> bias_shape = {out};
    if (x.experts != 0) bias_shape.push_back(x.experts);
    w_.values(prefix_ + name + ".bias", std::move(bias_shape),
              random_values(count, 0, 0.1f, next_seed()));
  }

  void norm(const std::string& name) {
    std::vector<float> values = random_values(s_.embed, 1, 0.1f, next_seed());
    uint32_t type = *type_number(s_.norm_type);
    std::vector<std::byte> row(s_.embed * sizeof(float));
    if (!quant::quantise(type, values, row.data())) return;
    uint64_t bytes = s_.embed / gguf::type_info(type)->block * gguf::type_info(type)->block_bytes;
    w_.tensor(prefix_ + name + ".weight", type, {s_.embed},
              [row = std::move(row), bytes](uint64_t, uint64_t, std::byte* to) {
                std::copy_n(row.begin(), bytes, to);
              });
  }

  uint64_t next_seed() { return s_.seed * 1000003 + ++count_; }

  const ModelSpec& s_;
  uint32_t base_;
  bool mixed_;
  uint32_t key_dim_;
  GgufWriter w_;
  std::string prefix_;
  uint64_t count_ = 0;
};

ModelSpec tiny() { return {}; }

ModelSpec tiny_moe() {
  ModelSpec s;
  s.experts = 8;
  s.experts_used = 2;
  return s;
}

ModelSpec small() {  // 29M
  ModelSpec s;
  s.embed = 512, s.layers = 8, s.heads = 8, s.kv_heads = 4, s.ff = 1536, s.vocab = 4096;
  s.context = 2048;
  return s;
}

ModelSpec small_moe() {  // 161M, 47M of them active
  ModelSpec s = small();
  s.experts = 8;
  s.experts_used = 2;
  return s;
}

ModelSpec b1() {  // TinyLlama's shape, 1.1B
  ModelSpec s;
  s.embed = 2048, s.layers = 22, s.heads = 32, s.kv_heads = 4, s.ff = 5632, s.vocab = 32000;
  s.context = 2048;
  return s;
}

ModelSpec minicpm5() {  // 1,080,632,832 parameters
  ModelSpec s;
  s.embed = 1536, s.layers = 24, s.heads = 16, s.kv_heads = 2, s.ff = 4608, s.vocab = 130560;
  s.key_dim = 128, s.context = 131072, s.rope_base = 5e6f, s.norm_eps = 1e-6f;
  s.vocabulary = VocabularyKind::bpe, s.pre = "minicpm5";
  return s;
}

ModelSpec b8() {  // Llama 3's shape
  ModelSpec s;
  s.embed = 4096, s.layers = 32, s.heads = 32, s.kv_heads = 8, s.ff = 14336, s.vocab = 128256;
  s.context = 8192, s.rope_base = 5e5f;
  s.vocabulary = VocabularyKind::bpe, s.pre = "llama-bpe";
  return s;
}

struct Preset {
  const char* name;
  ModelSpec (*make)();
};
constexpr Preset kPresets[] = {
    {"tiny", tiny}, {"tiny-moe", tiny_moe}, {"small", small}, {"small-moe", small_moe},
    {"1b", b1},     {"minicpm5", minicpm5}, {"8b", b8}};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

Result<ModelSpec> preset(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    ModelSpec spec = p.make();
    spec.name = name;
    return spec;
  }
  return fail(Code::not_found,
              fmt::format("no preset {}: {}", name, fmt::join(preset_names(), ", ")), "preset");
}

Result<GgufWriter> random_model(const ModelSpec& spec) {
  bool mixed = spec.type.ends_with("_K_M");
  auto base = type_number(mixed ? spec.type.substr(0, spec.type.size() - 2) : spec.type);
  if (!base || !type_number(spec.norm_type))
    return fail(Code::invalid,
                fmt::format("type {} or {} cannot be written", spec.type, spec.norm_type), "type");
  if (spec.vocabulary != VocabularyKind::none && spec.vocab < 512)
    return fail(Code::invalid,
                fmt::format("{} tokens: a vocabulary needs at least 512", spec.vocab), "vocab");
  return Maker(spec, *base, mixed).run();
}

}  // namespace pn::test
