// SPDX-License-Identifier: Apache-2.0
//
// Random templates against Python's Jinja2.
//
// Owns a seeded generator of expressions and statements over a fixed set of variables. Types are
// mixed on purpose: a refusal must be a refusal on both sides. A failure prints the template; the
// seed is fixed, so it comes back.
#include <doctest/doctest.h>

#include <random>

#include "tests/unit/models_chat_oracle.h"

using pn_test::Case;
using pn_test::Json;

namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : rng_(seed) {}

  std::string expression(int depth) {
    if (depth <= 0) return atom();
    switch (pick(16)) {
      case 0:
      case 1:
        return "(" + expression(depth - 1) + one({" + ", " - ", " * ", " / ", " // ", " % "}) +
               expression(depth - 1) + ")";
      case 2:
        return "(" + expression(depth - 1) + one({" == ", " != ", " < ", " <= ", " > ", " >= "}) +
               expression(depth - 1) + ")";
      case 3:
        return "(" + expression(depth - 1) + one({" and ", " or "}) + expression(depth - 1) + ")";
      case 4:
        return "(" + expression(depth - 1) + " ~ " + expression(depth - 1) + ")";
      case 5:
        return "(not " + expression(depth - 1) + ")";
      case 6:
        return "(" + expression(depth - 1) + " if " + expression(depth - 1) + " else " +
               expression(depth - 1) + ")";
      case 7:
        return "(" + expression(depth - 1) + one({" in ", " not in "}) + expression(depth - 1) +
               ")";
      case 8:
        return expression(depth - 1) + subscript();
      case 9:
      case 10:
      case 11:
        return "(" + expression(depth - 1) + "|" + filter() + ")";
      case 12:
        return "(" + expression(depth - 1) + one({" is ", " is not "}) + test() + ")";
      case 13:
        return "(" + expression(depth - 1) + method() + ")";
      case 14:
        return "[" + expression(depth - 1) + ", " + expression(depth - 1) + "]";
      default:
        return "{" + one({"'k'", "1", "'a'", "true"}) + ": " + expression(depth - 1) + "}";
    }
  }

  std::string statement(int depth) {
    switch (depth <= 0 ? 0 : pick(7)) {
      case 1:
        return space("if " + expression(1)) + body(depth) + space("elif " + expression(1)) +
               body(depth) + space("else") + body(depth) + space("endif");
      case 2:
        return space("for v in " + one({"l", "s", "d", "range(3)", expression(1)})) +
               "{{ loop.index }}{{ v }}" + body(depth) + space("else") + "none" + space("endfor");
      case 3:
        return space("set " + one({"n", "s", "fresh"}) + " = " + expression(1));
      case 4:
        return space("set ns.x = " + expression(1)) + "{{ ns.x }}";
      case 5:
        return space("macro m(a, b=" + atom() + ")") + "<{{ a }}{{ b }}>" + space("endmacro") +
               "{{ m(" + expression(1) + ") }}";
      case 6:
        return space("set t") + body(depth) + space("endset") + "{{ t|length }}{{ t }}";
      default:
        return one({"text", " ", "\n", "  \n ", "x\n\n"}) + "{{ " + expression(1) + " }}";
    }
  }

  std::string body(int depth) {
    std::string text = one({"", "\n", "  ", "a"});
    for (size_t n = pick(3); n > 0; --n) text += statement(depth - 1);
    return text;
  }

 private:
  size_t pick(size_t n) { return rng_() % n; }
  std::string one(std::initializer_list<std::string> options) {
    return options.begin()[pick(options.size())];
  }

  std::string space(const std::string& tag) {
    return one({"{% ", "{%- ", "{%+ ", "  {% "}) + tag + one({" %}", " -%}", " +%}", " %}\n"});
  }

  std::string atom() {
    return one({"0",        "1",
                "-2",       "7",
                "2.5",      "-0.5",
                "''",       "'a'",
                "'b c'",    "' X '",
                "'1'",      "none",
                "true",     "false",
                "[]",       "l",
                "s",        "d",
                "n",        "f",
                "u",        "[3, 1, 2]",
                "{}",       "'caf\\u00e9'",
                "mixed",    "['b', 'a', 'B']",
                "(1, 'x')", "d.k",
                "l[0]",     "'it\\'s \"q\"'"});
  }

  std::string subscript() {
    return one({"[0]", "[-1]", "['k']", ".k", "[1:]", "[:-1]", "[::-1]", "[::2]", "[5]", ".missing",
                "[l[0]]", "[-2:]", "[none:2]"});
  }

  std::string filter() {
    return one({"length",
                "trim",
                "upper",
                "lower",
                "string",
                "default('z')",
                "d(1, true)",
                "join(',')",
                "list",
                "tojson",
                "tojson(indent=2)",
                "first",
                "last",
                "sort",
                "reverse|list",
                "int",
                "float",
                "abs",
                "title",
                "capitalize",
                "replace('a', 'b')",
                "unique|list",
                "min",
                "max",
                "sum",
                "map('string')|list",
                "select|list",
                "reject('none')|list",
                "dictsort",
                "items|list",
                "indent(2, true)",
                "round(1)",
                "center(7)",
                "truncate(4, true, '')",
                "wordcount",
                "batch(2)|list",
                "count",
                "int(5)",
                "select('string')|list",
                "map('upper')|join('-')",
                "sort(reverse=true)"});
  }

  std::string test() {
    return one({"defined", "none", "string", "number", "mapping", "iterable", "sequence", "true",
                "boolean", "integer", "float", "undefined", "eq(1)", "in(l)", "odd", "even",
                "lower", "upper", "divisibleby(2)"});
  }

  std::string method() {
    return one({".strip()",       ".split()",          ".split('a')",       ".upper()",
                ".items()|list",  ".get('k')",         ".get('z', 0)",      ".startswith('a')",
                ".keys()|list",   ".replace('a', '')", ".join(['x', 'y'])", ".title()",
                ".rstrip('X ')",  ".count('a')",       ".find('b')",        ".splitlines()",
                ".values()|list", ".isdigit()",        ".rsplit(' ', 1)",   ".partition(' ')",
                ".zfill(4)"});
  }

  std::mt19937 rng_;
};

