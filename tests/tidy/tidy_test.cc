// SPDX-License-Identifier: Apache-2.0
//
// House rules as tests: sizes, first lines, plain text, layers. A rule exists only if it is here.
//
// Each rule is a function from a file to complaints, run over the whole tree and over a small text
// that breaks it: a check that cannot fail is worse than none. Exceptions stand in the tables
// below, each with its reason.
#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/tidy/source.h"

namespace {

using namespace pn::tidy;
using Complaints = std::vector<std::string>;

std::string root() {
  const char* env = std::getenv("PN_SOURCE_ROOT");
  return env ? env : ".";
}

bool kernel(const std::string& path) { return path.find("/kernels/") != std::string::npos; }
bool generated(const std::string& path) { return path.find("_tables.") != std::string::npos; }

std::string at(const SourceFile& f, size_t line, const std::string& what) {
  return f.path + ":" + std::to_string(line) + ": " + what;
}

Complaints file_size(const SourceFile& f) {
  if (!is_code(f.path) || generated(f.path)) return {};
  const size_t limit = kernel(f.path) ? 1000 : 800;
  const bool header = in_folder(f.path, "hal/include");
  if (f.lines.size() > limit) return {at(f, limit, "file is longer than its limit")};
  if (header && f.lines.size() > 700) return {at(f, 700, "public header is longer than 700 lines")};
  return {};
}

Complaints function_size(const SourceFile& f) {
  Complaints out;
  if (!has_suffix(f.path, ".cc") && !has_suffix(f.path, ".h") && !has_suffix(f.path, ".c"))
    return out;
  const int limit = kernel(f.path) ? 150 : 70;
  for (const Function& fn : functions(f)) {
    if (fn.name == "TEST_CASE") continue;
    if (fn.lines > limit)
      out.push_back(at(f, fn.first_line, fn.name + " has " + std::to_string(fn.lines) + " lines"));
    // Slots of the C ABI have up to 8, and a plugin's functions are those slots.
    const bool slot = in_folder(f.path, "plugins") || in_folder(f.path, "backends") ||
                      in_folder(f.path, "hal/sdk") || in_folder(f.path, "hal/proxy") ||
                      in_folder(f.path, "tests/support");
    const int most = slot ? 8 : 6;
    if (fn.parameters > most && !kernel(f.path))
      out.push_back(
          at(f, fn.first_line, fn.name + " has more than " + std::to_string(most) + " parameters"));
  }
  return out;
}

// Characters, not bytes: one UTF-8 sequence is one column.
size_t columns(const std::string& line) {
  size_t n = 0;
  for (const char c : line) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

Complaints line_shape(const SourceFile& f) {
  Complaints out;
  if (!is_code(f.path) || generated(f.path)) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    const std::string& line = f.lines[i];
    if (columns(line) > 100) out.push_back(at(f, i + 1, "line is longer than 100 columns"));
    if (line.find('\t') != std::string::npos) out.push_back(at(f, i + 1, "tab"));
    for (const char c : line)
      if (static_cast<unsigned char>(c) >= 0x80) {
        out.push_back(at(f, i + 1, "not ASCII: write an escape"));
        break;
      }
  }
  return out;
}

Complaints licence_line(const SourceFile& f) {
  static const std::set<std::string> kinds = {".c", ".cc", ".h", ".py", ".sh", ".build"};
  const size_t dot = f.path.rfind('.');
  if (dot == std::string::npos || !kinds.count(f.path.substr(dot)) || f.lines.empty()) return {};
  const bool permissive = in_folder(f.path, "hal/include") || in_folder(f.path, "hal/sdk") ||
                          in_folder(f.path, "plugins/template");
  const std::string want = permissive ? "MIT" : "Apache-2.0";
  const std::string tag = std::string("SPDX-License-Identifier: ") + want;
  for (size_t i = 0; i < f.lines.size() && i < 2; ++i)
    if (f.lines[i].find(tag) != std::string::npos) return {};
  return {at(f, 1, "does not start with \"" + tag + "\"")};
}

// A .cc that goes with a header starts with it; the header says what both own.
Complaints opening_comment(const SourceFile& f) {
  if (!has_suffix(f.path, ".cc") && !has_suffix(f.path, ".h")) return {};
  if (f.lines.size() < 3 || generated(f.path)) return {};
  const std::string own = "#include \"" + f.path.substr(0, f.path.rfind('.')) + ".h\"";
  for (size_t i = 1; i < 4 && i < f.lines.size(); ++i) {
    const std::string& line = f.lines[i];
    const bool comment = line.rfind("//", 0) == 0 || line.rfind(" *", 0) == 0;
    if ((comment && line.size() > 12) || line == own) return {};
  }
  return {at(f, 2, "does not open with what it owns, what it must not know, and its idea")};
}

std::string join(const char* a, const char* b) { return std::string(a) + b; }

Complaints unfinished(const SourceFile& f) {
  static const std::vector<std::string> marks = {join("TO", "DO"), join("FIX", "ME"),
                                                 join("XX", "X:"), join("DO NOT ", "SUBMIT")};
  Complaints out;
  if (!is_code(f.path) && !has_suffix(f.path, ".py") && !has_suffix(f.path, ".build")) return out;
  for (size_t i = 0; i < f.lines.size(); ++i)
    for (const std::string& mark : marks)
      if (f.lines[i].find(mark) != std::string::npos) out.push_back(at(f, i + 1, "says " + mark));
  return out;
}

bool word_at(const std::string& code, const std::string& word, size_t from, size_t* found) {
  for (size_t p = code.find(word, from); p != std::string::npos; p = code.find(word, p + 1)) {
    const bool left = p == 0 || !(std::isalnum(code[p - 1]) || code[p - 1] == '_');
    if (left) {
      *found = p;
      return true;
    }
  }
  return false;
}

// The calls that end or reach outside a process. Plugins may make none of them; above them a few
// files own one each.
Complaints banned_calls(const SourceFile& f) {
  static const std::vector<std::string> banned = {"abort(",     "exit(",     "_exit(",    "system(",
                                                  "printf(",    "std::cout", "std::cerr", "setenv(",
                                                  "setlocale(", "strcpy(",   "sprintf(",  "gets("};
  Complaints out;
  const bool checked = in_folder(f.path, "engine") || in_folder(f.path, "models") ||
                       in_folder(f.path, "hal/host") || in_folder(f.path, "backends") ||
                       in_folder(f.path, "plugins");
  if (!checked || !is_code(f.path) || in_folder(f.path, "engine/cli")) return out;
  if (f.path == "hal/host/probe.cc") return out;  // the forked probe child ends itself with _exit
  for (size_t i = 0; i < f.code.size(); ++i)
    for (const std::string& call : banned) {
      size_t p = 0;
      if (!word_at(f.code[i], call, 0, &p)) continue;
      const std::string before = f.code[i].substr(0, p);
      if (has_suffix(before, ".") || has_suffix(before, "->")) continue;
      out.push_back(at(f, i + 1, "calls " + call));
    }
  return out;
}

// What a folder may include, by the first part of the path. DESIGN: arrows point down only.
Complaints layers(const SourceFile& f) {
  static const std::map<std::string, std::set<std::string>> allowed = {
      {"hal", {"hal"}},
      {"models", {"models", "hal"}},
      {"engine", {"engine", "models", "hal"}},
      {"backends", {"backends"}},
      {"plugins", {"plugins"}}};
  Complaints out;
  const std::string top = f.path.substr(0, f.path.find('/'));
  const auto rule = allowed.find(top);
  if (rule == allowed.end() || !is_code(f.path)) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    const std::string& line = f.lines[i];
    if (line.rfind("#include \"", 0) != 0) continue;
    const std::string target = line.substr(10, line.find('"', 10) - 10);
    const std::string to = target.substr(0, target.find('/'));
    const bool sdk = in_folder(target, "hal/sdk") && (top == "backends" || top == "plugins");
    if (target.find('/') == std::string::npos || rule->second.count(to) || sdk) continue;
    out.push_back(at(f, i + 1, top + " must not include " + target));
  }
  return out;
}

