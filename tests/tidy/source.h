// SPDX-License-Identifier: Apache-2.0
//
// The tree as the tidy checks see it: files, lines, and functions found by a small scanner.
//
// Owns reading and scanning; knows no rule. The one idea: code here is clang-formatted, so a
// function is a brace opened by a line with a parameter list while only namespaces, classes and
// extern blocks are open. That needs no compiler and finds every function of this tree.
#pragma once

#include <string>
#include <vector>

namespace pn::tidy {

struct Function {
  int first_line = 0;  // 1-based, of the line that opens the body
  int lines = 0;       // from that line to the closing brace
  int parameters = 0;
  std::string name;
};

struct SourceFile {
  std::string path;                // relative to the root, '/' separated
  std::vector<std::string> lines;  // as written
  std::vector<std::string> code;   // comments and literals blanked, same line numbers
};

// Every file that belongs to the tree (build folders, caches and dot folders but .ci left out).
std::vector<std::string> list_files(const std::string& root);
SourceFile read_source(const std::string& root, const std::string& path);
SourceFile source_from_text(const std::string& path, const std::string& text);
std::vector<Function> functions(const SourceFile& file);
bool is_code(const std::string& path);  // C, C++
bool has_suffix(const std::string& text, const std::string& suffix);
bool in_folder(const std::string& path, const std::string& folder);

}  // namespace pn::tidy
