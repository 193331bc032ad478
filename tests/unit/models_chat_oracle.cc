// SPDX-License-Identifier: Apache-2.0
//
// Python's Jinja2 as an oracle.
//
// Owns temporary files and the one call of /usr/bin/python3.
#include "tests/unit/models_chat_oracle.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace pn_test {
namespace {

struct TempFile {
  std::string path;
  TempFile() {
    char name[] = "/tmp/pn_jinja_XXXXXX";
    int fd = mkstemp(name);
    if (fd >= 0) close(fd);
    path = name;
  }
  ~TempFile() { std::remove(path.c_str()); }
};

int run(const Json& cases, Json& answers) {
  TempFile in, out;
  std::ofstream(in.path) << cases.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string command = "/usr/bin/python3 '" + source_root() + "/tests/unit/jinja_oracle.py' '" +
                        in.path + "' '" + out.path + "' 2>/dev/null";
  int status = std::system(command.c_str());
  if (status == 0) answers = Json::parse(read_text(out.path), nullptr, false);
  return status;
}

}  // namespace

std::string source_root() {
  const char* root = std::getenv("PN_SOURCE_ROOT");
  return root != nullptr ? root : ".";
}

std::string read_text(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  std::ostringstream text;
  text << f.rdbuf();
  return text.str();
}

bool oracle_available() {
  static const bool available = [] {
    Json answers;
    bool ok = run(Json::array(), answers) == 0 && answers.is_array();
    if (!ok) std::puts("notice: no python3-jinja2 here; comparisons with it are skipped");
    return ok;
  }();
  return available;
}

std::vector<Answer> ask_oracle(const std::vector<Case>& cases) {
  Json list = Json::array();
  for (const Case& c : cases) {
    list.push_back({{"template", c.text}, {"context", c.context}, {"mutable", c.mutable_lists}});
  }
  Json answers;
  std::vector<Answer> out;
  if (run(list, answers) != 0) return out;
  for (const Json& a : answers) {
    bool ok = a.contains("text");
    out.push_back({ok, a[ok ? "text" : "error"].get<std::string>()});
  }
  return out;
}

int64_t oracle_now() {
  std::tm tm{};
  tm.tm_year = 124;
  tm.tm_mon = 6;
  tm.tm_mday = 26;
  tm.tm_hour = 9;
  tm.tm_min = 5;
  tm.tm_sec = 3;
  tm.tm_isdst = -1;
  return static_cast<int64_t>(std::mktime(&tm));
}

Answer ask_us(const Case& c) {
  auto program = pn::jinja::Program::parse(c.text);
  if (!program) return {false, program.error().message};
  pn::jinja::Variables variables;
  for (const auto& [name, json] : c.context.items()) {
    auto v = pn::jinja::from_json(json);
    if (!v) return {false, v.error().message};
    variables.emplace_back(name, *v);
  }
  auto out = program->render(variables, oracle_now());
  return out ? Answer{true, (*out)->text} : Answer{false, out.error().message};
}

namespace {

// Jinja2 folds a slice of a constant that cannot be sliced to an undefined value, and raises only
// for variables; we raise for both.
bool folded(const Answer& ours, const Answer& theirs) {
  return !ours.ok && theirs.ok && ours.text.find("cannot be sliced") != std::string::npos;
}

}  // namespace

size_t count_differences(const std::vector<Case>& cases, bool error_texts) {
  std::vector<Answer> theirs = ask_oracle(cases);
  if (theirs.size() != cases.size()) {
    std::puts("the oracle did not answer");
    return cases.size();
  }
  size_t differences = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    Answer ours = ask_us(cases[i]);
    bool same =
        ours.ok == theirs[i].ok && (ours.text == theirs[i].text || (!ours.ok && !error_texts));
    if (same || folded(ours, theirs[i])) continue;
    if (++differences > 25) continue;
    std::printf("case %zu %s\n  template: %.300s\n  jinja2: %s %.400s\n  ours:   %s %.400s\n", i,
                cases[i].name.c_str(), cases[i].text.c_str(), theirs[i].ok ? "text " : "error",
                theirs[i].text.c_str(), ours.ok ? "text " : "error", ours.text.c_str());
  }
  return differences;
}

}  // namespace pn_test
