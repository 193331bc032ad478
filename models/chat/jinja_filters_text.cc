// SPDX-License-Identifier: Apache-2.0
//
// Filters that give a string or a number.
//
// Owns the text and number filters of Jinja 3.1. A subject that is not a string is printed first,
// as soft_str does there.
#include <charconv>
#include <cmath>

#include "models/chat/jinja_json.h"
#include "models/chat/jinja_text.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

template <CaseFn put>
Result<Value> case_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "a case filter", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  return map_chars(rt, *s, put);
}

Result<Value> capitalize_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "capitalize", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  return capitalize(rt, *s);
}

// Words begin after white space, '-' and opening brackets only, unlike str.title.
Result<Value> title_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "title", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  PN_TRY(rt.steps(1 + s->text.size() / 16));
  StrBuilder out(rt);
  bool start = true;
  size_t cursor = 0;
  for (size_t at = 0; at < s->text.size() && !out.full();) {
    bool input = is_input(*s, at, cursor);
    char32_t c = next_char(s->text, at);
    std::string one;
    start ? append_upper(one, c) : append_lower(one, c);
    out.add(one, input);
    start = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  PN_TRY(StrPtr result, out.finish());
  return Value(std::move(result));
}

Result<Value> trim_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "trim", {"chars"}));
  PN_TRY(StrPtr s, to_str(rt, self));
  const Str* chars = nullptr;
  if (a[0] != nullptr && !a[0]->is_none()) {
    PN_TRY(chars, str_arg(rt, a[0], "trim"));
  }
  return strip(rt, *s, chars, Side::both);
}

Result<Value> replace_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "replace", {"old", "new", "count"}, 2));
  PN_TRY(StrPtr s, to_str(rt, self));
  PN_TRY(StrPtr from, to_str(rt, *a[0]));
  PN_TRY(StrPtr to, to_str(rt, *a[1]));
  PN_TRY(int64_t count, int_arg(rt, a[2], -1, "replace"));
  return replace_text(rt, *s, *from, *to, count);
}

Result<Value> string_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "string", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  return Value(std::move(s));
}

Value as_markup(const Str& s) {
  auto marked = std::make_shared<Str>(s);
  marked->markup = true;
  return Value(StrPtr(std::move(marked)));
}

Result<Value> safe_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "safe", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  PN_TRY(rt.bytes(s->text.size()));
  return as_markup(*s);
}

Result<Value> escape_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "escape", {}));
  if (self.is_string() && self.str().markup) return self;
  PN_TRY(StrPtr s, to_str(rt, self));
  PN_TRY(s, escape_html(rt, *s));
  return as_markup(*s);
}

Result<Value> center_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "center", {"width"}));
  PN_TRY(int64_t width, int_arg(rt, a[0], 80, "center"));
  PN_TRY(StrPtr s, to_str(rt, self));
  return centered(rt, *s, width, space_str());
}

Result<Value> indent_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "indent", {"width", "first", "blank"}));
  PN_TRY(const Str* text, str_arg(rt, &self, "indent"));
  StrPtr margin;
  if (a[0] != nullptr && a[0]->is_string()) {
    margin = a[0]->str_ptr();
  } else {
    PN_TRY(int64_t width, int_arg(rt, a[0], 4, "indent"));
    PN_TRY(Value spaces,
           padded(rt, *make_str(""), width > 0 ? static_cast<size_t>(width) : 0, 0, space_str()));
    margin = spaces.str_ptr();
  }
  bool first = a[1] != nullptr && truth(*a[1]);
  bool blank = a[2] != nullptr && truth(*a[2]);
  StrPtr newline = make_str("\n");
  PN_TRY(Value closed, concat_all(rt, {text, newline.get()}));
  PN_TRY(Value lines, split_lines(rt, closed.str(), false));
  StrBuilder out(rt);
  const std::vector<Value>& items = lines.seq()->items;
  for (size_t i = 0; i < items.size() && !out.full(); ++i) {
    const Str& line = items[i].str();
    if (i > 0) out.add("\n");
    if (i == 0 ? first : blank || !line.text.empty()) out.add(*margin);
    out.add(line);
  }
  PN_TRY(StrPtr result, out.finish());
  return Value(std::move(result));
}

