// SPDX-License-Identifier: Apache-2.0
//
// The lexer.
//
// Owns a single pass over the source: root text until a tag opens, then tokens until it closes. One
// idea that saves states: inside open brackets a closing tag is not one, as `}}` may end two dicts.
#include "models/chat/jinja_lexer.h"

#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

using Kind = Token::Kind;

// Line ends become \n, and one at the very end is dropped, as Jinja does.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) PN_TRY(root());
    push(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  Result<void> root();
  Result<void> comment();
  Result<void> raw(size_t after_tag);
  Result<void> inside(bool block);
  Result<void> token();
  Result<void> string_token();
  Result<void> escape(std::string& out);
  void number();
  bool close_tag(bool block);
  void skip_space();
  void after_block(char sign);
  size_t raw_name(size_t at, std::string_view name) const;
  std::string_view trimmed(std::string_view data, char sign, bool output) const;

  bool looking_at(std::string_view s) const { return text_.compare(at_, s.size(), s) == 0; }
  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t to) {
    for (; at_ < to; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
  }
  tl::unexpected<Error> error(std::string what) const {
    return fail(Code::invalid, "chat template line " + std::to_string(line_) + ": " + what,
                "chat_template");
  }

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // does the text after the last tag start a line?
  std::string brackets_;
  std::vector<Token> tokens_;
};

// Text before a tag, cut as the tag's sign and lstrip_blocks ask.
std::string_view Lexer::trimmed(std::string_view data, char sign, bool output) const {
  if (sign == '-') {
    size_t keep = 0;
    for (size_t i = 0; i < data.size();) {
      if (!is_space(next_char(data, i))) keep = i;
    }
    return data.substr(0, keep);
  }
  if (sign == '+' || output) return data;
  size_t line = data.rfind('\n') + 1;  // 0 when there is none
  if (line == 0 && !line_start_) return data;
  for (size_t i = line; i < data.size();) {
    if (!is_space(next_char(data, i))) return data;
  }
  return data.substr(0, line);
}

Result<void> Lexer::root() {
  size_t open = at_;
  for (;; ++open) {
    open = text_.find('{', open);
    if (open == std::string::npos || open + 1 >= text_.size()) {
      push(Kind::data, text_.substr(at_));
      advance(text_.size());
      return {};
    }
    char c = text_[open + 1];
    if (c == '{' || c == '%' || c == '#') break;
  }
  char type = text_[open + 1];
  size_t after = open + 2;
  char sign =
      after < text_.size() && (text_[after] == '-' || text_[after] == '+') ? text_[after] : '\0';
  if (sign != '\0') ++after;
  std::string_view data(text_.data() + at_, open - at_);
  data = trimmed(data, sign, type == '{');
  if (!data.empty()) push(Kind::data, std::string(data));
  advance(after);
  line_start_ = false;
  if (type == '#') return comment();
  if (type == '{') {
    push(Kind::out_begin, "{{");
    return inside(false);
  }
  if (size_t end = raw_name(at_, "raw"); end != 0) return raw(end);
  push(Kind::tag_begin, "{%");
  return inside(true);
}

void Lexer::skip_space() {
  size_t to = at_;
  while (to < text_.size()) {
    size_t next = to;
    if (!is_space(next_char(text_, next))) break;
    to = next;
  }
  advance(to);
}

// After the end of a block or comment: '-' eats all space, '+' nothing, else one line end goes.
void Lexer::after_block(char sign) {
  size_t from = at_;
  if (sign == '-') skip_space();
  if (sign == '\0' && at_ < text_.size() && text_[at_] == '\n') advance(at_ + 1);
  line_start_ = at_ > from && text_[at_ - 1] == '\n';
}

Result<void> Lexer::comment() {
  size_t end = text_.find("#}", at_);
  if (end == std::string::npos) return error("a comment {# is not closed by #}");
  char sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+') ? text_[end - 1] : '\0';
  advance(end + 2);
  after_block(sign);
  return {};
}

