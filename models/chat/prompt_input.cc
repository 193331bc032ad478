// SPDX-License-Identifier: Apache-2.0
//
// From a request's messages to a template's variables.
//
// Owns the two changes of form that templates need and clients do not make: content as parts
// becomes text (or the reverse), and the arguments of tool calls become objects (or the reverse).
// Everything else passes through as it came.
#include "models/chat/prompt.h"

namespace pn::chat {
namespace {

using Json = nlohmann::ordered_json;

std::string at(size_t message) { return "messages[" + std::to_string(message) + "]"; }

// [{type: text, text: a}, ...] -> "a\n..."; other kinds of parts have no text form.
Result<void> flatten(Json& content, const std::string& where) {
  std::string text;
  bool first = true;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    bool plain = part.is_object() && part.value("type", Json("text")) == "text" &&
                 part.contains("text") && part["text"].is_string();
    if (!plain && !part.is_string()) {
      return fail(Code::unsupported,
                  "the chat template of this model takes text only; this part of the content is "
                  "none: send parts of type \"text\"",
                  where + "[" + std::to_string(i) + "]");
    }
    if (!first) text += '\n';
    first = false;
    text += part.is_string() ? part.get_ref<const std::string&>()
                             : part["text"].get_ref<const std::string&>();
  }
  content = std::move(text);
  return {};
}

Result<void> shape_content(Json& message, const Caps& caps, size_t index) {
  auto it = message.find("content");
  if (it == message.end()) return {};
  if (it->is_array()) {
    bool as_parts = caps.part_content;
    return as_parts ? Result<void>() : flatten(*it, at(index) + ".content");
  }
  if (it->is_string() && !caps.string_content && caps.part_content) {
    *it = Json::array({Json{{"type", "text"}, {"text", *it}}});
  }
  if (!it->is_string() && !it->is_null() && !it->is_array()) {
    return fail(Code::invalid, "content must be a string, a list of parts or null",
                at(index) + ".content");
  }
  return {};
}

Result<void> shape_arguments(Json& message, const Caps& caps, size_t index) {
  auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return {};
  for (size_t i = 0; i < calls->size(); ++i) {
    Json& call = (*calls)[i];
    std::string where = at(index) + ".tool_calls[" + std::to_string(i) + "]";
    if (!call.is_object()) return fail(Code::invalid, "a tool call must be an object", where);
    Json* function = call.contains("function") ? &call["function"] : &call;
    if (!function->is_object() || !function->contains("arguments")) continue;
    Json& arguments = (*function)["arguments"];
    if (arguments.is_string() && caps.object_arguments) {
      const auto& text = arguments.get_ref<const std::string&>();
      Json parsed = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
      if (!parsed.is_object()) {
        return fail(Code::invalid,
                    "the arguments of a tool call must be a JSON object written as a string",
                    where + ".function.arguments");
      }
      arguments = std::move(parsed);
    } else if (!arguments.is_string() && !caps.object_arguments) {
      arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  return {};
}

Result<jinja::Value> messages_value(const RenderInput& input, const Caps& caps) {
  if (!input.messages.is_array()) {
    return fail(Code::invalid, "messages must be an array", "messages");
  }
  std::vector<jinja::Value> items;
  for (size_t i = 0; i < input.messages.size(); ++i) {
    Json message = input.messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return fail(Code::invalid, "a message must be an object with a string as its role", at(i));
    }
    PN_TRY(shape_content(message, caps, i));
    PN_TRY(shape_arguments(message, caps, i));
    Result<jinja::Value> v = jinja::from_json(message);
    if (!v) {
      v.error().param = at(i);
      return v;
    }
    v->dict()->message = static_cast<int>(i);
    items.push_back(*std::move(v));
  }
  return jinja::Value::list(std::move(items));
}

bool reserved(std::string_view name) {
  for (const char* n : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (name == n) return true;
  }
  return false;
}

Result<void> add_extra(const RenderInput& input, const jinja::Program& program,
                       jinja::Variables& variables) {
  if (input.extra.is_null()) return {};
  if (!input.extra.is_object()) {
    return fail(Code::invalid, "chat_template_kwargs must be an object", "chat_template_kwargs");
  }
  for (const auto& [name, json] : input.extra.items()) {
    std::string param = "chat_template_kwargs." + name;
    if (reserved(name)) {
      return fail(Code::invalid, "'" + name + "' is set by the server, not by a request", param);
    }
    if (!program.mentions(name)) {
      return fail(Code::invalid,
                  "the chat template of this model does not use '" + name + "'; leave it out",
                  param);
    }
    if (name == "enable_thinking" && input.enable_thinking && json != *input.enable_thinking) {
      return fail(Code::invalid, "enable_thinking was given twice with different values", param);
    }
    Result<jinja::Value> v = jinja::from_json(json);
    if (!v) {
      v.error().param = param;
      return tl::make_unexpected(std::move(v).error());
    }
    if (name == "documents" || (name == "enable_thinking" && input.enable_thinking)) {
      for (auto& [known, value] : variables) {
        if (known == name) value = *v;
      }
    } else {
      variables.emplace_back(name, *std::move(v));
    }
  }
  return {};
}

}  // namespace

Result<jinja::Variables> make_variables(const RenderInput& input, const Caps& caps,
                                        const jinja::Program& program) {
  jinja::Variables variables;
  PN_TRY(jinja::Value messages, messages_value(input, caps));
  variables.emplace_back("messages", std::move(messages));
  jinja::Value tools{jinja::None{}};
  if (!input.tools.is_null() && !input.tools.empty()) {
    Result<jinja::Value> v = jinja::from_json(input.tools);
    if (!v) return fail(v.error().code, v.error().message, "tools");
    tools = *std::move(v);
  }
  variables.emplace_back("tools", std::move(tools));
  variables.emplace_back("documents", jinja::None{});
  variables.emplace_back("add_generation_prompt", input.add_generation_prompt);
  variables.emplace_back("bos_token", jinja::Value::text(input.bos_token));
  variables.emplace_back("eos_token", jinja::Value::text(input.eos_token));
  if (input.enable_thinking) variables.emplace_back("enable_thinking", *input.enable_thinking);
  PN_TRY(add_extra(input, program, variables));
  return variables;
}

}  // namespace pn::chat