// One backend never sees another, and models never see the engine's host wrapper.
Complaints neighbours(const SourceFile& f) {
  Complaints out;
  if (!is_code(f.path)) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    const std::string& line = f.lines[i];
    if (line.rfind("#include \"", 0) != 0) continue;
    const std::string target = line.substr(10, line.find('"', 10) - 10);
    if (in_folder(f.path, "backends") && in_folder(target, "backends")) {
      const size_t end = f.path.find('/', 9);
      if (target.compare(0, end, f.path, 0, end) != 0)
        out.push_back(at(f, i + 1, "includes another backend"));
    }
    if (in_folder(f.path, "models") && in_folder(target, "hal/host") &&
        target != "hal/host/result.h")
      out.push_back(at(f, i + 1, "models know hal/host/result.h only"));
  }
  return out;
}

// DESIGN section 3: above the HAL nobody knows a kind of hardware. "tt" only as a whole part of an
// identifier, since it occurs inside English words.
Complaints device_words(const SourceFile& f) {
  Complaints out;
  const bool above = in_folder(f.path, "engine") || in_folder(f.path, "models");
  if (!above || !is_code(f.path)) return out;
  for (size_t i = 0; i < f.code.size(); ++i) {
    std::string lower;
    for (const char c : f.code[i]) lower += static_cast<char>(std::tolower(c));
    for (const char* word : {"cuda", "k80", "tensix", "blackhole"})
      if (lower.find(word) != std::string::npos)
        out.push_back(at(f, i + 1, std::string("says ") + word));
    for (size_t p = lower.find("tt"); p != std::string::npos; p = lower.find("tt", p + 1)) {
      const bool left = p == 0 || !std::isalpha(static_cast<unsigned char>(lower[p - 1]));
      const bool right =
          p + 2 >= lower.size() || !std::isalpha(static_cast<unsigned char>(lower[p + 2]));
      if (left && right) out.push_back(at(f, i + 1, "says tt"));
    }
  }
  return out;
}