// If a tag with only this name stands at `at`, the byte after its "%}"; else 0.
size_t Lexer::raw_name(size_t at, std::string_view name) const {
  auto space = [&] {
    while (at < text_.size() && is_space(static_cast<unsigned char>(text_[at]))) ++at;
  };
  space();
  if (text_.compare(at, name.size(), name) != 0) return 0;
  at += name.size();
  space();
  if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
  return text_.compare(at, 2, "%}") == 0 ? at + 2 : 0;
}

Result<void> Lexer::raw(size_t after_tag) {
  char sign = text_[after_tag - 3];
  advance(after_tag);
  if (sign == '-') skip_space();
  // Not after_block: Jinja's raw block begins after the tag, its first line end included.
  for (size_t open = text_.find("{%", at_); open != std::string::npos;
       open = text_.find("{%", open + 1)) {
    size_t name = open + 2;
    char before = name < text_.size() ? text_[name] : '\0';
    if (before == '-' || before == '+') ++name;
    size_t end = raw_name(name, "endraw");
    if (end == 0) continue;
    std::string_view data(text_.data() + at_, open - at_);
    line_start_ = false;
    data = trimmed(data, before, false);
    if (!data.empty()) push(Kind::data, std::string(data));
    char close = text_[end - 3];
    advance(end);
    after_block(close == '-' || close == '+' ? close : '\0');
    return {};
  }
  return error("{% raw %} is not closed by {% endraw %}");
}

// Consumes the end of the tag when it stands here.
bool Lexer::close_tag(bool block) {
  if (!brackets_.empty()) return false;
  std::string_view end = block ? "%}" : "}}";
  size_t sign = text_[at_] == '-' || (block && text_[at_] == '+') ? 1 : 0;
  if (text_.compare(at_ + sign, 2, end) != 0) return false;
  char c = sign != 0 ? text_[at_] : '\0';
  push(block ? Kind::tag_end : Kind::out_end, std::string(end));
  advance(at_ + sign + 2);
  if (block) {
    after_block(c);
  } else {
    size_t from = at_;
    if (c == '-') skip_space();
    line_start_ = at_ > from && text_[at_ - 1] == '\n';
  }
  return true;
}

Result<void> Lexer::inside(bool block) {
  int opened = line_;
  while (true) {
    skip_space();
    if (at_ >= text_.size()) {
      line_ = opened;
      return error(block ? "a tag {% is not closed by %}" : "an output {{ is not closed by }}");
    }
    if (close_tag(block)) return {};
    PN_TRY(token());
  }
}

bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (c & 0x80) != 0;
}

Result<void> Lexer::token() {
  char c = text_[at_];
  if (c == '\'' || c == '"') return string_token();
  if (c >= '0' && c <= '9') {
    number();
    return {};
  }
  if (name_char(c)) {
    size_t end = at_;
    while (end < text_.size() && name_char(text_[end])) ++end;
    push(Kind::name, text_.substr(at_, end - at_));
    advance(end);
    return {};
  }
  static constexpr std::string_view kOps[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                              "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                              ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  for (std::string_view op : kOps) {
    if (!looking_at(op)) continue;
    if (c == '(' || c == '[' || c == '{')
      brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty() || brackets_.back() != c) {
        return error("unexpected '" + std::string(1, c) + "'");
      }
      brackets_.pop_back();
    }
    push(Kind::op, std::string(op));
    advance(at_ + op.size());
    return {};
  }
  return error("unexpected character '" + std::string(1, c) + "'");
}

