// SPDX-License-Identifier: Apache-2.0
//
// What a template can do, found by rendering.
//
// Owns the probe conversations. Each asks one question by putting a word into the conversation and
// looking for it in the prompt; a template that fails on a probe has answered no.
#include "models/chat/prompt.h"

namespace pn::chat {
namespace {

using Json = nlohmann::ordered_json;

// Words that no template has, and that survive trimming and quoting.
constexpr const char* kWord = "pnprobeword";
constexpr const char* kName = "pnprobename";
constexpr const char* kKey = "pnprobekey";

Json message(const char* role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json parts(const char* text) { return Json::array({Json{{"type", "text"}, {"text", text}}}); }

Json tool() {
  Json parameters = {{"type", "object"},
                     {"properties", {{kKey, {{"type", "string"}, {"description", "a key"}}}}},
                     {"required", Json::array({kKey})}};
  return Json{
      {"type", "function"},
      {"function",
       {{"name", kName}, {"description", "a name"}, {"parameters", std::move(parameters)}}}};
}

class Prober {
 public:
  explicit Prober(const jinja::Program& program) : program_(program) {
    input_.bos_token = "<s>";
    input_.eos_token = "</s>";
    input_.now = 0;
    verbatim_.string_content = verbatim_.part_content = verbatim_.object_arguments = true;
  }

  // Empty when the template refused, with tools too: some templates are for use with tools only.
  std::string render(Json messages, Json tools = nullptr, std::optional<bool> thinking = {}) {
    input_.messages = std::move(messages);
    input_.enable_thinking = thinking;
    std::string text = attempt(tools);
    return text.empty() && tools.is_null() ? attempt(Json::array({tool()})) : text;
  }

  bool object_arguments = true;  // else they are given as text

 private:
  std::string attempt(const Json& tools) {
    input_.tools = tools;
    Caps caps = verbatim_;
    caps.object_arguments = object_arguments;
    Result<jinja::Variables> variables = make_variables(input_, caps, program_);
    if (!variables) return {};
    Result<jinja::StrPtr> out = program_.render(*variables, 0);
    return out ? (*out)->text : std::string();
  }

  const jinja::Program& program_;
  RenderInput input_;
  Caps verbatim_;
};

bool has(const std::string& text, std::string_view word) {
  return text.find(word) != std::string::npos;
}

void probe_content(Prober& prober, Caps& caps) {
  std::string text = prober.render(Json::array({message("user", kWord)}));
  std::string part = prober.render(Json::array({message("user", parts(kWord))}));
  caps.string_content = has(text, kWord);
  // A template that prints the list itself has the word, and the list's quotes, in its output.
  caps.part_content = caps.string_content ? part == text : has(part, kWord) && !has(part, "'text'");
  if (!caps.string_content && !caps.part_content) caps.string_content = true;
}

Json word(const Caps& caps, const char* text) {
  return caps.string_content ? Json(text) : parts(text);
}

void probe_tools(Prober& prober, Caps& caps) {
  Json tools = Json::array({tool()});
  caps.tools = has(prober.render(Json::array({message("user", word(caps, "hi"))}), tools), kName);
  Json arguments = {{kKey, kWord}};
  Json call = {{"id", "call00001"},
               {"type", "function"},
               {"function", {{"name", kName}, {"arguments", std::move(arguments)}}}};
  auto history = [&](const Json& content) {
    Json said = message("assistant", content);
    said["tool_calls"] = Json::array({call});
    Json result = message("tool", word(caps, "pnproberesult"));
    result["tool_call_id"] = "call00001";
    result["name"] = kName;
    return Json::array({message("user", word(caps, "hi")), std::move(said), std::move(result)});
  };
  for (const Json& content : {Json(""), Json(nullptr), Json("so")}) {
    prober.object_arguments = true;
    std::string object = prober.render(history(content), tools);
    prober.object_arguments = false;
    std::string text = prober.render(history(content), tools);
    // Python's look of a dict, where JSON was meant: the template wants text.
    bool printed = has(object, std::string("{'") + kKey + "'");
    bool takes_object = has(object, kWord) && !printed;
    if (!takes_object && !has(text, kWord)) continue;
    caps.tool_calls = true;
    caps.object_arguments = takes_object;
    caps.tool_role = has(takes_object ? object : text, "pnproberesult");
    break;
  }
  prober.object_arguments = true;
  if (!caps.tool_calls) caps.object_arguments = true;
}

}  // namespace

Caps probe(const jinja::Program& program) {
  Caps caps;
  Prober prober(program);
  probe_content(prober, caps);
  Json hi = message("user", word(caps, "hi"));
  caps.system_role =
      has(prober.render(Json::array({message("system", word(caps, kWord)), hi})), kWord);
  probe_tools(prober, caps);
  if (program.mentions("enable_thinking")) {
    Json only = Json::array({hi});
    std::string on = prober.render(only, nullptr, true);
    caps.thinking = on != prober.render(only, nullptr, false);
  }
  return caps;
}

}  // namespace pn::chat
