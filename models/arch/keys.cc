// SPDX-License-Identifier: Apache-2.0
//
// Reads and judges hyper-parameters.
//
// Owns limits. Knows no tensor but the embedding table, whose rows are the vocabulary. The one
// idea: a missing key is named, and so is a value that no model can have.
#include "models/arch/keys.h"

#include <fmt/format.h>

#include <cmath>

#include "models/gguf/text.h"

namespace pn::arch {
namespace {

// Far above any model, low enough that products of two stay in 63 bits.
constexpr uint32_t kMaxWidth = 1u << 24;
constexpr uint32_t kMaxLayers = 512;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 4096;
constexpr uint32_t kMaxExperts = 1024;
constexpr uint32_t kMaxContext = 1u << 28;

// The one number of an array of equal whole numbers.
bool uniform(const gguf::Array& array, uint64_t* out) {
  return std::visit(
      [&]<typename T>(const std::vector<T>& items) {
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
          if (items.empty()) return false;
          for (T x : items)
            if (x != items[0] || x < T{0}) return false;
          *out = static_cast<uint64_t>(items[0]);
          return true;
        } else {
          return false;
        }
      },
      array);
}

}  // namespace

uint64_t tokenizer_tokens(const gguf::File& file) {
  const gguf::Value* value = file.find("tokenizer.ggml.tokens");
  const auto* array = value ? std::get_if<gguf::Array>(value) : nullptr;
  const auto* items = array ? std::get_if<std::vector<std::string>>(array) : nullptr;
  return items ? items->size() : 0;
}

tl::unexpected<Error> Keys::bad(std::string_view suffix, const std::string& what) const {
  return fail(Code::invalid,
              fmt::format("{}: key '{}' {}", file_.shards()[0].path, name(suffix), what),
              name(suffix));
}

Result<uint32_t> Keys::u32(std::string_view suffix, uint32_t fallback) const {
  return file_.u32(name(suffix), fallback);
}

Result<float> Keys::f32(std::string_view suffix, float fallback) const {
  return file_.f32(name(suffix), fallback);
}

Result<std::string> Keys::text(std::string_view suffix, std::string_view fallback) const {
  return file_.text(name(suffix), fallback);
}

Result<uint32_t> Keys::size(std::string_view suffix, uint32_t limit) const {
  uint64_t found = 0;
  const gguf::Value* value = file_.find(name(suffix));
  if (const auto* array = value ? std::get_if<gguf::Array>(value) : nullptr) {
    if (!uniform(*array, &found))
      return fail(Code::unsupported,
                  fmt::format("{}: key '{}' differs between layers, which this architecture's plan "
                              "does not cover",
                              file_.shards()[0].path, name(suffix)),
                  name(suffix));
  } else {
    PN_TRY(found, file_.require_u32(name(suffix)));
  }
  if (found == 0 || found > limit)
    return bad(suffix, fmt::format("is {}; 1 to {} are possible", found, limit));
  return static_cast<uint32_t>(found);
}

Result<uint32_t> Keys::size(std::string_view suffix, uint32_t limit, uint32_t fallback) const {
  return has(suffix) ? size(suffix, limit) : Result<uint32_t>(fallback);
}

Result<HyperParams> Keys::common(std::string_view architecture) const {
  HyperParams p;
  p.architecture = architecture;
  PN_TRY(p.context, size("context_length", kMaxContext));
  PN_TRY(p.embed, size("embedding_length", kMaxWidth));
  PN_TRY(p.layers, size("block_count", kMaxLayers));
  PN_TRY(heads(&p));
  PN_TRY(experts(&p));
  const char* eps = "attention.layer_norm_rms_epsilon";
  if (!has(eps)) return bad(eps, "is missing: convert the model again with a current converter");
  PN_TRY(p.norm_eps, f32(eps, 0));
  if (p.norm_eps < 0 || p.norm_eps > 1)
    return bad(eps, fmt::format("is {}; 0 to 1 are possible", p.norm_eps));
  PN_TRY(vocabulary(&p));
  for (const gguf::Tensor& t : file_.tensors()) {
    uint64_t elements = 1;
    for (int64_t n : t.shape) elements *= static_cast<uint64_t>(n);
    p.parameters += elements;
  }
  return p;
}

Result<void> Keys::heads(HyperParams* p) const {
  PN_TRY(p->heads, size("attention.head_count", kMaxHeads));
  PN_TRY(p->kv_heads, size("attention.head_count_kv", kMaxHeads, p->heads));
  if (p->heads % p->kv_heads != 0)
    return bad("attention.head_count_kv",
               fmt::format("is {}, which does not divide the {} query heads of '{}'", p->kv_heads,
                           p->heads, name("attention.head_count")));
  if (!has("attention.key_length") && p->embed % p->heads != 0)
    return bad(
        "attention.key_length",
        fmt::format("is missing, and the width {} is no multiple of {} heads", p->embed, p->heads));
  PN_TRY(p->key_dim, size("attention.key_length", kMaxHeadDim, p->embed / p->heads));
  PN_TRY(p->value_dim, size("attention.value_length", kMaxHeadDim, p->embed / p->heads));
  return {};
}

Result<void> Keys::experts(HyperParams* p) const {
  PN_TRY(p->experts, u32("expert_count", 0));
  if (p->experts == 0) {
    PN_TRY(p->ff, size("feed_forward_length", kMaxWidth));
    return {};
  }
  if (p->experts > kMaxExperts)
    return bad("expert_count",
               fmt::format("is {}; at most {} are possible", p->experts, kMaxExperts));
  PN_TRY(p->experts_used, size("expert_used_count", p->experts));
  const char* ff =
      has("expert_feed_forward_length") ? "expert_feed_forward_length" : "feed_forward_length";
  PN_TRY(p->ff, size(ff, kMaxWidth));
  return {};
}

Result<void> Keys::vocabulary(HyperParams* p) const {
  const gguf::Tensor* table = file_.tensor("token_embd.weight");
  if (table == nullptr)
    return fail(Code::invalid,
                fmt::format("{}: tensor 'token_embd.weight' is missing; architecture '{}' needs it",
                            file_.shards()[0].path, p->architecture),
                "token_embd.weight");
  // Token ids are int32. The builder checks the whole shape.
  if (table->shape[1] < 1 || table->shape[1] > INT32_MAX)
    return fail(
        Code::invalid,
        fmt::format("{}: tensor 'token_embd.weight' has {} rows; 1 to 2147483647 tokens are "
                    "possible",
                    file_.shards()[0].path, table->shape[1]),
        "token_embd.weight");
  p->vocab = static_cast<uint32_t>(table->shape[1]);
  p->tied = file_.tensor("output.weight") == nullptr;
  uint64_t tokens = tokenizer_tokens(file_);
  if (tokens > p->vocab)
    return fail(Code::invalid,
                fmt::format("{}: key 'tokenizer.ggml.tokens' lists {} tokens, tensor "
                            "'token_embd.weight' has only {} rows: the file is inconsistent, "
                            "convert it again",
                            file_.shards()[0].path, tokens, p->vocab),
                "tokenizer.ggml.tokens");
  return {};
}

}  // namespace pn::arch
