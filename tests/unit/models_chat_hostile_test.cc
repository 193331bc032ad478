// SPDX-License-Identifier: Apache-2.0
//
// Templates that want too much: each must end in an error that says why, within a second
// of processor time.
//
// A model file is untrusted input. The time bound is loose for a sanitizer build or a busy host;
// what stops a template is a count, not a clock.
#include <doctest/doctest.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "models/chat/jinja_program.h"

using pn::jinja::Program;

namespace {

// 0.1 s is the slowest of these here; sanitizers cost a factor of up to ten.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSeconds = 10;
#else
constexpr double kSeconds = 1;
#endif

std::string times(const std::string& s, size_t n) {
  std::string out;
  for (; n > 0; --n) out += s;
  return out;
}

// Of this thread's own work: other processes of a busy host do not count.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Parses and renders; the error's text, or "rendered".
std::string outcome(const std::string& source) {
  double start = thread_seconds();
  std::string said = "rendered";
  {
    auto program = Program::parse(source);
    if (!program) {
      said = program.error().message;
    } else if (auto out = program->render({}); !out) {
      said = out.error().message;
    }
  }
  CHECK_MESSAGE(thread_seconds() - start < kSeconds, source.substr(0, 120));
  return said;
}

void refused(const std::string& source, const std::string& why) {
  std::string said = outcome(source);
  CHECK_MESSAGE(said.find(why) != std::string::npos, source.substr(0, 160), " -> ", said);
  CHECK_MESSAGE(said.find("line ") != std::string::npos, said);
}

}  // namespace

TEST_CASE("syntax nested too deeply is refused while parsing") {
  const std::pair<const char*, const char*> kinds[] = {
      {"(", ")"}, {"[", "]"}, {"{'a':", "}"}, {"-", ""}, {"not ", ""}, {"x[", "]"}, {"f(", ")"}};
  for (const auto& [open, close] : kinds) {
    refused("{{ " + times(open, 20000) + "1" + times(close, 20000) + " }}", "deeper than");
    CHECK(outcome("{{ " + times(open, 20000) + "1 }}") != "rendered");
  }
  refused("{{ 1" + times(" + 1", 20000) + " }}", "deeper than");
  refused("{{ x" + times(".a", 20000) + " }}", "deeper than");
  refused("{{ x" + times("|upper", 20000) + " }}", "deeper than");
  refused("{{ x" + times("()", 20000) + " }}", "deeper than");
  refused("{{ 1" + times(" if 1 else 1", 20000) + " }}", "deeper than");
  refused(times("{% if 1 %}", 5000), "deeper than");
  refused(times("{% for i in x %}", 5000), "deeper than");
  refused("{% set " + times("(", 5000) + "x" + times(")", 5000) + " = 1 %}", "deeper than");
}

TEST_CASE("long but flat templates are fine") {
  CHECK(outcome("{% if 0 %}" + times("{% elif 0 %}", 5000) + "{% endif %}") == "rendered");
  CHECK(outcome("{{ ''" + times(" ~ 'a'", 5000) + " }}") == "rendered");
  CHECK(outcome("{{ [" + times("1,", 5000) + "]|sum }}") == "rendered");
}

TEST_CASE("loops end") {
  refused("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
          "steps");
  refused("{% for a in range(1000000000) %}{% endfor %}", "range()");
  refused("{{ range(-9223372036854775807, 9223372036854775807)|length }}", "range()");
  refused("{{ ([0] * 9223372036854775807)|length }}", "steps");
  refused(
      "{% set l = [1] %}{% for a in range(60) %}{% set ns = l %}{% endfor %}"
      "{% set ns = namespace(l=[1]) %}{% for a in range(60) %}{% set ns.l = ns.l + ns.l %}"
      "{% endfor %}",
      "stopped");
  refused(
      "{% set ns = namespace(l=[1]) %}{% for a in ns.l %}{% set _ = ns.l.append(1) %}{% endfor %}",
      "steps");
}

TEST_CASE("recursion ends") {
  refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion");
  refused("{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}", "recursion");
  refused("{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
          "recursion");
  refused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recursion");
  refused("{% macro f(n) %}{{ f(n+1) }}{{ f(n+1) }}{% endmacro %}{{ f(0) }}", "recursion");
  refused(
      "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}"
      "{% endcall %}{% endmacro %}{{ g() }}",
      "recursion");
}

