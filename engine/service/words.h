// SPDX-License-Identifier: Apache-2.0
//
// What a file says of text: its tokenizer, its chat template, its sampling defaults.
//
// Owns these three for one model. Knows no device and no request. The one idea: a template that
// does not parse takes the chat away and nothing else.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/service/generate.h"
#include "hal/host/result.h"
#include "models/chat/prompt.h"
#include "models/gguf/file.h"
#include "models/tokenizer/tokenizer.h"

namespace pn::engine {

struct Words {
  std::unique_ptr<tok::Tokenizer> tokenizer;
  std::optional<chat::Template> chat;  // absent: chat_error says why
  std::string chat_error;
  SamplingParams sampling;  // the file's general.sampling.* over ours
  std::vector<std::string> warnings;
};

Result<std::unique_ptr<Words>> read_words(const gguf::File& file);

}  // namespace pn::engine