void Lexer::number() {
  std::string digits;
  size_t at = at_;
  auto is = [&](size_t i, auto set) { return i < text_.size() && set(text_[i]); };
  auto dec = [](char c) { return c >= '0' && c <= '9'; };
  auto take = [&](auto set) {
    while (is(at, set) || (is(at, [](char c) { return c == '_'; }) && is(at + 1, set))) {
      if (text_[at] != '_') digits.push_back(text_[at]);
      ++at;
    }
  };
  char base = text_[at] == '0' && at + 1 < text_.size() ? static_cast<char>(text_[at + 1] | 32) : 0;
  Kind kind = Kind::integer;
  if (base == 'x' || base == 'o' || base == 'b') {
    digits = std::string("0") + base;
    at += 2;
    take([&](char c) { return dec(c) || (base == 'x' && ((c | 32) >= 'a' && (c | 32) <= 'f')); });
  } else {
    take(dec);
    bool after_dot = !tokens_.empty() && tokens_.back().is(".");
    if (!after_dot && is(at, [](char c) { return c == '.'; }) && is(at + 1, dec)) {
      kind = Kind::real;
      digits.push_back('.');
      ++at;
      take(dec);
    }
    size_t e = at;
    if (is(e, [](char c) { return c == 'e' || c == 'E'; })) {
      size_t sign = is(e + 1, [](char c) { return c == '+' || c == '-'; }) ? 1 : 0;
      if (is(e + 1 + sign, dec)) {
        kind = Kind::real;
        digits.append(text_, e, 1 + sign);
        at = e + 1 + sign;
        take(dec);
      }
    }
  }
  push(kind, std::move(digits));
  advance(at);
}

Result<void> Lexer::string_token() {
  char quote = text_[at_];
  int line = line_;
  std::string out;
  advance(at_ + 1);
  while (at_ < text_.size() && text_[at_] != quote) {
    if (text_[at_] == '\\') {
      PN_TRY(escape(out));
    } else {
      out.push_back(text_[at_]);
      advance(at_ + 1);
    }
  }
  if (at_ >= text_.size()) {
    line_ = line;
    return error("a string is not closed");
  }
  advance(at_ + 1);
  tokens_.push_back({Kind::string, std::move(out), line});
  return {};
}

// Python's escapes; an unknown one keeps its backslash.
Result<void> Lexer::escape(std::string& out) {
  if (at_ + 1 >= text_.size()) return error("a string is not closed");
  char c = text_[at_ + 1];
  static constexpr std::string_view kFrom = "ntrabfv\\'\"";
  static constexpr std::string_view kTo = "\n\t\r\a\b\f\v\\'\"";
  size_t simple = kFrom.find(c);
  size_t hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  bool octal = c >= '0' && c <= '7';
  if (!octal && hex == 0) {
    if (simple != std::string_view::npos) {
      out.push_back(kTo[simple]);
    } else if (c != '\n') {
      out.push_back('\\');
      out.push_back(c);
    }
    if (c == 'N') return error("string escape \\N{...} is not supported; write the character");
    advance(at_ + 2);
    return {};
  }
  size_t digits = at_ + (octal ? 1 : 2);
  size_t most = octal ? 3 : hex;
  char32_t value = 0;
  size_t n = 0;
  for (; n < most && digits + n < text_.size(); ++n) {
    char d = text_[digits + n];
    char low = static_cast<char>(d | 32);
    bool ok = octal ? d >= '0' && d <= '7' : (d >= '0' && d <= '9') || (low >= 'a' && low <= 'f');
    if (!ok) break;
    int digit = d <= '9' ? d - '0' : low - 'a' + 10;
    value = value * (octal ? 8 : 16) + static_cast<char32_t>(digit);
  }
  if (!octal && n < hex) return error("a string escape needs more hex digits");
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    return error("a string escape names no character");
  }
  append_utf8(out, value);
  advance(digits + n);
  return {};
}

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return fail(Code::invalid,
                "the chat template has " + std::to_string(source.size()) + " bytes; at most " +
                    std::to_string(limits.max_source_bytes) + " are accepted",
                "chat_template");
  }
  size_t good = valid_utf8_prefix(source);
  if (good != source.size()) {
    return fail(Code::invalid,
                "the chat template is not UTF-8 at byte " + std::to_string(good) +
                    "; convert the file again",
                "chat_template");
  }
  return Lexer(normalize(source)).run();
}

}  // namespace pn::jinja
