// SPDX-License-Identifier: Apache-2.0
//
// Conversations -> prompts, through the chat template of a model file.
//
// Owns what a template is given and what comes out of it: text in pieces, each marked as trusted
// (written by the template or the host) or not (taken from the request). Only trusted pieces may be
// parsed for control tokens, so a user cannot write a turn of somebody else. Knows no tokenizer and
// no HTTP.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/jinja_program.h"

namespace pn::chat {

struct Piece {
  std::string text;  // UTF-8, not empty
  bool trusted = false;

  bool operator==(const Piece&) const = default;
};

struct RenderInput {
  nlohmann::ordered_json messages;  // array of {role, content, ...}, as in OpenAI's API
  nlohmann::ordered_json tools;     // array of {type: function, function: {...}}, or null
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;     // trusted text
  std::optional<bool> enable_thinking;  // absent is a third state: the template's own default
  nlohmann::ordered_json extra;         // chat_template_kwargs: object, or null
  std::optional<int64_t> now;           // seconds since 1970 for strftime_now; absent: the clock
};

// What a template was seen to do with probe conversations when it was parsed.
struct Caps {
  bool string_content = false;    // content given as a string reaches the prompt
  bool part_content = false;      // content given as [{type: text, text: ...}] does, and as well
  bool system_role = false;       // a system message reaches the prompt
  bool tools = false;             // tool definitions do
  bool tool_calls = false;        // an assistant's tool calls do
  bool object_arguments = false;  // their arguments are wanted as an object, not as JSON text
  bool tool_role = false;         // results in messages of role `tool` do
  bool thinking = false;          // enable_thinking changes the prompt
};

class Template {
 public:
  // Parses and probes. An error has param "chat_template" and names a line.
  static Result<Template> parse(std::string source, const jinja::Limits& limits = {});

  // Neighbouring pieces differ in `trusted`. Errors: raise_exception of the template comes with its
  // own text; param names the message at fault ("messages[2]") when it is known.
  Result<std::vector<Piece>> render(const RenderInput& input) const;

  const Caps& caps() const { return caps_; }
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  jinja::Program program_;
  Caps caps_;
};

// ChatML, for files that have no template.
std::string_view chatml_template();

// The text of all pieces.
std::string flat(const std::vector<Piece>& pieces);

// Internals of this folder.
// What the template is called with, after content and arguments took the form that `caps` ask for.
Result<jinja::Variables> make_variables(const RenderInput& input, const Caps& caps,
                                        const jinja::Program& program);
Caps probe(const jinja::Program& program);

}  // namespace pn::chat