// Thread, lifetime or meaning: every struct and function slot of the ABI stands under or beside
// words.
Complaints abi_comments(const SourceFile& f) {
  Complaints out;
  if (!in_folder(f.path, "hal/include")) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    if (f.lines[i].find("(*") == std::string::npos || f.code[i].find("(*") == std::string::npos)
      continue;
    bool commented = f.lines[i].find("/*") != std::string::npos;
    for (size_t up = i; up > 0 && !commented && i - up < 12; --up) {
      const std::string& line = f.lines[up - 1];
      if (line.find("*/") != std::string::npos) commented = true;
      if (line.empty() || line.find("typedef struct") != std::string::npos) break;
    }
    for (size_t down = i; !commented && down < i + 3 && down < f.lines.size(); ++down) {
      if (f.lines[down].find("/*") != std::string::npos) commented = true;
      if (f.code[down].find(';') != std::string::npos) break;
    }
    if (!commented)
      out.push_back(at(f, i + 1, "an ABI function without thread and lifetime words"));
  }
  return out;
}

void run(const std::function<Complaints(const SourceFile&)>& rule) {
  int files = 0;
  for (const std::string& path : list_files(root())) {
    const SourceFile f = read_source(root(), path);
    ++files;
    for (const std::string& complaint : rule(f)) FAIL_CHECK(complaint);
  }
  CHECK(files > 20);
}

bool finds(const std::function<Complaints(const SourceFile&)>& rule, const std::string& path,
           const std::string& text) {
  return !rule(source_from_text(path, text)).empty();
}

