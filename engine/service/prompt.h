// SPDX-License-Identifier: Apache-2.0
//
// Messages -> token ids: template, special tokens, beginning of sequence. Shared by run and serve.
//
// Owns the rule that only what a template wrote may become a control token, and that a prompt
// starts with exactly one BOS when the vocabulary wants one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "hal/host/result.h"
#include "models/chat/prompt.h"
#include "models/tokenizer/tokenizer.h"

namespace pn::engine {

struct ChatPrompt {
  nlohmann::ordered_json messages;
  std::optional<bool> enable_thinking;
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
};

Result<std::vector<int32_t>> chat_prompt(const chat::Template& format,
                                         const tok::Tokenizer& tokenizer, const ChatPrompt& prompt);

}  // namespace pn::engine
