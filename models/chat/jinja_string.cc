// SPDX-License-Identifier: Apache-2.0
//
// Strings with marks: building, cutting, charging.
//
// Owns the invariants of Str: valid UTF-8, sorted and merged spans, a right character count. A
// builder that hits a limit keeps its first overflow and ignores the rest; finish() reports it.
#include "models/chat/jinja_string.h"

#include <algorithm>

#include "models/chat/jinja_unicode.h"

namespace pn::jinja {

size_t Str::offset(size_t index) const {
  if (ascii()) return index;
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    ++at;
    while (at < text.size() && !starts_char(text[at])) ++at;
    --index;
  }
  return at;
}

StrPtr make_str(std::string text) {
  auto s = std::make_shared<Str>();
  s->chars = count_chars(text);
  s->text = std::move(text);
  return s;
}

StrPtr make_input(std::string_view text) {
  auto s = std::make_shared<Str>();
  s->text = valid_utf8_prefix(text) == text.size() ? std::string(text) : repair_utf8(text);
  s->chars = count_chars(s->text);
  if (!s->text.empty()) s->input.push_back({0, static_cast<uint32_t>(s->text.size())});
  return s;
}

bool StrBuilder::room(size_t n) {
  if (full_) return false;
  if (n > max_bytes_ || out_.text.size() + n > max_bytes_ || !rt_.take_bytes(n)) full_ = true;
  return !full_;
}

void StrBuilder::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!out_.input.empty() && out_.input.back().end == begin) {
    out_.input.back().end = static_cast<uint32_t>(end);
    return;
  }
  if (!rt_.take_bytes(sizeof(Span))) full_ = true;
  if (!full_) out_.input.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
}

void StrBuilder::add(std::string_view text, bool input) {
  if (!room(text.size())) return;
  size_t begin = out_.text.size();
  out_.text.append(text);
  if (input) mark(begin, out_.text.size());
}

void StrBuilder::add(const Str& s, size_t begin, size_t end) {
  if (begin >= end || !room(end - begin)) return;
  size_t at = out_.text.size();
  out_.text.append(s.text, begin, end - begin);
  auto it = std::lower_bound(s.input.begin(), s.input.end(), begin,
                             [](const Span& span, size_t b) { return span.end <= b; });
  for (; it != s.input.end() && it->begin < end; ++it) {
    size_t from = std::max<size_t>(it->begin, begin);
    size_t to = std::min<size_t>(it->end, end);
    mark(at + from - begin, at + to - begin);
  }
}

void StrBuilder::add_char(char32_t c, bool input) {
  std::string one;
  append_utf8(one, c);
  add(one, input);
}

void StrBuilder::repeat(const Str& s, size_t times) {
  if (s.text.empty() || times == 0) return;
  if (times > max_bytes_ / s.text.size()) full_ = true;
  if (s.text.size() == 1 && !s.has_input()) {
    if (room(times)) out_.text.append(times, s.text[0]);
    return;
  }
  for (; times > 0 && !full_; --times) add(s);
}

Result<StrPtr> StrBuilder::finish() {
  if (full_) {
    return rt_.over("a text longer than " + std::to_string(max_bytes_) + " bytes, or more than " +
                    std::to_string(rt_.limits().max_work_bytes) + " bytes of strings made");
  }
  out_.chars = count_chars(out_.text);
  return std::make_shared<const Str>(std::move(out_));
}

bool is_input(const Str& s, size_t byte, size_t& cursor) {
  while (cursor < s.input.size() && s.input[cursor].end <= byte) ++cursor;
  return cursor < s.input.size() && s.input[cursor].begin <= byte;
}

}  // namespace pn::jinja
