// SPDX-License-Identifier: Apache-2.0
//
// A vocabulary as a model file states it: the `tokenizer.ggml.*` keys as plain data.
//
// Owns nothing but the shape of the data. The reader of a container fills it, Tokenizer::create
// judges it. Every absent key stays absent (empty or nullopt): the defaults are the tokenizer's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pn::tok {

// Values of `tokenizer.ggml.token_type`.
enum class TokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

struct Vocabulary {
  std::string model;  // tokenizer.ggml.model: "llama" (SPM), "gpt2" (BPE)
  std::string pre;    // tokenizer.ggml.pre: the rules that split text into words before BPE

  std::vector<std::string> tokens;  // (n_vocab)
  std::vector<float> scores;        // (n_vocab) or empty; SPM needs them
  std::vector<int32_t> types;       // (n_vocab) TokenType, or empty: all normal
  std::vector<std::string> merges;  // "left right", best first; BPE needs them

  std::optional<int32_t> bos, eos, eot, eom, unk, sep, pad, mask;
  std::optional<int32_t> fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;

  std::vector<int32_t> suppress;  // ids that are never to be sampled
};

}  // namespace pn::tok
