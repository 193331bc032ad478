// SPDX-License-Identifier: Apache-2.0
//
// Methods of strings.
//
// Owns Python's str methods that templates use: split, strip, startswith, find, replace, case and
// predicates. Positions are counted in characters, as Python does.
#include <algorithm>

#include "models/chat/jinja_text.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

template <Side side>
Result<Value> strip_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "strip()", {"chars"}));
  const Str* chars = nullptr;
  if (a[0] != nullptr && !a[0]->is_none()) {
    PN_TRY(chars, str_arg(rt, a[0], "strip()"));
  }
  return strip(rt, self.str(), chars, side);
}

template <CaseFn put>
Result<Value> case_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "this string method", {}));
  return map_chars(rt, self.str(), put);
}

void put_title(std::string& out, char32_t c, bool word_start) {
  word_start ? append_upper(out, c) : append_lower(out, c);
}
void put_swapped(std::string& out, char32_t c, bool) {
  is_upper(c) ? append_lower(out, c) : append_upper(out, c);
}

Result<Value> capitalize_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "capitalize()", {}));
  return capitalize(rt, self.str());
}

using Cuts = std::vector<std::pair<size_t, size_t>>;  // bytes [begin, end)

Cuts cuts_at(std::string_view text, std::string_view sep, int64_t most) {
  Cuts cuts;
  size_t at = 0;
  for (size_t found; most != 0 && (found = text.find(sep, at)) != text.npos; --most) {
    cuts.emplace_back(at, found);
    at = found + sep.size();
  }
  cuts.emplace_back(at, text.size());
  return cuts;
}

Cuts cuts_at_reversed(std::string_view text, std::string_view sep, int64_t most) {
  Cuts cuts;
  size_t end = text.size();
  for (; most != 0 && end >= sep.size(); --most) {
    size_t found = text.rfind(sep, end - sep.size());
    if (found == text.npos) break;
    cuts.emplace_back(found + sep.size(), end);
    end = found;
  }
  cuts.emplace_back(0, end);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

Cuts words(std::string_view text) {
  Cuts cuts;
  size_t begin = std::string_view::npos;
  for (size_t at = 0; at < text.size();) {
    size_t here = at;
    bool space = is_space(next_char(text, at));
    if (space && begin != text.npos) {
      cuts.emplace_back(begin, here);
      begin = text.npos;
    } else if (!space && begin == text.npos) {
      begin = here;
    }
  }
  if (begin != text.npos) cuts.emplace_back(begin, text.size());
  return cuts;
}

// split() by white space keeps the rest of the text, from its first word on, as the last part.
Cuts limit_words(std::string_view text, Cuts cuts, int64_t most, bool reversed) {
  if (most < 0 || cuts.size() <= static_cast<size_t>(most)) return cuts;
  size_t n = static_cast<size_t>(most);
  if (!reversed) {
    Cuts kept(cuts.begin(), cuts.begin() + most);
    kept.emplace_back(cuts[n].first, text.size());
    return kept;
  }
  Cuts kept(cuts.end() - most, cuts.end());
  kept.emplace(kept.begin(), 0, cuts[cuts.size() - n - 1].second);
  return kept;
}

template <bool reversed>
Result<Value> split_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "split()", {"sep", "maxsplit"}));
  PN_TRY(int64_t most, int_arg(rt, a[1], -1, "split()"));
  const Str& s = self.str();
  PN_TRY(rt.steps(1 + s.text.size() / 64));
  Cuts cuts;
  if (a[0] == nullptr || a[0]->is_none()) {
    cuts = limit_words(s.text, words(s.text), most, reversed);
  } else {
    PN_TRY(const Str* sep, str_arg(rt, a[0], "split()"));
    if (sep->text.empty()) return rt.error("split() by an empty separator");
    cuts = reversed ? cuts_at_reversed(s.text, sep->text, most) : cuts_at(s.text, sep->text, most);
  }
  PN_TRY(rt.steps(cuts.size()));
  PN_TRY(rt.bytes(cuts.size() * (sizeof(Value) + sizeof(Str))));
  std::vector<Value> parts;
  for (const auto& [begin, end] : cuts) {
    PN_TRY(Value part, cut(rt, s, begin, end));
    parts.push_back(std::move(part));
  }
  return Value::list(std::move(parts));
}

Result<Value> splitlines_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "splitlines()", {"keepends"}));
  return split_lines(rt, self.str(), a[0] != nullptr && truth(*a[0]));
}