std::string repeat(const std::string& line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

}  // namespace

TEST_CASE("files stay short enough to read at one sitting") {
  run(file_size);
  CHECK(finds(file_size, "engine/a.cc", repeat("int x;\n", 801)));
  CHECK(!finds(file_size, "backends/cpu/kernels/a.cc", repeat("int x;\n", 801)));
}

TEST_CASE("functions stay short, with few parameters") {
  run(function_size);
  CHECK(finds(function_size, "engine/a.cc", "void f() {\n" + repeat("  g();\n", 70) + "}\n"));
  CHECK(!finds(function_size, "engine/a.cc", "void f() {\n" + repeat("  g();\n", 60) + "}\n"));
  CHECK(finds(function_size, "engine/a.cc",
              "void f(int a, int b, int c, int d, int e, int g, int h) {}\n"));
  CHECK(!finds(function_size, "engine/a.cc", "void f(std::map<int, int> a, int b) {}\n"));
  CHECK(finds(function_size, "engine/a.cc",
              "class A {\n  int f() const {\n" + repeat("    g();\n", 70) + "  }\n};\n"));
}

TEST_CASE("lines are ASCII, without tabs, at most 100 columns") {
  run(line_shape);
  CHECK(finds(line_shape, "hal/a.h", std::string(101, 'x') + "\n"));
  CHECK(finds(line_shape, "hal/a.h", "\tint x;\n"));
  CHECK(finds(line_shape, "hal/a.h", "// caf\xc3\xa9\n"));
}

TEST_CASE("files start with their licence") {
  run(licence_line);
  CHECK(finds(licence_line, "engine/a.cc", "int x;\n"));
  CHECK(finds(licence_line, "hal/include/pantheon/a.h",
              "/* SPDX-License-Identifier: Apache-2.0 */\n"));
}

TEST_CASE("files open with what they own") {
  run(opening_comment);
  CHECK(finds(opening_comment, "engine/a.cc", "// SPDX\nint x;\nint y;\n"));
}

TEST_CASE("nothing is marked unfinished") {
  run(unfinished);
  CHECK(finds(unfinished, "engine/a.cc", "// " + join("TO", "DO") + " later\n"));
}

TEST_CASE("no call ends the process or prints from a library") {
  run(banned_calls);
  CHECK(finds(banned_calls, "backends/cpu/a.cc", "void f() { abort(); }\n"));
  CHECK(finds(banned_calls, "models/a.cc", "void f() { std::printf(\"x\"); }\n"));
  CHECK(!finds(banned_calls, "models/a.cc", "void f() { snprintf(b, 4, \"x\"); }\n"));
}

TEST_CASE("layers: arrows point down only") {
  run(layers);
  run(neighbours);
  CHECK(finds(layers, "models/a.cc", "#include \"engine/service/generate.h\"\n"));
  CHECK(finds(layers, "backends/cpu/a.cc", "#include \"hal/host/result.h\"\n"));
  CHECK(!finds(layers, "backends/cpu/a.cc", "#include \"hal/sdk/oploop.h\"\n"));
  CHECK(finds(neighbours, "backends/cpu/a.cc", "#include \"backends/other/b.h\"\n"));
  CHECK(finds(neighbours, "models/a.cc", "#include \"hal/host/hal.h\"\n"));
}

TEST_CASE("engine and models know no kind of hardware") {
  run(device_words);
  CHECK(finds(device_words, "engine/a.cc", "int cudaStream;\n"));
  CHECK(finds(device_words, "models/a.cc", "int pn_tt_core;\n"));
  CHECK(!finds(device_words, "models/a.cc", "int attention; // cuda in a comment\n"));
}

TEST_CASE("every function of the ABI says thread, lifetime or meaning") {
  run(abi_comments);
  CHECK(finds(abi_comments, "hal/include/pantheon/a.h", "\n  int (*f)(int);\n"));
}
