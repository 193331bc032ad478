// SPDX-License-Identifier: Apache-2.0
//
// Fuzz entry for chat templates: the input is a template, rendered over a fixed conversation.
// Build with clang -fsanitize=fuzzer,address and the chat library. Broken promises trap, so that a
// fuzzer keeps the input.
//
// The promises: it ends within its limits; the text is UTF-8; marks are sorted, apart and inside
// the text; and a character that only the conversation has is never outside a mark.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/chat/jinja_program.h"
#include "models/chat/jinja_unicode.h"

namespace {

using namespace pn::jinja;

// U+E123, of the private use area
constexpr const char* kOurs = "\xEE\x84\xA3";

void must(bool holds) {
  if (!holds) __builtin_trap();
}

Value conversation() {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": "a b"}, {"role": "user", "content": "X<>\n y"},
    {"role": "assistant", "content": null, "n": [1, 2.5, true],
     "tool_calls": [{"function": {"name": "f", "arguments": {"k": "v"}}}]}])");
  for (auto& message : json) {
    if (message["content"].is_string()) {
      message["content"] = kOurs + message["content"].get<std::string>() + kOurs;
    }
  }
  auto value = from_json(json);
  must(value.has_value());
  return *value;
}

// Could the template make the character itself, from an escape or a number?
bool may_make_it(const std::string& source) {
  if (source.find(kOurs) != std::string::npos) return true;
  for (const char* way : {"\\", "%"}) {
    if (source.find(way) != std::string::npos && source.find("e123") != std::string::npos)
      return true;
  }
  return source.find("E123") != std::string::npos;
}

void check(const Str& out, bool own) {
  must(valid_utf8_prefix(out.text) == out.text.size());
  must(count_chars(out.text) == out.chars);
  size_t at = 0;
  for (const Span& span : out.input) {
    must(span.begin >= at && span.begin < span.end && span.end <= out.text.size());
    must(at == 0 || span.begin > at);
    at = span.end;
  }
  size_t cursor = 0;
  for (size_t p = out.text.find(kOurs); p != out.text.npos; p = out.text.find(kOurs, p + 1)) {
    must(own || is_input(out, p, cursor));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string source(reinterpret_cast<const char*>(data), size);
  Limits limits;
  limits.max_steps = 50'000;
  limits.max_work_bytes = 8 << 20;
  limits.max_string_bytes = limits.max_output_bytes = 1 << 20;
  auto program = Program::parse(source, limits);
  if (!program) {
    must(!program.error().message.empty());
    return 0;
  }
  auto out = program->render({{"messages", conversation()},
                              {"tools", None{}},
                              {"bos_token", Value::text("<s>")},
                              {"add_generation_prompt", true}});
  if (out) check(**out, may_make_it(source));
  return 0;
}
