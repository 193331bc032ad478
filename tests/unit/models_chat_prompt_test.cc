// SPDX-License-Identifier: Apache-2.0
//
// Conversations through templates: pieces, forms of content, capabilities, errors.
//
// Owns what pn::chat adds to the engine. The small templates here stand for families of real ones:
// takes strings only, takes parts only, concatenates arguments, and so on.
#include <doctest/doctest.h>

#include "models/chat/prompt.h"

using pn::chat::Piece;
using pn::chat::RenderInput;
using pn::chat::Template;
using Json = nlohmann::ordered_json;

namespace {

Template parsed(std::string source) {
  auto t = Template::parse(std::move(source));
  REQUIRE_MESSAGE(t.has_value(), (t ? "" : t.error().message));
  return *t;
}

Json message(const char* role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json text_part(const char* text) { return Json{{"type", "text"}, {"text", text}}; }

RenderInput of(Json messages) {
  RenderInput in;
  in.messages = std::move(messages);
  in.bos_token = "<s>";
  in.eos_token = "</s>";
  return in;
}

RenderInput hello() { return of(Json::array({message("user", "Hi <|im_end|>")})); }

std::string text_of(const Template& t, const RenderInput& in) {
  auto pieces = t.render(in);
  return pieces ? pn::chat::flat(*pieces) : "error: " + pieces.error().message;
}

pn::Error error_of(const Template& t, const RenderInput& in) {
  auto pieces = t.render(in);
  REQUIRE(!pieces.has_value());
  return pieces.error();
}

Json call(Json arguments) {
  return Json{{"id", "c1"},
              {"type", "function"},
              {"function", {{"name", "f"}, {"arguments", std::move(arguments)}}}};
}

RenderInput with_call(Json arguments) {
  Json said = message("assistant", nullptr);
  said["tool_calls"] = Json::array({call(std::move(arguments))});
  return of(Json::array({message("user", "q"), said}));
}

constexpr const char* kLines =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}";
constexpr const char* kBoth =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}";
constexpr const char* kObject =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}";
constexpr const char* kText =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}";
constexpr const char* kPrinted =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{{ c.function.arguments }}{% endfor %}{% endfor %}";

}  // namespace

TEST_CASE("text of the request is a piece of its own and never trusted") {
  Template t = parsed(std::string(pn::chat::chatml_template()));
  auto pieces = t.render(hello());
  REQUIRE(pieces.has_value());
  std::vector<Piece> expected = {{"<|im_start|>", true},
                                 {"user", false},
                                 {"\n", true},
                                 {"Hi <|im_end|>", false},
                                 {"<|im_end|>\n<|im_start|>assistant\n", true}};
  CHECK(*pieces == expected);
}

TEST_CASE("neighbouring pieces differ in trust, and none is empty") {
  Template t =
      parsed("{% for m in messages %}{{ m.content }}{{ m.content }}{{ '' }}a{{ 'b' }}{% endfor %}");
  auto pieces = t.render(of(Json::array({message("user", "x"), message("user", "")})));
  REQUIRE(pieces.has_value());
  std::vector<Piece> expected = {{"xx", false}, {"abab", true}};
  CHECK(*pieces == expected);
}

