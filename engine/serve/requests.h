// SPDX-License-Identifier: Apache-2.0
//
// Bodies of /v1/chat/completions and /v1/completions, read into one shape.
//
// Owns names, ranges and defaults of every parameter (docs/http.md lists them). Knows no model but
// the sampling defaults that it is given. Nothing is ignored: see fields.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/serve/fields.h"
#include "engine/service/generate.h"

namespace pn::serve {

struct Common {
  std::string model;  // empty: the first model
  bool stream = false;
  bool include_usage = false;        // a last chunk with usage; streams only
  std::string user;                  // goes into the log line
  engine::GenerateRequest generate;  // without the prompt
};

struct ChatRequest : Common {
  Json messages;  // array of objects with role and content
  std::optional<bool> enable_thinking;
  Json template_extra = Json::object();  // chat_template_kwargs
};

struct CompletionRequest : Common {
  std::optional<std::string> text;  // either text
  std::vector<int32_t> ids;         // or ids
  bool echo = false;                // the prompt's text comes first
};

// Sampling of the request wins over `defaults`, which are the model's.
Result<ChatRequest> read_chat(const Json& body, const engine::SamplingParams& defaults);
Result<CompletionRequest> read_completion(const Json& body, const engine::SamplingParams& defaults);
// The model's name alone, to find the defaults.
std::string model_name(const Json& body);

}  // namespace pn::serve