Result<Value> truncate_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "truncate", {"length", "killwords", "end", "leeway"}));
  PN_TRY(int64_t most, int_arg(rt, a[0], 255, "truncate"));
  PN_TRY(int64_t leeway, int_arg(rt, a[3], 5, "truncate"));
  StrPtr end = make_str("...");
  if (a[2] != nullptr) {
    PN_TRY(end, to_str(rt, *a[2]));
  }
  int64_t tail = static_cast<int64_t>(end->chars);
  if (most < tail || leeway < 0 || most > INT32_MAX || leeway > INT32_MAX) {
    return rt.error("truncate with a length or leeway out of range");
  }
  PN_TRY(Value size, length(rt, self));
  if (size.integer() <= most + leeway) return self;
  PN_TRY(const Str* s, str_arg(rt, &self, "truncate"));
  size_t stop = s->offset(static_cast<size_t>(most - tail));
  if (a[1] == nullptr || !truth(*a[1])) {
    size_t space = std::string_view(s->text).substr(0, stop).rfind(' ');
    if (space != std::string::npos) stop = space;
  }
  PN_TRY(Value head, cut(rt, *s, 0, stop));
  return concat_all(rt, {&head.str(), end.get()});
}

Result<Value> format_filter(Runtime& rt, const Value& self, const Args& args) {
  if (!args.named.empty() && !args.positional.empty()) {
    return rt.error("format takes positional or named arguments, not both");
  }
  PN_TRY(StrPtr s, to_str(rt, self));
  if (args.named.empty()) {
    return percent_format(rt, *s, Value::list(args.positional, Seq::Shape::tuple));
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : args.named) dict->set(Value::text(name), value);
  return percent_format(rt, *s, Value(std::move(dict)));
}

Result<Value> urlencode_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "urlencode", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  StrBuilder out(rt);
  size_t cursor = 0;
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (size_t i = 0; i < s->text.size() && !out.full(); ++i) {
    unsigned char c = static_cast<unsigned char>(s->text[i]);
    bool plain = c < 0x80 && (is_alpha(c) || is_digit(c) || c == '_' || c == '.' || c == '-' ||
                              c == '~' || c == '/');
    bool input = is_input(*s, i, cursor);
    char escaped[3] = {'%', kHex[c >> 4], kHex[c & 15]};
    plain ? out.add(std::string_view(&s->text[i], 1), input)
          : out.add(std::string_view(escaped, 3), input);
  }
  PN_TRY(StrPtr result, out.finish());
  return Value(std::move(result));
}

Result<Value> wordcount_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "wordcount", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  PN_TRY(rt.steps(1 + s->text.size() / 16));
  size_t n = 0;
  bool inside = false;
  for (size_t at = 0; at < s->text.size();) {
    char32_t c = next_char(s->text, at);
    bool word = is_alpha(c) || is_digit(c) || c == '_';
    n += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::count(n);
}

// A number as Python's int() or float() reads it: spaces around, '_' between digits.
std::string number_text(const Str& s) {
  std::string_view t = s.text;
  while (!t.empty() && is_space(static_cast<unsigned char>(t.front()))) t.remove_prefix(1);
  while (!t.empty() && is_space(static_cast<unsigned char>(t.back()))) t.remove_suffix(1);
  std::string out;
  for (size_t i = 0; i < t.size() && i < 400; ++i) {
    bool between = i > 0 && i + 1 < t.size() && is_digit(static_cast<unsigned char>(t[i - 1])) &&
                   is_digit(static_cast<unsigned char>(t[i + 1]));
    if (t[i] != '_' || !between) out.push_back(static_cast<char>(t[i]));
  }
  return out;
}

bool parse_float(const Str& s, double& d) {
  std::string t = number_text(s);
  bool minus = !t.empty() && t[0] == '-';
  if (!t.empty() && (t[0] == '-' || t[0] == '+')) t.erase(0, 1);
  std::string low;
  for (char c : t) low.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  bool word = low == "inf" || low == "infinity" || low == "nan";
  if (!word && (low.empty() || !(is_digit(static_cast<unsigned char>(low[0])) || low[0] == '.'))) {
    return false;
  }
  auto [end, ec] = std::from_chars(low.data(), low.data() + low.size(), d);
  if (end != low.data() + low.size() || ec == std::errc::invalid_argument) return false;
  if (ec == std::errc::result_out_of_range) d = low.find("e-") != low.npos ? 0.0 : HUGE_VAL;
  if (minus) d = -d;
  return true;
}

Result<Value> int_of_float(const Runtime& rt, double d, const Value& fallback) {
  if (std::isnan(d) || std::isinf(d)) return fallback;
  if (d >= 9223372036854775808.0 || d < -9223372036854775808.0) {
    return rt.error("integer result beyond 64 bits");
  }
  return Value(static_cast<int64_t>(d));
}

