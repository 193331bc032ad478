// SPDX-License-Identifier: Apache-2.0
//
// Reading and scanning of sources for the tidy checks; see source.h.
#include "tests/tidy/source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace pn::tidy {

namespace {

namespace fs = std::filesystem;

// Blanks comments, string and character literals, keeping line breaks, so that braces and words
// found later are code.
class Blanker {
 public:
  explicit Blanker(const std::string& text) : in_(text) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  bool starts(const char* what) const {
    return in_.compare(at_, std::string(what).size(), what) == 0;
  }
  void blank(size_t end) {
    for (; at_ < std::min(end, in_.size()); ++at_) out_ += in_[at_] == '\n' ? '\n' : ' ';
  }
  void step() {
    if (starts("//")) return blank(in_.find('\n', at_));
    if (starts("/*")) {
      const size_t end = in_.find("*/", at_ + 2);
      return blank(end == std::string::npos ? in_.size() : end + 2);
    }
    if (starts("R\"")) return raw_string();
    const bool separator = at_ > 0 && in_[at_] == '\'' && std::isalnum(in_[at_ - 1]);
    if (in_[at_] == '"' || (in_[at_] == '\'' && !separator)) return literal();
    out_ += in_[at_++];
  }
  void raw_string() {
    const size_t open = in_.find('(', at_);
    const std::string close = ")" + in_.substr(at_ + 2, open - at_ - 2) + "\"";
    const size_t end = in_.find(close, open);
    blank(end == std::string::npos ? in_.size() : end + close.size());
  }
  void literal() {
    const char quote = in_[at_];
    size_t end = at_ + 1;
    while (end < in_.size() && in_[end] != quote && in_[end] != '\n')
      end += in_[end] == '\\' ? 2 : 1;
    out_ += quote;
    ++at_;
    blank(end);
    if (at_ < in_.size()) out_ += in_[at_++];
  }

  const std::string& in_;
  std::string out_;
  size_t at_ = 0;
};

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What an opening brace belongs to, told from the text since the last ';', '{' or '}'.
enum class Opens { scope, function, other };

bool has_word(const std::string& text, const char* word) {
  const std::string w = word;
  for (size_t at = text.find(w); at != std::string::npos; at = text.find(w, at + 1)) {
    const bool left = at == 0 || !(std::isalnum(text[at - 1]) || text[at - 1] == '_');
    const size_t end = at + w.size();
    const bool right = end >= text.size() || !(std::isalnum(text[end]) || text[end] == '_');
    if (left && right) return true;
  }
  return false;
}

Opens opens(const std::string& head) {
  const size_t paren = head.find('(');
  const std::string front = head.substr(0, paren);
  if (has_word(front, "namespace") || has_word(front, "extern")) return Opens::scope;
  if (paren == std::string::npos) {
    for (const char* word : {"class", "struct", "union"})
      if (has_word(front, word)) return Opens::scope;
    return Opens::other;
  }
  if (front.find('=') != std::string::npos && front.find("operator") == std::string::npos)
    return Opens::other;
  return Opens::function;
}

int count_parameters(const std::string& head) {
  const size_t open = head.find('(');
  if (open == std::string::npos) return 0;
  int depth = 0, angle = 0, commas = 0;
  bool any = false;
  for (size_t i = open; i < head.size(); ++i) {
    const char c = head[i];
    if (c == '(') ++depth;
    if (c == ')' && --depth == 0) break;
    if (c == '<') ++angle;
    if (c == '>' && angle > 0 && head[i - 1] != '-') --angle;
    if (c == ',' && depth == 1 && angle == 0) ++commas;
    if (depth >= 1 && c != '(' && !std::isspace(static_cast<unsigned char>(c))) any = true;
  }
  return any ? commas + 1 : 0;
}

std::string function_name(const std::string& head) {
  const size_t paren = head.find('(');
  size_t end = paren;
  while (end > 0 && std::isspace(static_cast<unsigned char>(head[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(head[begin - 1])) ||
                       head[begin - 1] == '_' || head[begin - 1] == ':' || head[begin - 1] == '~'))
    --begin;
  return head.substr(begin, end - begin);
}

struct Open {
  Opens kind = Opens::other;
  int line = 0;
  std::string head;
};

}  // namespace

bool has_suffix(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

bool in_folder(const std::string& path, const std::string& folder) {
  return path.compare(0, folder.size() + 1, folder + "/") == 0;
}

bool is_code(const std::string& path) {
  for (const char* suffix : {".c", ".cc", ".h", ".hpp", ".cu", ".inc"})
    if (has_suffix(path, suffix)) return true;
  return false;
}

std::vector<std::string> list_files(const std::string& root) {
  std::vector<std::string> files;
  fs::recursive_directory_iterator it(root), end;
  for (; it != end; ++it) {
    const std::string path = fs::relative(it->path(), root).generic_string();
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool skip = (name[0] == '.' && name != ".ci") || name == "__pycache__" ||
                        (path.find('/') == std::string::npos && name.rfind("build", 0) == 0) ||
                        in_folder(path, "subprojects");
      if (skip) it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file()) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

SourceFile source_from_text(const std::string& path, const std::string& text) {
  return {path, split_lines(text), split_lines(Blanker(text).run())};
}

SourceFile read_source(const std::string& root, const std::string& path) {
  std::ifstream in(root + "/" + path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return source_from_text(path, text.str());
}

std::vector<Function> functions(const SourceFile& file) {
  std::vector<Function> found;
  std::vector<Open> stack;
  std::string head;
  int function_depth = -1;
  for (size_t i = 0; i < file.code.size(); ++i) {
    const std::string& line = file.code[i];
    if (!line.empty() && line[0] == '#') continue;
    for (const char c : line) {
      if (c == '{') {
        Open open{function_depth >= 0 ? Opens::other : opens(head), static_cast<int>(i) + 1, head};
        if (open.kind == Opens::function) function_depth = static_cast<int>(stack.size());
        stack.push_back(std::move(open));
        head.clear();
      } else if (c == '}') {
        if (stack.empty()) continue;
        const Open open = stack.back();
        stack.pop_back();
        if (static_cast<int>(stack.size()) == function_depth) {
          function_depth = -1;
          found.push_back({open.line, static_cast<int>(i) + 2 - open.line,
                           count_parameters(open.head), function_name(open.head)});
        }
        head.clear();
      } else if (c == ';') {
        head.clear();
      } else {
        head += c;
      }
    }
    head += ' ';
  }
  return found;
}

}  // namespace pn::tidy
