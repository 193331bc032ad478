// SPDX-License-Identifier: Apache-2.0
//
// String operations shared by methods and filters.
//
// Owns the loops over characters. The builder charges for what is produced; what is only scanned is
// charged here by the kilobyte.
#include "models/chat/jinja_text.h"

#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

Result<Value> done(StrBuilder& out) {
  PN_TRY(StrPtr s, out.finish());
  return Value(std::move(s));
}

Result<void> scan(Runtime& rt, const Str& s) { return rt.steps(1 + s.text.size() / 64); }

}  // namespace

Result<Value> cut(Runtime& rt, const Str& s, size_t begin, size_t end) {
  StrBuilder out(rt);
  out.add(s, begin, end);
  return done(out);
}

Result<Value> concat_all(Runtime& rt, std::initializer_list<const Str*> parts) {
  StrBuilder out(rt);
  for (const Str* part : parts) out.add(*part);
  return done(out);
}

Result<Value> strip(Runtime& rt, const Str& s, const Str* chars, Side side) {
  PN_TRY(scan(rt, s));
  auto goes = [chars](std::string_view c) {
    size_t zero = 0;
    if (chars == nullptr) return is_space(next_char(c, zero));
    return chars->text.find(c) != std::string::npos;
  };
  std::string_view text = s.text;
  size_t begin = 0, end = text.size();
  while (side != Side::right && begin < end) {
    size_t next = begin;
    next_char(text, next);
    if (!goes(text.substr(begin, next - begin))) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    size_t last = end - 1;
    while (last > begin && !starts_char(text[last])) --last;
    if (!goes(text.substr(last, end - last))) break;
    end = last;
  }
  if (chars != nullptr) PN_TRY(rt.steps((text.size() - (end - begin)) * chars->text.size() / 16));
  return cut(rt, s, begin, end);
}

Result<Value> replace_text(Runtime& rt, const Str& s, const Str& from, const Str& to,
                           int64_t count) {
  PN_TRY(scan(rt, s));
  StrBuilder out(rt);
  size_t at = 0;
  if (from.text.empty()) {  // before every character and at the end
    for (; count != 0 && !out.full(); --count) {
      out.add(to);
      if (at >= s.text.size()) break;
      size_t begin = at;
      next_char(s.text, at);
      out.add(s, begin, at);
    }
  } else {
    for (; count != 0 && !out.full(); --count) {
      size_t found = s.text.find(from.text, at);
      if (found == std::string::npos) break;
      out.add(s, at, found);
      out.add(to);
      at = found + from.text.size();
    }
  }
  out.add(s, at, s.text.size());
  return done(out);
}

Result<Value> map_chars(Runtime& rt, const Str& s, CaseFn put) {
  PN_TRY(rt.steps(1 + s.text.size() / 16));
  StrBuilder out(rt);
  size_t cursor = 0;
  bool word_start = true;
  std::string one;
  for (size_t at = 0; at < s.text.size() && !out.full();) {
    bool input = is_input(s, at, cursor);
    char32_t c = next_char(s.text, at);
    one.clear();
    put(one, c, word_start);
    word_start = !is_alpha(c);
    out.add(one, input);
  }
  return done(out);
}

void put_upper(std::string& out, char32_t c, bool) { append_upper(out, c); }
void put_lower(std::string& out, char32_t c, bool) { append_lower(out, c); }

Result<Value> capitalize(Runtime& rt, const Str& s) {
  if (s.text.empty()) return Value(make_str(""));
  size_t first = 0;
  next_char(s.text, first);
  PN_TRY(Value head, cut(rt, s, 0, first));
  PN_TRY(Value tail, cut(rt, s, first, s.text.size()));
  PN_TRY(Value upper, map_chars(rt, head.str(), put_upper));
  PN_TRY(Value lower, map_chars(rt, tail.str(), put_lower));
  return concat_all(rt, {&upper.str(), &lower.str()});
}

Result<Value> padded(Runtime& rt, const Str& s, size_t before, size_t after, const Str& fill) {
  StrBuilder out(rt);
  out.repeat(fill, before);
  out.add(s);
  out.repeat(fill, after);
  return done(out);
}

Result<Value> centered(Runtime& rt, const Str& s, int64_t width, const Str& fill) {
  int64_t have = static_cast<int64_t>(s.chars);
  if (width <= have) return padded(rt, s, 0, 0, fill);
  int64_t margin = width - have;
  int64_t left = margin / 2 + (margin & width & 1);  // Python's rounding
  return padded(rt, s, static_cast<size_t>(left), static_cast<size_t>(margin - left), fill);
}

Result<Value> join_list(Runtime& rt, const std::vector<Value>& items, const Str& separator) {
  StrBuilder out(rt);
  for (size_t i = 0; i < items.size() && !out.full(); ++i) {
    PN_TRY(rt.steps());
    if (i > 0) out.add(separator);
    PN_TRY(print(rt, items[i], out));
  }
  return done(out);
}

Result<Value> split_lines(Runtime& rt, const Str& s, bool keep_ends) {
  PN_TRY(scan(rt, s));
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < s.text.size();) {
    size_t end = at;
    char32_t c = next_char(s.text, at);
    bool ends =
        (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < s.text.size() && s.text[at] == '\n') ++at;
    PN_TRY(rt.steps());
    PN_TRY(Value line, cut(rt, s, begin, keep_ends ? at : end));
    lines.push_back(std::move(line));
    begin = at;
  }
  if (begin < s.text.size()) {
    PN_TRY(Value line, cut(rt, s, begin, s.text.size()));
    lines.push_back(std::move(line));
  }
  PN_TRY(rt.bytes(lines.size() * (sizeof(Value) + sizeof(Str))));
  return Value::list(std::move(lines));
}

const Str& space_str() {
  static const StrPtr space = make_str(" ");
  return *space;
}

Result<int64_t> int_arg(const Runtime& rt, const Value* v, int64_t absent, const char* what) {
  if (v == nullptr || v->is_none()) return absent;
  if (v->is_integer()) return v->integer();
  return rt.error(std::string(what) + " needs an integer, found " + v->type_name());
}

Result<const Str*> str_arg(const Runtime& rt, const Value* v, const char* what) {
  if (v != nullptr && v->is_string()) return &v->str();
  return rt.error(std::string(what) + " needs a string, found " +
                  (v == nullptr ? "nothing" : v->type_name()));
}

}  // namespace pn::jinja
