// SPDX-License-Identifier: Apache-2.0
//
// Hyper-parameters by name: `<architecture>.<suffix>` keys with the defaults of the format.
//
// Owns the key names that most architectures share and their plausibility checks. Knows no tensor.
// The one idea: after common() every number can be multiplied without overflow and divided by.
#pragma once

#include <string>
#include <string_view>

#include "models/arch/plan.h"

namespace pn::arch {

class Keys {
 public:
  Keys(const gguf::File& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string name(std::string_view suffix) const { return prefix_ + std::string(suffix); }
  bool has(std::string_view suffix) const { return file_.find(name(suffix)) != nullptr; }

  Result<uint32_t> u32(std::string_view suffix, uint32_t fallback) const;
  // A whole number, or an array that holds the same number for every layer. More than `limit`, and
  // zero, are refused.
  Result<uint32_t> size(std::string_view suffix, uint32_t limit) const;
  Result<uint32_t> size(std::string_view suffix, uint32_t limit, uint32_t fallback) const;
  Result<float> f32(std::string_view suffix, float fallback) const;
  Result<std::string> text(std::string_view suffix, std::string_view fallback) const;

  // Everything in HyperParams, by the format's defaults.
  Result<HyperParams> common(std::string_view architecture) const;

  tl::unexpected<Error> bad(std::string_view suffix, const std::string& what) const;

 private:
  Result<void> heads(HyperParams* p) const;
  Result<void> experts(HyperParams* p) const;
  Result<void> vocabulary(HyperParams* p) const;

  const gguf::File& file_;
  std::string prefix_;
};

// Tokens of the file's tokenizer; 0 when it has none.
uint64_t tokenizer_tokens(const gguf::File& file);

}  // namespace pn::arch
