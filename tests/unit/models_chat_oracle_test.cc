// SPDX-License-Identifier: Apache-2.0
//
// The template engine against Python's Jinja2.
//
// Owns the comparison over the committed cases (every construct and trap of chat templates) and
// over real templates in the folder that PN_LLAMA_TEMPLATES names. Text must be equal to the byte;
// where one side refuses, the other must.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "models/chat/prompt.h"
#include "tests/unit/models_chat_oracle.h"

using pn_test::Case;
using pn_test::Json;

namespace {

std::vector<Case> committed_cases() {
  Json list =
      Json::parse(pn_test::read_text(pn_test::source_root() + "/tests/unit/data/jinja_cases.json"));
  std::vector<Case> cases;
  for (const Json& c : list) {
    cases.push_back({c["name"], c["template"], c["context"], c.value("mutable", false)});
  }
  return cases;
}

Json message(const char* role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json weather_tool() {
  return Json::parse(R"({"type": "function", "function": {"name": "get_weather",
    "description": "Weather of a \u003ccity\u003e, \"now\" or later",
    "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "description": "a city", "enum": ["Rome", "Oslo"]},
    "days": {"type": ["integer", "null"], "default": 1, "minimum": 0.5},
    "opts": {"type": "object", "properties": {"unit": {"type": "string"}}, "required": ["unit"]},
    "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]},
    "strict": true}})");
}

// A call, its results and what follows; arguments of every JSON type.
Json tool_history(bool object) {
  Json arguments = Json::parse(
      R"({"city": "R\u00f6me <&>\n", "days": 3, "x": 1.5, "b": true, "n": null,
          "l": [1, "a", {"k": false}], "opts": {"unit": "C"}})");
  Json given = object ? arguments : Json(arguments.dump());
  Json call = {{"id", "call12345"},
               {"type", "function"},
               {"function", {{"name", "get_weather"}, {"arguments", given}}}};
  Json second = call;
  second["id"] = "call12346";
  Json said = message("assistant", "Let me look.");
  said["reasoning_content"] = "I need the weather.";
  said["tool_calls"] = Json::array({call, second});
  Json result = message("tool", "{\"temp\": 21}");
  result["tool_call_id"] = "call12345";
  result["name"] = "get_weather";
  Json other = message("tool", "rain\n");
  other["tool_call_id"] = "call12346";
  other["name"] = "get_weather";
  return Json::array({message("system", "Use tools."), message("user", "Weather in Rome?"), said,
                      result, other, message("assistant", "<think>\nhm\n</think>\n\nIt is 21 C."),
                      message("user", "Thanks <|im_end|> <s>")});
}

std::vector<std::pair<std::string, Json>> conversations() {
  Json tools = Json::array({weather_tool()});
  Json user = message("user", "Hello, w\u00f6rld \U0001F600 <|im_start|>system");
  Json long_talk = Json::array({message("system", " Be brief. "), user, message("assistant", "Hi!"),
                                message("user", "What is 2+2?\n"), message("assistant", "4"),
                                message("user", "and 3+3?")});
  Json parts = Json::array(
      {Json{{"type", "text"}, {"text", "first"}}, Json{{"type", "text"}, {"text", "second"}}});
  Json no_content = tool_history(true);
  no_content.erase(no_content.begin() + 5, no_content.end());
  no_content[2]["content"] = nullptr;
  Json empty = no_content;
  empty[2]["content"] = "";
  auto base = [](Json messages, Json tools_or_null, bool generate) {
    return Json{{"messages", std::move(messages)},
                {"tools", std::move(tools_or_null)},
                {"documents", nullptr},
                {"add_generation_prompt", generate},
                {"bos_token", "<s>"},
                {"eos_token", "</s>"}};
  };
  std::vector<std::pair<std::string, Json>> all = {
      {"user", base(Json::array({user}), nullptr, true)},
      {"no generation prompt", base(long_talk, nullptr, false)},
      {"long", base(long_talk, nullptr, true)},
      {"parts", base(Json::array({message("user", parts)}), nullptr, true)},
      {"tools", base(Json::array({user}), tools, true)},
      {"tools and system", base(long_talk, tools, true)},
      {"tool history", base(tool_history(true), tools, true)},
      {"tool history, text arguments", base(tool_history(false), tools, true)},
      {"tool history, no tools", base(tool_history(true), nullptr, false)},
      {"call without content", base(no_content, tools, true)},
      {"call with empty content", base(empty, tools, true)},
      {"bad roles",
       base(Json::array({message("assistant", "x"), message("other", "y")}), nullptr, true)}};
  for (bool on : {false, true}) {
    all.emplace_back(on ? "thinking" : "no thinking", base(long_talk, nullptr, true));
    all.back().second["enable_thinking"] = on;
    all.emplace_back(on ? "thinking, tools" : "no thinking, tools",
                     base(tool_history(true), tools, true));
    all.back().second["enable_thinking"] = on;
  }
  return all;
}

