// SPDX-License-Identifier: Apache-2.0
//
// str() and repr() as Python prints them.
//
// Owns quoting, float notation and the look of containers. Containers are printed by repr of their
// parts; strings keep their marks through quoting and escapes.
#include <charconv>
#include <cmath>

#include "models/chat/jinja_ops.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

void escape_char(StrBuilder& out, char32_t c, bool input) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string code = c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
  for (int shift = c < 0x100 ? 4 : c < 0x10000 ? 12 : 28; shift >= 0; shift -= 4) {
    code.push_back(kHex[(c >> shift) & 15]);
  }
  out.add(code, input);
}

void repr_str(const Str& s, StrBuilder& out) {
  bool single = s.text.find('\'') != std::string::npos;
  char quote = single && s.text.find('"') == std::string::npos ? '"' : '\'';
  out.add(std::string_view(&quote, 1));
  size_t plain = 0;  // start of what needs no escape
  size_t cursor = 0;
  for (size_t at = 0; at < s.text.size() && !out.full();) {
    size_t begin = at;
    char32_t c = next_char(s.text, at);
    bool special = c == '\\' || c == static_cast<unsigned char>(quote) || !is_printable(c);
    if (!special) continue;
    out.add(s, plain, begin);
    plain = at;
    bool input = is_input(s, begin, cursor);
    if (c == '\n' || c == '\r' || c == '\t') {
      out.add(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", input);
    } else if (c < 0x80 && is_printable(c)) {
      out.add("\\", input);
      out.add_char(c, input);
    } else {
      escape_char(out, c, input);
    }
  }
  out.add(s, plain, s.text.size());
  out.add(std::string_view(&quote, 1));
}

Result<void> repr_seq(Runtime& rt, const Seq& seq, StrBuilder& out) {
  using Shape = Seq::Shape;
  if (seq.shape == Shape::generator) {
    out.add("<generator object>");
    return {};
  }
  if (seq.shape == Shape::range) {
    auto at = [&seq](size_t i) { return seq.items[i].integer(); };
    int64_t step = seq.items.size() > 1 ? at(1) - at(0) : 1;
    int64_t first = seq.items.empty() ? 0 : at(0);
    int64_t stop = seq.items.empty() ? 0 : at(seq.items.size() - 1) + (step > 0 ? 1 : -1);
    out.add("range(" + std::to_string(first) + ", " + std::to_string(stop));
    if (step != 1) out.add(", " + std::to_string(step));
    out.add(")");
    return {};
  }
  static constexpr std::string_view kOpen[] = {
      "[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
  static constexpr std::string_view kClose[] = {"]", ")", "", "])", "])", "])"};
  out.add(kOpen[static_cast<int>(seq.shape)]);
  for (size_t i = 0; i < seq.items.size() && !out.full(); ++i) {
    if (i > 0) out.add(", ");
    PN_TRY(repr(rt, seq.items[i], out));
  }
  if (seq.shape == Shape::tuple && seq.items.size() == 1) out.add(",");
  out.add(kClose[static_cast<int>(seq.shape)]);
  return {};
}

Result<void> repr_dict(Runtime& rt, const Dict& dict, StrBuilder& out) {
  out.add("{");
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (out.full()) break;
    if (!first) out.add(", ");
    first = false;
    PN_TRY(repr(rt, key, out));
    out.add(": ");
    PN_TRY(repr(rt, value, out));
  }
  out.add("}");
  return {};
}

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  // Shortest digits as d.ddde[+-]xx, then laid out as Python does: exponents from -4 to 15 in full.
  char buf[40];
  auto end = std::to_chars(buf, buf + sizeof buf, d, std::chars_format::scientific).ptr;
  std::string s(buf, end);
  std::string sign = s[0] == '-' ? "-" : "";
  s.erase(0, sign.size());
  size_t e = s.find('e');
  int exponent = std::atoi(s.c_str() + e + 1);
  std::string digits = s.substr(0, 1) + (e > 2 ? s.substr(2, e - 2) : "");
  int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1) + (n > 1 ? "." + digits.substr(1) : "");
    std::string power = std::to_string(std::abs(exponent));
    if (power.size() < 2) power.insert(0, "0");
    return sign + mantissa + "e" + (exponent < 0 ? "-" : "+") + power;
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent) - 1, '0') + digits;
  }
  if (n <= exponent + 1) {
    return sign + digits +
           std::string(static_cast<size_t>(exponent + 1) - static_cast<size_t>(n), '0') + ".0";
  }
  size_t point = static_cast<size_t>(exponent) + 1;
  return sign + digits.substr(0, point) + "." + digits.substr(point);
}

Result<void> repr(Runtime& rt, const Value& v, StrBuilder& out) {
  Level level(rt);
  PN_TRY(rt.check_depth());
  PN_TRY(rt.steps());
  switch (v.kind()) {
    case Value::Kind::undefined:
      out.add("Undefined");
      return {};
    case Value::Kind::none:
      out.add("None");
      return {};
    case Value::Kind::boolean:
      out.add(v.boolean() ? "True" : "False");
      return {};
    case Value::Kind::integer:
      out.add(std::to_string(v.integer()));
      return {};
    case Value::Kind::big:
      out.add(std::to_string(v.big()));
      return {};
    case Value::Kind::real:
      out.add(float_repr(v.real()));
      return {};
    case Value::Kind::string:
      repr_str(v.str(), out);
      return {};
    case Value::Kind::seq:
      return repr_seq(rt, *v.seq(), out);
    case Value::Kind::dict:
      return repr_dict(rt, *v.dict(), out);
    case Value::Kind::object:
      break;
  }
  if (v.object()->kind != Object::Kind::space) {
    out.add(std::string("<") + v.type_name() + ">");
    return {};
  }
  out.add("<Namespace ");
  PN_TRY(repr_dict(rt, *static_cast<const Namespace&>(*v.object()).attrs, out));
  out.add(">");
  return {};
}

Result<void> print(Runtime& rt, const Value& v, StrBuilder& out) {
  if (v.is_string()) {
    out.add(v.str());
    return {};
  }
  if (v.is_undefined()) return {};
  return repr(rt, v, out);
}

Result<StrPtr> to_str(Runtime& rt, const Value& v) {
  if (v.is_string()) return v.str_ptr();
  StrBuilder out(rt);
  PN_TRY(print(rt, v, out));
  return out.finish();
}

}  // namespace pn::jinja