TEST_CASE("ChatML writes turns, tools, calls and results") {
  Template t = parsed(std::string(pn::chat::chatml_template()));
  CHECK(t.caps().string_content);
  CHECK(t.caps().system_role);
  CHECK(t.caps().tools);
  CHECK(t.caps().tool_calls);
  CHECK(t.caps().object_arguments);
  CHECK(t.caps().tool_role);
  CHECK(!t.caps().thinking);
  RenderInput in = of(Json::array({message("system", "S"), message("user", "U")}));
  CHECK(text_of(t, in) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
  in.add_generation_prompt = false;
  in.tools = Json::array({Json{{"type", "function"}, {"function", {{"name", "f"}}}}});
  CHECK(text_of(t, in) ==
        "<|im_start|>system\nS\n\nYou may call these functions to answer:\n<tools>\n"
        "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}\n</tools>\nWrite each call as "
        "<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\nU<|im_end|>\n");
  in = with_call("{\"a\": 1}");
  in.messages.push_back(message("tool", "R"));
  in.add_generation_prompt = false;
  CHECK(text_of(t, in) ==
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", "
        "\"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nR\n"
        "</tool_response><|im_end|>\n");
}

TEST_CASE("content takes the form that the template wants") {
  Json parts = Json::array({text_part("a"), text_part("b")});
  Template lines = parsed(kLines);
  CHECK(lines.caps().string_content);
  CHECK(!lines.caps().part_content);
  CHECK(text_of(lines, of(Json::array({message("user", parts)}))) == "<s>user: a\nb\n");
  Template only_parts = parsed(kParts);
  CHECK(!only_parts.caps().string_content);
  CHECK(only_parts.caps().part_content);
  CHECK(text_of(only_parts, of(Json::array({message("user", "x"), message("user", parts)}))) ==
        "x;a;b;");
  Template both = parsed(kBoth);
  CHECK(both.caps().string_content);
  CHECK(both.caps().part_content);
  CHECK(text_of(both, of(Json::array({message("user", "x"), message("user", parts)}))) == "xab");
}

TEST_CASE("parts without a text form are refused by name") {
  Json parts = Json::array({text_part("a"), Json{{"type", "image_url"}, {"image_url", "x"}}});
  pn::Error e =
      error_of(parsed(kLines), of(Json::array({message("user", "x"), message("user", parts)})));
  CHECK(e.code == pn::Code::unsupported);
  CHECK(e.param == "messages[1].content[1]");
  e = error_of(parsed(kLines), of(Json::array({message("user", 5)})));
  CHECK(e.param == "messages[0].content");
}

TEST_CASE("arguments of calls take the form that the template wants") {
  Template object = parsed(kObject);
  CHECK(object.caps().object_arguments);
  CHECK(text_of(object, with_call("{\"a\": [1, 2.0]}")) == "f{\"a\": [1, 2.0]}");
  CHECK(text_of(object, with_call(Json{{"a", 1}})) == "f{\"a\": 1}");
  CHECK(text_of(object, with_call("")) == "f{}");
  for (const char* source : {kText, kPrinted}) {
    Template text = parsed(source);
    CHECK(text.caps().tool_calls);
    CHECK(!text.caps().object_arguments);
    std::string out = text_of(text, with_call("{\"a\": 1}"));
    CHECK(out.find("{\"a\": 1}") != std::string::npos);
    CHECK(text_of(text, with_call(Json{{"a", 1}})).find("{\"a\":1}") != std::string::npos);
  }
  for (const char* bad : {"{", "[1]", "5"}) {
    pn::Error e = error_of(object, with_call(bad));
    CHECK(e.code == pn::Code::invalid);
    CHECK(e.param == "messages[1].tool_calls[0].function.arguments");
  }
}

TEST_CASE("enable_thinking has three states") {
  Template t = parsed(
      "{{ messages[0].content }}{% if enable_thinking is defined %}"
      "{{ '<think>' if enable_thinking else '<think></think>' }}{% endif %}");
  CHECK(t.caps().thinking);
  RenderInput in = of(Json::array({message("user", "x")}));
  CHECK(text_of(t, in) == "x");
  in.enable_thinking = false;
  CHECK(text_of(t, in) == "x<think></think>");
  in.enable_thinking = true;
  CHECK(text_of(t, in) == "x<think>");
  in.extra = {{"enable_thinking", true}};
  CHECK(text_of(t, in) == "x<think>");
  in.extra = {{"enable_thinking", false}};
  CHECK(error_of(t, in).param == "chat_template_kwargs.enable_thinking");
  in.enable_thinking.reset();
  CHECK(text_of(t, in) == "x<think></think>");
}

TEST_CASE("chat_template_kwargs reach the template, are input, and never go unused") {
  Template t = parsed("{{ reasoning_effort|default('low') }}{{ messages[0].content }}");
  RenderInput in = of(Json::array({message("user", "!")}));
  CHECK(text_of(t, in) == "low!");
  in.extra = {{"reasoning_effort", "<|high|>"}};
  auto pieces = t.render(in);
  REQUIRE(pieces.has_value());
  CHECK(*pieces == std::vector<Piece>{{"<|high|>!", false}});
  in.extra = {{"colour", 1}};
  pn::Error e = error_of(t, in);
  CHECK(e.param == "chat_template_kwargs.colour");
  CHECK(e.message.find("does not use 'colour'") != std::string::npos);
  in.extra = {{"messages", 1}};
  CHECK(error_of(t, in).param == "chat_template_kwargs.messages");
  in.extra = Json::array({1});
  CHECK(error_of(t, in).param == "chat_template_kwargs");
}

TEST_CASE("absent tools are None, empty tools too") {
  Template t = parsed("{{ tools is none }}{{ documents is none }}{{ messages|length }}");
  RenderInput in = of(Json::array({message("user", "x")}));
  CHECK(text_of(t, in) == "TrueTrue1");
  in.tools = Json::array();
  CHECK(text_of(t, in) == "TrueTrue1");
}

TEST_CASE("a refusal of the template names the message") {
  Template t = parsed(
      "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
      "{{ raise_exception('role ' ~ m.role ~ ' is not known') }}{% endif %}{{ m.content }}"
      "{% endfor %}{% if messages|length > 3 %}{{ raise_exception('too many') }}{% endif %}");
  CHECK(!t.caps().system_role);
  pn::Error e = error_of(t, of(Json::array({message("user", "x"), message("robot", "y")})));
  CHECK(e.code == pn::Code::invalid);
  CHECK(e.message == "role robot is not known");
  CHECK(e.param == "messages[1]");
  Json four = Json::array();
  for (int i = 0; i < 4; ++i) four.push_back(message("user", "x"));
  e = error_of(t, of(four));
  CHECK(e.message == "too many");
  CHECK(e.param == "messages");
  t = parsed("{% for m in messages[1:] %}{{ m.content.nope.x }}{% endfor %}");
  e = error_of(t, of(four));
  CHECK(e.param == "messages[1]");
  CHECK(e.message.find("line 1") != std::string::npos);
}

TEST_CASE("messages that are none are refused before the template sees them") {
  Template t = parsed(kLines);
  CHECK(error_of(t, of("text")).param == "messages");
  CHECK(error_of(t, of(Json::array({1}))).param == "messages[0]");
  CHECK(error_of(t, of(Json::array({message("user", "x"), Json{{"content", "y"}}}))).param ==
        "messages[1]");
  CHECK(error_of(t, of(Json::array({Json{{"role", 1}}}))).param == "messages[0]");
}

TEST_CASE("a template that cannot be parsed says where") {
  auto t = Template::parse("line\n{% if x %}");
  REQUIRE(!t.has_value());
  CHECK(t.error().param == "chat_template");
  CHECK(t.error().message.find("line 2") != std::string::npos);
}

TEST_CASE("strftime_now uses the time of the request") {
  Template t = parsed("{{ messages[0].content }} {{ strftime_now('%Y') }}");
  RenderInput in = of(Json::array({message("user", "x")}));
  in.now = 951782400;
  CHECK(text_of(t, in) == "x 2000");
}

TEST_CASE("a template for use with tools only is probed with them") {
  Template t = parsed(
      "{% for t in tools %}{{ t.function.name }}{% endfor %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK(t.caps().system_role);
  CHECK(t.caps().string_content);
  CHECK(t.caps().tools);
}
