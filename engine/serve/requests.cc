// SPDX-License-Identifier: Apache-2.0
//
// Reading of request bodies; see requests.h.
#include "engine/serve/requests.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <random>

namespace pn::serve {

namespace {

constexpr size_t kStopsMax = 16;
constexpr uint32_t kTopLogprobsMax = 20;

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

void read_bias(Fields& fields, engine::SamplingParams& sampling) {
  const Json* bias = fields.raw("logit_bias");
  if (!bias) return;
  if (!bias->is_object())
    return fields.refuse("logit_bias", "must be an object of token id to number");
  for (const auto& [key, value] : bias->items()) {
    int32_t id = -1;
    const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (ec != std::errc() || end != key.data() + key.size() || id < 0)
      return fields.refuse("logit_bias",
                           fmt::format("has the key \"{}\", which is no token id", key));
    if (!value.is_number() || value.get<double>() < -100 || value.get<double>() > 100)
      return fields.refuse("logit_bias", fmt::format("of token {} must be from -100 to 100", key));
    sampling.bias.emplace_back(id, value.get<float>());
  }
}

void read_sampling(Fields& fields, engine::SamplingParams& s) {
  const auto real = [&](const char* name, double least, double most, float& out) {
    if (const auto v = fields.number(name, least, most)) out = static_cast<float>(*v);
  };
  real("temperature", 0, 5, s.temperature);
  real("top_p", 0, 1, s.top_p);
  real("min_p", 0, 1, s.min_p);
  real("repeat_penalty", 0.01, 10, s.repeat_penalty);
  real("presence_penalty", -2, 2, s.presence_penalty);
  real("frequency_penalty", -2, 2, s.frequency_penalty);
  if (const auto k = fields.integer("top_k", 0, 1 << 20)) s.top_k = static_cast<uint32_t>(*k);
  if (const auto n = fields.integer("repeat_last_n", -1, 1 << 20))
    s.penalty_tokens = *n < 0 ? UINT32_MAX : static_cast<uint32_t>(*n);
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max());
  s.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
  read_bias(fields, s);
}

// Parameters that ask for one thing we do anyway; any other value is refused by name.
void read_fixed(Fields& fields) {
  if (const auto n = fields.integer("n", 1, 128); n && *n != 1)
    fields.refuse(
        "n", fmt::format("is {}; this server answers once a request: send {} requests", *n, *n));
  if (const Json* format = fields.raw("response_format")) {
    Fields inner(*format, "response_format");
    const auto type = inner.text("type");
    if (!type || *type != "text")
      fields.refuse("response_format", "of type \"text\" is what this version can promise");
  }
  if (fields.boolean("store").value_or(false))
    fields.refuse("store",
                  "is true, and this server stores nothing: leave it out or set it to false");
}

void read_stream(Fields& fields, Common& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.raw("stream_options");
  if (!options) return;
  if (!out.stream) return fields.refuse("stream_options", "needs stream: true");
  Fields inner(*options, "stream_options");
  out.include_usage = inner.boolean("include_usage").value_or(false);
  inner.boolean(
      "include_obfuscation");  // padding against traffic analysis: a server may leave it out
  if (auto ok = inner.finish(); !ok) fields.refuse("stream_options", ok.error().message);
}

void read_common(Fields& fields, const engine::SamplingParams& defaults, Common& out) {
  out.model = fields.text("model").value_or("");
  out.user = fields.text("user").value_or("");
  out.generate.sampling = defaults;
  read_sampling(fields, out.generate.sampling);
  read_fixed(fields);
  read_stream(fields, out);
  out.generate.stop = fields.texts("stop", kStopsMax);
  out.generate.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

// Both names of the limit; equal when both are given.
void read_limit(Fields& fields, Common& out) {
  const auto old_name = fields.integer("max_tokens", 1, 1 << 30);
  const auto new_name = fields.integer("max_completion_tokens", 1, 1 << 30);
  if (old_name && new_name && *old_name != *new_name)
    fields.refuse("max_completion_tokens", "and max_tokens differ: give one of them");
  if (const auto limit = new_name ? new_name : old_name)
    out.generate.max_tokens = static_cast<uint32_t>(*limit);
}

std::string check_message(const Json& message) {
  if (!message.is_object()) return "must be an object with role and content";
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return "has no role";
  const auto content = message.find("content");
  const bool calls = message.contains("tool_calls");
  if (content == message.end() || content->is_null()) return calls ? "" : "has no content";
  if (content->is_string()) return "";
  if (!content->is_array()) return "has content that is neither a string nor an array of parts";
  for (const Json& part : *content) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string())
      return "has a part without a type";
    if (*type != "text")
      return fmt::format("has a part of type \"{}\"; this server takes text only",
                         type->get<std::string>());
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string()) return "has a text part without text";
  }
  return "";
}

