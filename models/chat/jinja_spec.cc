// SPDX-License-Identifier: Apache-2.0
//
// Layout of one formatted field.
//
// Owns padding, signs, digits and separators. Widths and precisions are bounded, so that a field
// cannot ask for a gigabyte of blanks.
#include "models/chat/jinja_spec.h"

#include <cmath>
#include <cstdio>

namespace pn::jinja {
namespace {

constexpr int kMaxWidth = 10'000;
constexpr int kMaxPrecision = 200;

void pad(StrBuilder& out, const FieldSpec& spec, size_t n) {
  for (; n > 0 && !out.full(); --n) {
    if (spec.fill) {
      out.add(*spec.fill);
    } else {
      out.add(spec.zero ? "0" : " ");
    }
  }
}

Result<void> check(const Runtime& rt, const FieldSpec& spec) {
  if (spec.width <= kMaxWidth && spec.precision <= kMaxPrecision) return {};
  return rt.error("a format field wider than " + std::to_string(kMaxWidth) + " or with more than " +
                  std::to_string(kMaxPrecision) + " digits");
}

std::string int_digits(uint64_t n, char type) {
  unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits;
  do {
    digits.insert(digits.begin(),
                  (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[n % base]);
    n /= base;
  } while (n != 0);
  return digits;
}

std::string float_digits(double d, const FieldSpec& spec) {
  double magnitude = std::fabs(d);
  if (!std::isfinite(d)) return std::isnan(d) ? "nan" : "inf";
  if (spec.type == 0 && spec.precision < 0) return float_repr(magnitude);
  char type = spec.type == 0 || spec.type == 'n' ? 'g' : spec.type == '%' ? 'f' : spec.type;
  if (spec.type == '%') magnitude *= 100;
  char pattern[8] = {'%', '.', '*', type, 0};
  if (spec.alternate) std::snprintf(pattern, sizeof pattern, "%%#.*%c", type);
  char buf[700];  // 309 digits before the point, 200 after
  std::snprintf(buf, sizeof buf, pattern, spec.precision < 0 ? 6 : spec.precision, magnitude);
  std::string s = buf;
  // "{:.3}" of a float keeps a point, as its repr does
  if (spec.type == 0 && s.find_first_of(".e") == s.npos) s += ".0";
  return s + (spec.type == '%' ? "%" : "");
}

std::string with_commas(std::string digits) {
  size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

Result<void> format_string(Runtime& rt, const Str& s, const FieldSpec& spec, StrBuilder& out) {
  PN_TRY(check(rt, spec));
  size_t chars = s.chars;
  if (spec.precision >= 0) chars = std::min(chars, static_cast<size_t>(spec.precision));
  size_t width = static_cast<size_t>(spec.width);
  size_t room = width > chars ? width - chars : 0;
  size_t before = spec.align == '>' ? room : spec.align == '^' ? room / 2 : 0;
  pad(out, spec, before);
  out.add(s, 0, s.offset(chars));
  pad(out, spec, room - before);
  return {};
}

Result<void> format_number(Runtime& rt, const Value& v, const FieldSpec& spec, StrBuilder& out) {
  PN_TRY(check(rt, spec));
  bool real = v.is(Value::Kind::real);
  bool as_float = real || (spec.type != 0 &&
                           std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
  std::string prefix, digits;
  bool minus = false;
  if (as_float) {
    double d = v.real();
    minus = std::signbit(d) && !std::isnan(d);
    digits = float_digits(d, spec);
  } else {
    minus = v.is_integer() && v.integer() < 0;
    uint64_t n = v.is_integer() ? static_cast<uint64_t>(v.integer()) : v.big();
    digits = int_digits(minus ? 0 - n : n, spec.type);
    if (spec.precision > static_cast<int>(digits.size())) {
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    if (spec.alternate && spec.type != 'd' && spec.type != 0) prefix = {'0', spec.type};
  }
  if (spec.comma) digits = with_commas(std::move(digits));
  std::string sign = minus ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  size_t length = sign.size() + prefix.size() + digits.size();
  size_t width = static_cast<size_t>(spec.width);
  size_t room = width > length ? width - length : 0;
  char align = spec.align != 0 ? spec.align : spec.zero ? '=' : '>';
  size_t before = align == '>' ? room : align == '^' ? room / 2 : 0;
  pad(out, spec, before);
  out.add(sign + prefix);
  if (align == '=') pad(out, spec, room);
  out.add(digits);
  if (align == '<' || align == '^') pad(out, spec, room - before);
  return {};
}

}  // namespace pn::jinja