Json context() {
  return Json{{"n", 3},
              {"f", 1.25},
              {"s", "Hello a\nworld"},
              {"l", Json::array({1, 2, 3})},
              {"d", {{"k", "v"}, {"a", 1}, {"items", Json::array({1})}}},
              {"mixed", Json::array({1, "a", nullptr, true, 2.0, Json::array({1})})}};
}

}  // namespace

TEST_CASE("random expressions evaluate as in Jinja2") {
  if (!pn_test::oracle_available()) return;
  Generator generator(20240607);
  std::vector<Case> cases;
  size_t texts = 0;
  for (int i = 0; i < 900; ++i) {
    cases.push_back({"random", "{{ " + generator.expression(1 + i % 3) + " }}", context()});
    texts += pn_test::ask_us(cases.back()).ok ? 1 : 0;
  }
  CHECK(texts > 300);  // else the comparison is mostly of refusals
  CHECK(pn_test::count_differences(cases) == 0);
}

TEST_CASE("random templates render as in Jinja2") {
  if (!pn_test::oracle_available()) return;
  Generator generator(977);
  std::vector<Case> cases;
  size_t texts = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = "{% set ns = namespace(x=0) %}";
    for (int k = 0; k < 3; ++k) text += generator.statement(2);
    cases.push_back({"random", text + "\n", context()});
    texts += pn_test::ask_us(cases.back()).ok ? 1 : 0;
  }
  CHECK(texts > 100);
  CHECK(pn_test::count_differences(cases) == 0);
}

// The character U+E123 is in the request only, so wherever it comes out must be marked.
TEST_CASE("random templates keep the marks of what the request brought") {
  const std::string ours = "\xEE\x84\xA3";
  Json input = {{"n", 3},
                {"f", 1.25},
                {"s", ours + " a" + ours + "\nb" + ours},
                {"l", Json::array({1, ours, 3})},
                {"d", {{"k", ours}, {ours, 1}, {"items", Json::array({ours})}}},
                {"mixed", Json::array({1, ours, nullptr, ours + "a"})}};
  pn::jinja::Variables variables;
  for (const auto& [name, json] : input.items()) {
    variables.emplace_back(name, *pn::jinja::from_json(json));
  }
  Generator generator(31);
  size_t seen = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string source =
        "{% set ns = namespace(x=0) %}" +
        (i % 2 == 0 ? "{{ " + generator.expression(1 + i % 4) + " }}" : generator.statement(2));
    auto program = pn::jinja::Program::parse(source);
    if (!program) continue;
    auto out = program->render(variables);
    if (!out) continue;
    const std::string& text = (*out)->text;
    size_t cursor = 0;
    for (size_t at = text.find(ours); at != text.npos; at = text.find(ours, at + 1)) {
      ++seen;
      for (size_t b = at; b < at + ours.size(); ++b) {
        CHECK_MESSAGE(pn::jinja::is_input(**out, b, cursor), source);
      }
    }
  }
  CHECK(seen > 500);
}
