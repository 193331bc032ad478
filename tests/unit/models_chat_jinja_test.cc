// SPDX-License-Identifier: Apache-2.0
//
// The template engine by itself: marks of input, limits, errors, threads.
//
// Owns what Jinja2 cannot be asked: which bytes came from the request. Marked bytes are shown in
// brackets: "a[b]c" says that b came from the request.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "models/chat/jinja_program.h"

using namespace pn::jinja;

namespace {

pn::Result<StrPtr> run(const std::string& source, const nlohmann::ordered_json& context) {
  auto program = Program::parse(source);
  if (!program) return tl::make_unexpected(program.error());
  Variables variables;
  for (const auto& [name, json] : context.items()) variables.emplace_back(name, *from_json(json));
  variables.emplace_back("bos", Value::text("<s>"));
  return program->render(variables);
}

std::string marked(const std::string& source) {
  auto out = run(source, {{"x", "xy z"}, {"d", {{"k", "v"}, {"n", 7}}}, {"e", "\xC3\xA9q"}});
  if (!out) return out.error().message;
  std::string text;
  size_t at = 0;
  for (const Span& span : (*out)->input) {
    text += (*out)->text.substr(at, span.begin - at) + "[" +
            (*out)->text.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return text + (*out)->text.substr(at);
}

pn::Error error_of(const std::string& source, const nlohmann::ordered_json& context = {}) {
  auto out = run(source, context);
  REQUIRE(!out.has_value());
  return out.error();
}

}  // namespace

TEST_CASE("joining keeps the marks of each part") {
  CHECK(marked("a{{ x }}b{{ bos }}") == "a[xy z]b<s>");
  CHECK(marked("{{ '<' + x + '>' }}") == "<[xy z]>");
  CHECK(marked("{{ '<' ~ x ~ d.n ~ '>' }}") == "<[xy z]7>");
  CHECK(marked("{{ [x, 'b', x]|join('-') }}") == "[xy z]-b-[xy z]");
  CHECK(marked("{{ x.join(['a', 'b']) }}") == "a[xy z]b");
  CHECK(marked("{{ ('<' ~ x) * 2 }}") == "<[xy z]<[xy z]");
  CHECK(marked("{% set t %}<{{ x }}>{% endset %}{{ t }}{{ t }}") == "<[xy z]><[xy z]>");
  CHECK(marked("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}{{ m('x') }}") == "<[xy z]><x>");
  CHECK(marked("{{ x }}{{ x }}") == "[xy zxy z]");
}

TEST_CASE("cutting keeps the marks of what is left") {
  CHECK(marked("{{ ('ab' ~ x ~ 'cd')[1:4] }}") == "b[xy]");
  CHECK(marked("{{ ('ab' ~ x ~ 'cd')[::-1] }}") == "dc[z yx]ba");
  CHECK(marked("{{ (' ' ~ x ~ ' !')[:-1]|trim }}!") == "[xy z]!");
  CHECK(marked("{{ ('<' ~ x ~ '>').strip('<>x') }}") == "[y z]");
  CHECK(marked("{{ ('a-' ~ x ~ '-b').split('-')|join('+') }}") == "a+[xy z]+b");
  CHECK(marked("{% for c in 'a' ~ x %}{{ c }}.{% endfor %}") == "a.[x].[y].[ ].[z].");
  CHECK(marked("{{ ('a' ~ x)[1] }}{{ ('a' ~ x)[0] }}") == "[x]a");
  CHECK(marked("{{ ('a ' ~ x).partition(' ')|join('|') }}") == "a| |[xy z]");
  CHECK(marked("{{ ('ab' ~ x ~ 'cdefgh')|truncate(5, true, '~', 0) }}") == "ab[xy]~");
  CHECK(marked("{{ ('a' ~ e ~ 'b')[1:3] }}") == "[\xC3\xA9q]");
}

TEST_CASE("changing keeps the marks of what it came from") {
  CHECK(marked("{{ ('a' ~ x)|upper }}") == "A[XY Z]");
  CHECK(marked("{{ ('a ' ~ x)|title }}") == "A [Xy Z]");
  CHECK(marked("{{ ('A' ~ x).capitalize() }}") == "A[xy z]");
  CHECK(marked("{{ (e ~ 'a').upper() }}") == "[\xC3\x89Q]A");
  CHECK(marked("{{ ('<' ~ x ~ '>')|replace('y', '_') }}") == "<[x]_[ z]>");
  CHECK(marked("{{ '<a>'.replace('a', x) }}") == "<[xy z]>");
  CHECK(marked("{{ ('a\n' ~ x)|indent(2) }}") == "a\n  [xy z]");
  CHECK(marked("{{ x|center(8) }}") == "  [xy z]  ");
  CHECK(marked("{{ ('<' ~ x)|e }}") == "&lt;[xy z]");
  CHECK(marked("{{ x|urlencode }}/") == "[xy%20z]/");
}

TEST_CASE("formats and prints keep the marks of values") {
  CHECK(marked("{{ '<%s|%5s>' % (x, 'a') }}") == "<[xy z]|    a>");
  CHECK(marked("{{ '<{}|{:>6}>'.format(x, x) }}") == "<[xy z]|  [xy z]>");
  CHECK(marked("{{ '%r' % x }}") == "'[xy z]'");
  CHECK(marked("{{ '%c%c' % (d.n + 53, 'a') }}") == "[<]a");
  CHECK(marked("{{ d }}") == "{'[k]': '[v]', '[n]': 7}");
  CHECK(marked("{{ d|tojson }}") == "{\"[k]\": \"[v]\", \"[n]\": 7}");
  CHECK(marked("{{ [x, 'a']|tojson }}") == "[\"[xy z]\", \"a\"]");
  CHECK(marked("{{ ('\"' ~ e)|tojson(ensure_ascii=true) }}") == "\"\\\"[\\u00e9q]\"");
  CHECK(marked("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}") == "[k]=[v];[n]=7;");
  CHECK(marked("{{ ('{\"a\": \"<s>\"}'|from_json).a }}") == "[<s>]");
}

TEST_CASE("input is marked through names, namespaces and dicts of the template") {
  CHECK(marked("{% set ns = namespace(a='') %}{% set ns.a = ns.a ~ '<' ~ x %}{{ ns.a }}") ==
        "<[xy z]");
  CHECK(marked("{{ {'a': x, 'b': 'c'}.values()|list|join }}") == "[xy z]c");
  CHECK(marked("{{ [x, bos]|map('trim')|join }}") == "[xy z]<s>");
  CHECK(marked("{{ ['b', x, 'a']|sort|join(',') }}") == "a,b,[xy z]");
  CHECK(marked("{{ u|default(x) }}{{ none|default('n', true) }}") == "[xy z]n");
}

TEST_CASE("broken UTF-8 of a request becomes replacement characters") {
  nlohmann::ordered_json context = {{"x", std::string("a\xFF") + "b\xE2\x82"}};
  auto out = run("{{ x|length }}{{ x }}", context);
  REQUIRE(out.has_value());
  CHECK((*out)->text ==
        "5a\xEF\xBF\xBD"
        "b\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("errors name the line and whom to blame") {
  pn::Error e = error_of("a\nb\n{{ x.y.z }}", {{"x", {{"a", 1}}}});
  CHECK(e.message == "template line 3: 'dict object' has no attribute 'y'");
  CHECK(e.param == "messages");
  CHECK(e.code == pn::Code::invalid);
  e = error_of("{{ raise_exception('Only user and assistant') }}");
  CHECK(e.message == "Only user and assistant");
  e = error_of("{{ nope.x }}");
  CHECK(e.message == "template line 1: 'nope' is undefined");
  e = error_of("\n{% for i in range(99) %}\n{{ 'a' * 99999999 }}{% endfor %}");
  CHECK(e.param == "chat_template");
  CHECK(e.message.find("line 3") != std::string::npos);
  e = error_of("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}");
  CHECK(e.message.find("macro 'f' takes not more than 1") != std::string::npos);
}

TEST_CASE("each limit acts and can be set") {
  Limits limits;
  limits.max_steps = 100;
  auto p = Program::parse("{% for i in range(50) %}{{ i }}{% endfor %}", limits);
  CHECK(p->render({}).error().message.find("more than 100 steps") != std::string::npos);
  limits = {};
  limits.max_output_bytes = 10;
  p = Program::parse("{{ 'a' * 5 }}{{ 'b' * 6 }}", limits);
  CHECK(!p->render({}).has_value());
  p = Program::parse("{{ 'a' * 5 }}{{ 'b' * 5 }}", limits);
  CHECK(p->render({}).has_value());
  limits = {};
  limits.max_nesting = 20;
  CHECK(!Program::parse("{{ ((((((((((((1)))))))))))) }}", limits).has_value());
  CHECK(Program::parse("{{ (((1))) }}", limits).has_value());
  limits = {};
  limits.max_range = 3;
  CHECK(Program::parse("{{ range(3) }}", limits)->render({}).has_value());
  CHECK(!Program::parse("{{ range(4) }}", limits)->render({}).has_value());
}

TEST_CASE("strftime_now prints the given time") {
  auto p = Program::parse("{{ strftime_now('%Y') }}");
  CHECK((*p->render({}, 951782400))->text == "2000");
}

TEST_CASE("one program renders in several threads") {
  auto p = Program::parse("{% for i in range(200) %}{{ x }}{{ i }}{% endfor %}");
  Variables variables{{"x", *from_json("v")}};
  std::string expected = (*p->render(variables))->text;
  std::vector<std::string> got(4);
  std::vector<std::thread> threads;
  for (auto& text : got) {
    threads.emplace_back([&] {
      Variables own{{"x", *from_json("v")}};
      for (int i = 0; i < 20; ++i) text = (*p->render(own))->text;
    });
  }
  for (auto& t : threads) t.join();
  for (const auto& text : got) CHECK(text == expected);
}