template <bool last>
Result<Value> partition_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "partition()", {"sep"}, 1));
  PN_TRY(const Str* sep, str_arg(rt, a[0], "partition()"));
  if (sep->text.empty()) return rt.error("partition() by an empty separator");
  const Str& s = self.str();
  PN_TRY(rt.steps(1 + s.text.size() / 64));
  size_t at = last ? s.text.rfind(sep->text) : s.text.find(sep->text);
  Value empty = Value::text("");
  if (at == std::string::npos) {
    std::vector<Value> parts =
        last ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty};
    return Value::list(std::move(parts), Seq::Shape::tuple);
  }
  PN_TRY(Value head, cut(rt, s, 0, at));
  PN_TRY(Value tail, cut(rt, s, at + sep->text.size(), s.text.size()));
  return Value::list({head, *a[0], tail}, Seq::Shape::tuple);
}

// Bytes of s[start:stop] as the optional arguments say; begin > end when start is past the end.
Result<std::pair<size_t, size_t>> window(const Runtime& rt, const Str& s, const Value* start,
                                         const Value* stop) {
  int64_t n = static_cast<int64_t>(s.chars);
  PN_TRY(int64_t from, int_arg(rt, start, 0, "a string method"));
  PN_TRY(int64_t to, int_arg(rt, stop, n, "a string method"));
  if (from < 0) from = std::max<int64_t>(0, from < -n ? 0 : from + n);
  if (to < 0) to = std::max<int64_t>(0, to < -n ? 0 : to + n);
  to = std::min(to, n);
  if (from > to) return std::pair<size_t, size_t>{1, 0};
  return std::pair{s.offset(static_cast<size_t>(from)), s.offset(static_cast<size_t>(to))};
}

template <bool at_end>
Result<Value> affix_method(Runtime& rt, const Value& self, const Args& args) {
  const char* what = at_end ? "endswith()" : "startswith()";
  PN_TRY(auto a, args.bind(rt, what, {"affix", "start", "end"}, 1));
  PN_TRY(auto range, window(rt, self.str(), a[1], a[2]));
  std::vector<Value> options{*a[0]};
  if (a[0]->is_seq() && a[0]->seq()->shape == Seq::Shape::tuple) options = a[0]->seq()->items;
  for (const Value& option : options) {
    PN_TRY(const Str* affix, str_arg(rt, &option, what));
    PN_TRY(rt.steps(1 + affix->text.size() / 64));
    if (range.first > range.second) continue;
    std::string_view text(self.str().text.data() + range.first, range.second - range.first);
    if (at_end ? text.ends_with(affix->text) : text.starts_with(affix->text)) return Value(true);
  }
  return Value(false);
}

enum class Find { first, last, first_or_fail, last_or_fail };

template <Find mode>
Result<Value> find_in(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "find()", {"sub", "start", "end"}, 1));
  PN_TRY(const Str* sub, str_arg(rt, a[0], "find()"));
  const Str& s = self.str();
  PN_TRY(rt.steps(1 + s.text.size() / 64));
  PN_TRY(auto range, window(rt, s, a[1], a[2]));
  size_t found = std::string::npos;
  if (range.first <= range.second) {
    std::string_view text(s.text.data() + range.first, range.second - range.first);
    bool back = mode == Find::last || mode == Find::last_or_fail;
    found = back ? text.rfind(sub->text) : text.find(sub->text);
  }
  if (found != std::string::npos) {
    return Value::count(count_chars(std::string_view(s.text).substr(0, range.first + found)));
  }
  if (mode == Find::first || mode == Find::last) return Value(int64_t{-1});
  return rt.error("index() of a text that is not in the string");
}

Result<Value> count_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "count()", {"sub", "start", "end"}, 1));
  PN_TRY(const Str* sub, str_arg(rt, a[0], "count()"));
  const Str& s = self.str();
  PN_TRY(rt.steps(1 + s.text.size() / 64));
  PN_TRY(auto range, window(rt, s, a[1], a[2]));
  if (range.first > range.second) return Value(int64_t{0});
  std::string_view text(s.text.data() + range.first, range.second - range.first);
  if (sub->text.empty()) return Value::count(count_chars(text) + 1);
  return Value::count(cuts_at(text, sub->text, -1).size() - 1);
}

Result<Value> replace_method(Runtime& rt, const Value& self, const Args& args) {
  if (!args.named.empty()) return rt.error("replace() takes no named arguments");
  PN_TRY(auto a, args.bind(rt, "replace()", {"old", "new", "count"}, 2));
  PN_TRY(const Str* from, str_arg(rt, a[0], "replace()"));
  PN_TRY(const Str* to, str_arg(rt, a[1], "replace()"));
  PN_TRY(int64_t count, int_arg(rt, a[2], -1, "replace()"));
  return replace_text(rt, self.str(), *from, *to, count);
}

template <bool suffix>
Result<Value> remove_affix(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "removeprefix()", {"affix"}, 1));
  PN_TRY(const Str* affix, str_arg(rt, a[0], "removeprefix()"));
  const Str& s = self.str();
  std::string_view text = s.text;
  size_t n = affix->text.size();
  if (suffix && n > 0 && text.ends_with(affix->text)) return cut(rt, s, 0, text.size() - n);
  if (!suffix && text.starts_with(affix->text)) return cut(rt, s, n, text.size());
  return self;
}