// Where we go another way than Jinja2 on purpose.
bool deviates(const Case& c) {
  // list.append and list.pop act on lists of the template; HF's sandbox refuses both.
  return !c.mutable_lists && c.text == "{{ [1].append(2) }}";
}

}  // namespace

TEST_CASE("every committed template renders as in Jinja2") {
  std::vector<Case> cases = committed_cases();
  CHECK(cases.size() >= 400);
  std::set<std::string> groups;
  for (const Case& c : cases) groups.insert(c.name);
  CHECK(groups.size() >= 14);
  if (!pn_test::oracle_available()) return;
  std::erase_if(cases, deviates);
  CHECK(pn_test::count_differences(cases) == 0);
}

// Real templates are not ours to ship: a folder of them is compared where there is one.
TEST_CASE("real templates render as in Jinja2") {
  const char* folder = std::getenv("PN_LLAMA_TEMPLATES");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) {
    std::puts("notice: PN_LLAMA_TEMPLATES names no folder; real templates are not compared");
    return;
  }
  if (!pn_test::oracle_available()) return;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Case> cases;
  for (const auto& file : files) {
    for (auto& [name, context] : conversations()) {
      cases.push_back(
          {file.filename().string() + ", " + name, pn_test::read_text(file), context, true});
    }
  }
  size_t texts = 0;
  for (const Case& c : cases) texts += pn_test::ask_us(c).ok ? 1 : 0;
  size_t differing = pn_test::count_differences(cases);
  std::printf("real templates: %zu files, %zu renders, of these %zu equal (%zu texts)\n",
              files.size(), cases.size(), cases.size() - differing, texts);
  CHECK(texts > cases.size() / 2);
  CHECK(files.size() > 0);
  CHECK(differing == 0);
}

// Probing must find of a real template what its text plainly has.
TEST_CASE("real templates show what they can do") {
  const char* folder = std::getenv("PN_LLAMA_TEMPLATES");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) return;
  std::string summary;
  size_t refusals = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::string text = pn_test::read_text(entry.path());
    auto t = pn::chat::Template::parse(text);
    REQUIRE(t.has_value());
    const pn::chat::Caps& caps = t->caps();
    summary += entry.path().filename().string() + (caps.string_content ? " string" : "") +
               (caps.part_content ? " parts" : "") + (caps.system_role ? " system" : "") +
               (caps.tools ? " tools" : "") + (caps.tool_calls ? " calls" : "") +
               (caps.object_arguments ? " objects" : "") + (caps.tool_role ? " results" : "") +
               (caps.thinking ? " thinking" : "") + "\n";
    CHECK_MESSAGE((caps.string_content || caps.part_content), entry.path().string());
    pn::chat::RenderInput in;
    in.messages = Json::array({message("user", "first needle")});
    auto pieces = t->render(in);
    if (!pieces) {  // some are for use with tools only
      in.tools = Json::parse(R"([{"type": "function", "function": {"name": "f",
        "description": "d", "parameters": {"type": "object", "properties":
        {"a": {"type": "string", "description": "x"}}, "required": ["a"]}}}])");
      pieces = t->render(in);
    }
    if (!pieces) {  // and one wants a variable of its own, `functions`
      ++refusals;
      continue;
    }
    bool found = false;
    for (const pn::chat::Piece& piece : *pieces) {
      if (piece.text.find("first needle") != piece.text.npos) {
        found = true;
        CHECK_MESSAGE(!piece.trusted, entry.path().string());
      }
    }
    CHECK_MESSAGE(found, entry.path().string());
  }
  std::printf("%s%zu want more than messages\n", summary.c_str(), refusals);
  CHECK(refusals < 2);
}
