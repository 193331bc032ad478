// SPDX-License-Identifier: Apache-2.0
//
// JSON of answers; see answers.h.
#include "engine/serve/answers.h"

namespace pn::serve {

namespace {

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event(const Json& json) { return "data: " + dump(json) + "\n\n"; }

const char* finish_name(engine::Finish reason) {
  return reason == engine::Finish::length ? "length" : "stop";
}

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

double per_second(uint32_t tokens, uint64_t ns) {
  return ns ? static_cast<double>(tokens) * 1e9 / static_cast<double>(ns) : 0;
}

Json base(const AnswerHead& head, const char* chat_object, const char* text_object) {
  Json out;
  out["id"] = head.id;
  out["object"] = head.kind == AnswerKind::chat ? chat_object : text_object;
  out["created"] = head.created_s;
  out["model"] = head.model;
  out["system_fingerprint"] = head.fingerprint;
  return out;
}

Json usage(const engine::Finished& end) {
  return {{"prompt_tokens", end.prompt_tokens},
          {"completion_tokens", end.completion_tokens},
          {"total_tokens", end.prompt_tokens + end.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", end.cached_tokens}}}};
}

Json timings(const engine::Finished& end) {
  const engine::Timings& t = end.timings;
  const uint32_t decoded = end.completion_tokens > 0 ? end.completion_tokens - 1 : 0;
  const uint32_t computed = end.prompt_tokens - end.cached_tokens;
  return {{"queued_ms", ms(t.queued_ns)},
          {"prompt_ms", ms(t.prompt_ns)},
          {"prompt_per_second", per_second(computed, t.prompt_ns)},
          {"predicted_ms", ms(t.decode_ns)},
          {"predicted_per_second", per_second(decoded, t.decode_ns)},
          {"die", t.die}};
}

Json bytes_array(const std::string& bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned>(static_cast<unsigned char>(c)));
  return out;
}

Json chat_token(const std::string& bytes, float logprob) {
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", bytes_array(bytes)}};
}

Json chat_logprobs(const AnswerHead& head, const std::vector<engine::TokenInfo>& tokens) {
  Json content = Json::array();
  for (const engine::TokenInfo& t : tokens) {
    Json item = chat_token(t.bytes, t.logprob);
    Json top = Json::array();
    for (const auto& [id, logprob] : t.top)
      top.push_back(chat_token(head.token_bytes(id), logprob));
    item["top_logprobs"] = std::move(top);
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// Beside OpenAI's three lists, the ids: names of tokens that are parts of characters do not tell
// them apart.
Json text_logprobs(const AnswerHead& head, const std::vector<engine::TokenInfo>& tokens) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array();
  Json ids = Json::array(), top_ids = Json::array();
  for (const engine::TokenInfo& t : tokens) {
    names.push_back(t.bytes);
    logprobs.push_back(t.logprob);
    ids.push_back(t.id);
    Json top = Json::object(), top_by_id = Json::object();
    for (const auto& [id, logprob] : t.top) {
      top[head.token_bytes(id)] = logprob;
      top_by_id[std::to_string(id)] = logprob;
    }
    tops.push_back(std::move(top));
    top_ids.push_back(std::move(top_by_id));
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"token_ids", std::move(ids)},
          {"top_ids", std::move(top_ids)}};
}

Json logprobs_json(const AnswerHead& head, const std::vector<engine::TokenInfo>& tokens,
                   bool wanted) {
  if (!wanted) return nullptr;
  return head.kind == AnswerKind::chat ? chat_logprobs(head, tokens) : text_logprobs(head, tokens);
}

Json chunk(const AnswerHead& head, Json choice) {
  Json out = base(head, "chat.completion.chunk", "text_completion");
  out["choices"] = Json::array({std::move(choice)});
  if (head.include_usage) out["usage"] = nullptr;
  return out;
}

}  // namespace

Json whole_answer(const AnswerHead& head, const std::string& text,
                  const std::vector<engine::TokenInfo>& tokens, bool logprobs,
                  const engine::Finished& end) {
  Json choice;
  choice["index"] = 0;
  if (head.kind == AnswerKind::chat)
    choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  else
    choice["text"] = text;
  choice["logprobs"] = logprobs_json(head, tokens, logprobs);
  choice["finish_reason"] = finish_name(end.reason);
  Json out = base(head, "chat.completion", "text_completion");
  out["choices"] = Json::array({std::move(choice)});
  out["usage"] = usage(end);
  out["timings"] = timings(end);
  return out;
}

std::string opening_event(const AnswerHead& head) {
  if (head.kind == AnswerKind::text) return "";
  return event(chunk(head, {{"index", 0},
                            {"delta", {{"role", "assistant"}, {"content", ""}}},
                            {"logprobs", nullptr},
                            {"finish_reason", nullptr}}));
}

std::string delta_event(const AnswerHead& head, const engine::Delta& delta, bool logprobs) {
  Json choice{{"index", 0}};
  if (head.kind == AnswerKind::chat)
    choice["delta"] = {{"content", delta.text}};
  else
    choice["text"] = delta.text;
  choice["logprobs"] = logprobs_json(head, delta.tokens, logprobs);
  choice["finish_reason"] = nullptr;
  return event(chunk(head, std::move(choice)));
}

std::string closing_events(const AnswerHead& head, const engine::Finished& end) {
  Json choice{{"index", 0}};
  if (head.kind == AnswerKind::chat)
    choice["delta"] = Json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish_name(end.reason);
  Json last = chunk(head, std::move(choice));
  last["timings"] = timings(end);
  std::string out = event(last);
  if (head.include_usage) {
    Json totals = base(head, "chat.completion.chunk", "text_completion");
    totals["choices"] = Json::array();
    totals["usage"] = usage(end);
    out += event(totals);
  }
  return out + "data: [DONE]\n\n";
}

std::string error_event(const ApiError& error) { return "data: " + error_json(error) + "\n\n"; }

}  // namespace pn::serve