Result<Value> join_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "join()", {"iterable"}, 1));
  PN_TRY(SeqPtr seq, elements(rt, *a[0]));
  for (const Value& item : seq->items) PN_TRY(str_arg(rt, &item, "join()"));
  return join_list(rt, seq->items, self.str());
}

// 0: left of the padding, 1: right of it, 2: in the middle
template <int place>
Result<Value> just_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "ljust()", {"width", "fillchar"}, 1));
  PN_TRY(int64_t width, int_arg(rt, a[0], 0, "ljust()"));
  const Str* fill = &space_str();
  if (a[1] != nullptr) {
    PN_TRY(fill, str_arg(rt, a[1], "ljust()"));
  }
  if (fill->chars != 1) return rt.error("the fill character must be one character");
  const Str& s = self.str();
  if (place == 2) return centered(rt, s, width, *fill);
  int64_t have = static_cast<int64_t>(s.chars);
  size_t pad = width > have ? static_cast<size_t>(width - have) : 0;
  return padded(rt, s, place == 1 ? pad : 0, place == 0 ? pad : 0, *fill);
}

Result<Value> zfill_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "zfill()", {"width"}, 1));
  PN_TRY(int64_t width, int_arg(rt, a[0], 0, "zfill()"));
  const Str& s = self.str();
  size_t sign = !s.text.empty() && (s.text[0] == '-' || s.text[0] == '+') ? 1 : 0;
  int64_t have = static_cast<int64_t>(s.chars);
  StrBuilder out(rt);
  out.add(s, 0, sign);
  if (width > have) out.repeat(*make_str("0"), static_cast<size_t>(width - have));
  out.add(s, sign, s.text.size());
  PN_TRY(StrPtr result, out.finish());
  return Value(std::move(result));
}

using CharTest = bool (*)(char32_t);
bool is_alnum(char32_t c) { return is_alpha(c) || is_digit(c); }

template <CharTest test>
Result<Value> all_chars(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "this string method", {}));
  PN_TRY(rt.steps(1 + self.str().text.size() / 16));
  std::string_view text = self.str().text;
  for (size_t at = 0; at < text.size();) {
    if (!test(next_char(text, at))) return Value(false);
  }
  return Value(!text.empty());
}

template <bool upper>
Result<Value> case_test(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "this string method", {}));
  PN_TRY(rt.steps(1 + self.str().text.size() / 16));
  std::string_view text = self.str().text;
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_char(text, at);
    if (upper ? is_lower(c) : is_upper(c)) return Value(false);
    any |= upper ? is_upper(c) : is_lower(c);
  }
  return Value(any);
}

Result<Value> format_method(Runtime& rt, const Value& self, const Args& args) {
  return brace_format(rt, self.str(), args);
}

}  // namespace

Native find_string_method(std::string_view name) {
  static constexpr std::pair<std::string_view, Native> kMethods[] = {
      {"split", split_method<false>},
      {"strip", strip_method<Side::both>},
      {"lstrip", strip_method<Side::left>},
      {"rstrip", strip_method<Side::right>},
      {"startswith", affix_method<false>},
      {"endswith", affix_method<true>},
      {"replace", replace_method},
      {"join", join_method},
      {"format", format_method},
      {"upper", case_method<put_upper>},
      {"lower", case_method<put_lower>},
      {"casefold", case_method<put_lower>},
      {"title", case_method<put_title>},
      {"swapcase", case_method<put_swapped>},
      {"capitalize", capitalize_method},
      {"rsplit", split_method<true>},
      {"splitlines", splitlines_method},
      {"partition", partition_method<false>},
      {"rpartition", partition_method<true>},
      {"find", find_in<Find::first>},
      {"rfind", find_in<Find::last>},
      {"index", find_in<Find::first_or_fail>},
      {"rindex", find_in<Find::last_or_fail>},
      {"count", count_method},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"ljust", just_method<0>},
      {"rjust", just_method<1>},
      {"center", just_method<2>},
      {"zfill", zfill_method},
      {"isdigit", all_chars<is_digit>},
      {"isdecimal", all_chars<is_digit>},
      {"isnumeric", all_chars<is_digit>},
      {"isalpha", all_chars<is_alpha>},
      {"isalnum", all_chars<is_alnum>},
      {"isspace", all_chars<is_space>},
      {"isupper", case_test<true>},
      {"islower", case_test<false>},
  };
  for (const auto& [method, fn] : kMethods) {
    if (method == name) return fn;
  }
  return nullptr;
}

}  // namespace pn::jinja