Result<Value> parse_int(const Runtime& rt, const Str& s, int64_t base, const Value& fallback) {
  std::string t = number_text(s);
  std::string_view digits = t;
  bool minus = digits.starts_with('-');
  if (minus || digits.starts_with('+')) digits.remove_prefix(1);
  char mark = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 32) : 0;
  int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) digits.remove_prefix(2);
  if (base == 0) base = marked != 0 ? marked : 10;
  uint64_t n = 0;
  auto [end, ec] =
      std::from_chars(digits.data(), digits.data() + digits.size(), n, static_cast<int>(base));
  bool whole = !digits.empty() && end == digits.data() + digits.size();
  if (whole && ec == std::errc() && n <= static_cast<uint64_t>(INT64_MAX)) {
    return Value(minus ? -static_cast<int64_t>(n) : static_cast<int64_t>(n));
  }
  if (whole) return rt.error("integer result beyond 64 bits");
  double d = 0;
  return parse_float(s, d) ? int_of_float(rt, d, fallback) : fallback;
}

Result<Value> int_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "int", {"default", "base"}));
  PN_TRY(int64_t base, int_arg(rt, a[1], 10, "int"));
  if (base != 0 && (base < 2 || base > 36)) return rt.error("int with a base out of range");
  Value fallback = a[0] != nullptr ? *a[0] : Value(int64_t{0});
  if (self.is_undefined()) return negate(rt, self);  // its error
  if (self.is_integer()) return Value(self.integer());
  if (self.is(Value::Kind::big)) return self;
  if (self.is(Value::Kind::real)) return int_of_float(rt, self.real(), fallback);
  return self.is_string() ? parse_int(rt, self.str(), base, fallback) : fallback;
}

Result<Value> float_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "float", {"default"}));
  if (self.is_undefined()) return negate(rt, self);  // its error
  if (self.is_number()) return Value(self.real());
  double d = 0;
  if (self.is_string() && parse_float(self.str(), d)) return Value(d);
  return a[0] != nullptr ? *a[0] : Value(0.0);
}

Result<Value> abs_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "abs", {}));
  if (self.is(Value::Kind::real)) return Value(std::fabs(self.real()));
  if (self.is_integer() && self.integer() >= 0) return Value(self.integer());
  return self.is(Value::Kind::big) ? Result<Value>(self) : negate(rt, self);
}

Result<Value> round_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "round", {"precision", "method"}));
  PN_TRY(int64_t precision, int_arg(rt, a[0], 0, "round"));
  std::string method = "common";
  if (a[1] != nullptr) {
    PN_TRY(const Str* s, str_arg(rt, a[1], "round"));
    method = s->text;
  }
  if (!self.is_number()) return rt.error(std::string("round of a ") + self.type_name());
  if (precision < -20 || precision > 100) return rt.error("round with a precision out of range");
  double x = self.real(), scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(x * scale) / scale);
  if (method == "floor") return Value(std::floor(x * scale) / scale);
  if (method != "common") return rt.error("round takes the methods common, ceil and floor");
  if (self.is_integer() && precision >= 0) return Value(self.integer());
  if (std::isnan(x) || std::isinf(x)) return Value(x);
  if (precision < 0) {
    double r = std::nearbyint(x * scale) / scale;
    return self.is_integer() ? Value(static_cast<int64_t>(r)) : Value(r);
  }
  char buf[512];  // exact decimal rounding, half to even: 309 digits and 100 after the point
  std::snprintf(buf, sizeof buf, "%.*f", static_cast<int>(precision), x);
  return Value(std::strtod(buf, nullptr));
}

}  // namespace

Native find_text_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, Native> kFilters[] = {
      {"tojson", tojson_filter},         {"trim", trim_filter},
      {"string", string_filter},         {"safe", safe_filter},
      {"lower", case_filter<put_lower>}, {"upper", case_filter<put_upper>},
      {"replace", replace_filter},       {"from_json", from_json_filter},
      {"indent", indent_filter},         {"int", int_filter},
      {"float", float_filter},           {"abs", abs_filter},
      {"round", round_filter},           {"capitalize", capitalize_filter},
      {"title", title_filter},           {"center", center_filter},
      {"truncate", truncate_filter},     {"format", format_filter},
      {"escape", escape_filter},         {"e", escape_filter},
      {"urlencode", urlencode_filter},   {"wordcount", wordcount_filter},
  };
  for (const auto& [filter, fn] : kFilters) {
    if (filter == name) return fn;
  }
  return nullptr;
}

}  // namespace pn::jinja