TEST_CASE("strings and output stay bounded") {
  refused(
      "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}",
      "longer than");
  refused("{{ 'a' * 9223372036854775807 }}", "longer than");
  refused("{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}", "longer than");
  refused("{% set s = 'a' * 1000000 %}{{ s.join(s) }}", "longer than");
  refused("{% set s = 'a' * 5000 %}{{ s|replace('', s)|replace('a', s) }}", "longer than");
  refused("{{ ''.center(9223372036854775807) }}", "longer than");
  refused("{{ 'x'.zfill(999999999999) }}", "longer than");
  refused("{{ 'x'|indent(999999999999, true) }}", "longer than");
  refused("{{ '%999999999s' % 'x' }}", "wider");
  refused("{{ '{:999999999}'.format(1) }}", "wider");
  refused("{{ '%.999999999f' % 1.5 }}", "wider");
  refused("{% set s = 'a' * 100000 %}{% for i in range(100000) %}{{ s }}{% endfor %}", "too long");
  refused("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set t = s ~ i %}{% endfor %}",
          "bytes of strings");
  refused("{% set s = 'a' * 30000000 %}{% for c in s %}{% endfor %}", "stopped");
  refused("{% set s = 'ab' * 3000000 %}{{ s.split('b')|length }}", "stopped");
  refused("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}",
          "steps");
  refused("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s == s ~ '' }}{% endfor %}",
          "stopped");
}

TEST_CASE("values that share parts cost what they would print") {
  std::string doubling =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}";
  refused(doubling + "{{ ns.l }}", "stopped");
  refused(doubling + "{{ ns.l|tojson }}", "stopped");
  refused(doubling + "{% set a = ns.l %}" + doubling + "{{ a == ns.l }}", "stopped");
  refused(doubling + "{% set a = ns.l %}" + doubling + "{{ a < ns.l }}", "stopped");
  refused(doubling + "{{ [1].append(ns.l) }}", "stopped");
  refused(
      "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}"
      "{% endfor %}{{ {ns.l: 1} }}",
      "key");
}

TEST_CASE("deeply nested and self-holding values are printed to a limit and freed") {
  std::string deep = "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}";
  CHECK(outcome(deep + "{% set ns.l = [ns.l] %}{% endfor %}") == "rendered");
  CHECK(outcome(deep + "{% set ns.l = {'a': ns.l} %}{% endfor %}") == "rendered");
  CHECK(outcome(deep + "{% set ns.l = cycler(ns.l) %}{% endfor %}") == "rendered");
  CHECK(outcome(deep + "{% set ns.l = joiner(ns.l) %}{% endfor %}") == "rendered");
  CHECK(outcome(deep + "{% set ns.l = [ns.l].append %}{% endfor %}") == "rendered");
  CHECK(outcome(deep + "{% set ns.l = namespace(p=ns.l) %}{% endfor %}") == "rendered");
  CHECK(outcome(deep + "{% for x in [ns.l] %}{% set ns.l = loop %}{% endfor %}{% endfor %}") ==
        "rendered");
  refused(deep + "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "recursion");
  refused(deep + "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}", "recursion");
  refused(deep + "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == [ns.l] }}", "recursion");
  refused("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "recursion");
  refused("{% set l = [1] %}{{ l.append(l) }}", "itself");
}

TEST_CASE("a loop survives that its list shrinks under it") {
  CHECK(outcome("{% set l = [1,2,3,4] %}{% for x in l %}{% set _ = l.pop() %}{{ loop.previtem }}"
                "{{ loop.nextitem }}{{ loop.last }}{{ loop.length }}{% endfor %}") == "rendered");
}

TEST_CASE("broken files are refused with a line") {
  refused("a\n\n{{ x", "line 3");
  refused("a\n{% if x", "line 2");
  refused("{# never closed", "line 1");
  refused("{% if x %}\n{% for y in x %}", "not closed");
  refused("{{ 'abc }}", "string is not closed");
  refused("{{ 123456789012345678901234567890 }}", "64 bits");
  refused("{{ 9223372036854775807 + 1 }}", "64 bits");
  refused("{{ 2 ** 64 }}", "64 bits");
  refused("{{ -9223372036854775807 - 2 }}", "64 bits");
  refused("{{ 4611686018427387904 * 2 }}", "64 bits");
  refused("{{ '\\ud800' }}", "names no character");
  auto bad = Program::parse("ok \xFF\xFE {{ x }}");
  REQUIRE(!bad.has_value());
  CHECK(bad.error().message.find("not UTF-8 at byte 3") != std::string::npos);
  CHECK(bad.error().param == "chat_template");
  auto large = Program::parse(std::string(2 << 20, 'a'));
  REQUIRE(!large.has_value());
  CHECK(large.error().message.find("at most") != std::string::npos);
}

TEST_CASE("nothing of the host can be reached") {
  CHECK(outcome("{{ ''.__class__ }}{{ [].__class__ is defined }}") == "rendered");
  refused("{{ ''.__class__.__mro__ }}", "no attribute");
  refused("{% include '/etc/passwd' %}", "not supported");
  refused("{% import 'os' as os %}", "not supported");
  refused("{% from 'os' import x %}", "not supported");
  refused("{% extends 'x' %}", "not supported");
  refused("{{ open('/etc/passwd') }}", "undefined");
  refused("{{ self.x }}", "undefined");
  refused("{{ strftime_now('%1000000d') }}", "unknown directive");
}

TEST_CASE("a request cannot be too deep for a template") {
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 300; ++i) deep = nlohmann::ordered_json::array({deep});
  auto v = pn::jinja::from_json(deep);
  REQUIRE(!v.has_value());
  CHECK(v.error().message.find("too deeply") != std::string::npos);
}
