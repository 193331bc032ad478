// SPDX-License-Identifier: Apache-2.0
//
// The template engine against Python's Jinja2.
//
// Owns the comparison over the committed cases (every construct and trap of chat templates) and
// over real templates in the folder that PN_LLAMA_TEMPLATES names. Text must be equal to the byte;
// where one side refuses, the other must.
#include <doctest/doctest.h>

#include <set>

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
