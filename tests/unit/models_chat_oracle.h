// SPDX-License-Identifier: Apache-2.0
//
// Python's Jinja2 as an oracle: runs tests/unit/jinja_oracle.py over a batch of cases.
//
// Owns the exchange with that script through two files. Absent Python or Jinja2 is an answer of its
// own: tests then print a notice and compare nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/chat/jinja_program.h"

namespace pn_test {

using Json = nlohmann::ordered_json;

struct Case {
  std::string name, text;  // text: the template
  Json context = Json::object();
  bool mutable_lists = false;
};

struct Answer {
  bool ok = false;
  std::string text;  // the output, or the error
  bool operator==(const Answer&) const = default;
};

bool oracle_available();
std::vector<Answer> ask_oracle(const std::vector<Case>& cases);
Answer ask_us(const Case& c);

// 2024-07-26 09:05:03 local time, what the oracle's strftime_now prints
int64_t oracle_now();

std::string source_root();
std::string read_text(const std::string& path);

// Compares batch by batch; prints the first differences; returns how many there are.
size_t count_differences(const std::vector<Case>& cases, bool error_texts = false);

}  // namespace pn_test
