// SPDX-License-Identifier: Apache-2.0
//
// Answers in OpenAI's form: one body, or a stream of chunks, for chat and for plain completions.
//
// Owns the JSON shapes. Knows no sockets and no engine but its result types. What clients trip over
// is fixed here once: finish_reason always comes, usage only when asked, errors inside a stream are
// data events with the same body as elsewhere (docs/http.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/serve/errors.h"
#include "engine/serve/fields.h"
#include "engine/service/generate.h"

namespace pn::serve {

enum class AnswerKind { chat, text };

struct AnswerHead {
  AnswerKind kind = AnswerKind::chat;
  std::string id;           // chatcmpl-... or cmpl-...
  std::string model;        // the name that serves, not the alias that was asked for
  int64_t created_s = 0;    // Unix time
  std::string fingerprint;  // of what computes: plugin, numerics, file
  bool include_usage = false;
  // Token id -> raw bytes, for top_logprobs.
  std::function<std::string(int32_t)> token_bytes;
};

// A whole answer.
Json whole_answer(const AnswerHead& head, const std::string& text,
                  const std::vector<engine::TokenInfo>& tokens, bool logprobs,
                  const engine::Finished& end);

// A stream: the opening chunk (chat only), one chunk a delta, the last chunks and the end mark.
// Each is ready to send: "data: {...}\n\n".
std::string opening_event(const AnswerHead& head);
std::string delta_event(const AnswerHead& head, const engine::Delta& delta, bool logprobs);
std::string closing_events(const AnswerHead& head, const engine::Finished& end);
std::string error_event(const ApiError& error);

}  // namespace pn::serve
