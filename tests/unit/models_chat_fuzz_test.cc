// SPDX-License-Identifier: Apache-2.0
//
// Runs the fuzz entry for chat templates on seeds and their random mutants: it traps when a promise
// is broken.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

TEST_CASE("the fuzz entry for templates holds on seeds and mutants") {
  const std::string seeds[] = {
      "",
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' ~ m.content }}{% endfor %}",
      "{{ messages[0].content|upper|replace('A', 'b')|indent(2) }}{{ messages|tojson(indent=2) }}",
      "{{ '{:>20}|{!r}'.format(messages[1].content, messages[1].content) }}",
      "{{ '%-30s|%r' % (messages[0].content, messages) }}{{ messages[1].content[::-1] }}",
      "{%- set ns = namespace(t='') -%}{%- for m in messages[::-1] if m.content is string -%}"
      "{%- set ns.t = ns.t ~ m.content.split()|join('-') -%}{%- endfor -%}{{ ns.t|e|title }}",
      "{% macro r(x) %}{% if x is mapping %}{% for k, v in x|items %}{{ r(v) }}{% endfor %}"
      "{% else %}{{ x }}{% endif %}{% endmacro %}{{ r(messages[2]) }}{{ r(messages[1]) }}",
      "{% for c in messages[0].content %}{{ loop.previtem }}{{ c }}{% endfor %}"
      "{{ messages|map(attribute='content')|select|map('trim')|list }}",
      "{% set t %}{{ messages[1].content.strip() }}{% endset %}{{ t.partition(' ') }}"
      "{% filter truncate(5, true) %}{{ t }}{% endfilter %}{{ t.center(40, '*') }}"};
  const std::string pieces[] = {"{{", "}}", "{%", "%}", "|", "(",        ")",   "[",
                                "]",  "'",  "\n", "~",  "*", "messages", "for", "endfor",
                                "if", "-",  "in", ".",  ",", "0",        "999"};
  std::mt19937 random(5);
  int runs = 0;
  for (const std::string& seed : seeds) {
    for (int round = 0; round < 300; ++round) {
      std::string input = seed;
      for (int n = round % 6; n > 0 && !input.empty(); --n) {
        size_t at = random() % input.size();
        switch (random() % 4) {
          case 0:
            input[at] = static_cast<char>(random());
            break;
          case 1:
            input.erase(at, 1 + random() % 4);
            break;
          case 2:
            input.insert(at, input.substr(random() % input.size(), random() % 12));
            break;
          default:
            input.insert(at, pieces[random() % std::size(pieces)]);
        }
      }
      ++runs;
      CHECK(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()) ==
            0);
    }
  }
  CHECK(runs == 2700);
}