void read_messages(Fields& fields, ChatRequest& out) {
  const Json* messages = fields.raw("messages");
  if (!messages) return fields.refuse("messages", "is missing: an array of {role, content}");
  if (!messages->is_array() || messages->empty())
    return fields.refuse("messages", "must be an array with at least one message");
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string wrong = check_message((*messages)[i]);
    if (!wrong.empty()) return fields.refuse(fmt::format("messages[{}]", i), wrong);
  }
  out.messages = *messages;
}

void read_tools(Fields& fields) {
  const Json* tools = fields.raw("tools");
  if (tools && !(tools->is_array() && tools->empty()))
    fields.refuse("tools", "are not offered by this version: leave them out");
  const Json* choice = fields.raw("tool_choice");
  if (choice && *choice != "none" && *choice != "auto")
    fields.refuse("tool_choice", "asks for a tool, and this version offers none");
}

void read_chat_logprobs(Fields& fields, Common& out) {
  out.generate.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && *top > 0 && !out.generate.logprobs)
    return fields.refuse("top_logprobs", "needs logprobs: true");
  out.generate.top_logprobs = static_cast<uint32_t>(top.value_or(0));
}

void read_prompt(Fields& fields, CompletionRequest& out) {
  const Json* prompt = fields.raw("prompt");
  if (!prompt) return fields.refuse("prompt", "is missing: text, or an array of token ids");
  if (prompt->is_string()) {
    out.text = prompt->get<std::string>();
    return;
  }
  if (!prompt->is_array() || prompt->empty())
    return fields.refuse("prompt", "must be a string or a non-empty array of token ids");
  if (prompt->size() == 1 && (*prompt)[0].is_string()) {
    out.text = (*prompt)[0].get<std::string>();
    return;
  }
  for (const Json& id : *prompt) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      return fields.refuse("prompt",
                           "must hold token ids only; several prompts need several requests");
    out.ids.push_back(id.get<int32_t>());
  }
}

}  // namespace

std::string model_name(const Json& body) {
  if (!body.is_object()) return "";
  const auto it = body.find("model");
  return it != body.end() && it->is_string() ? it->get<std::string>() : "";
}

Result<ChatRequest> read_chat(const Json& body, const engine::SamplingParams& defaults) {
  Fields fields(body, "");
  ChatRequest out;
  read_common(fields, defaults, out);
  read_limit(fields, out);
  read_chat_logprobs(fields, out);
  read_messages(fields, out);
  read_tools(fields);
  out.enable_thinking = fields.boolean("enable_thinking");
  if (const Json* extra = fields.raw("chat_template_kwargs")) {
    if (!extra->is_object()) fields.refuse("chat_template_kwargs", "must be an object");
    out.template_extra = *extra;
  }
  PN_TRY(fields.finish());
  return out;
}

Result<CompletionRequest> read_completion(const Json& body,
                                          const engine::SamplingParams& defaults) {
  Fields fields(body, "");
  CompletionRequest out;
  read_common(fields, defaults, out);
  read_limit(fields, out);
  if (out.generate.max_tokens == 0) out.generate.max_tokens = 16;  // OpenAI's default here
  if (const auto top = fields.integer("logprobs", 0, kTopLogprobsMax)) {
    out.generate.logprobs = true;
    out.generate.top_logprobs = static_cast<uint32_t>(*top);
  }
  read_prompt(fields, out);
  out.echo = fields.boolean("echo").value_or(false);
  if (out.echo && out.generate.logprobs) fields.refuse("echo", "cannot be combined with logprobs");
  if (const auto best = fields.integer("best_of", 1, 128); best && *best != 1)
    fields.refuse("best_of", "must be 1");
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty())
    fields.refuse("suffix", "is not offered: the prompt is continued at its end only");
  PN_TRY(fields.finish());
  return out;
}

}  // namespace pn::serve
