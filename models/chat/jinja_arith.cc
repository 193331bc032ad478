// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic, and what + * % mean for strings and lists.
//
// Owns overflow: integers have 64 bits, and a result beyond them is refused instead of wrapped or
// rounded. Products of strings and lists are charged before they are built.
#include <cmath>

#include "models/chat/jinja_ops.h"

namespace pn::jinja {
namespace {

using Kind = Value::Kind;

const char* symbol(Op op) {
  static const char* const kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<int>(op)];
}

tl::unexpected<Error> no_such(const Runtime& rt, Op op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    if (!v->is_undefined()) continue;
    const auto& message = v->undefined_value().message;
    return rt.error(message ? *message : "a value is undefined");
  }
  return rt.error(std::string("operator ") + symbol(op) + " does not take '" + a.type_name() +
                  "' and '" + b.type_name() + "'");
}

Result<Value> int_pow(const Runtime& rt, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return rt.error("division by zero");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  bool over = false;
  for (int64_t e = exponent; e > 0; e >>= 1) {
    if ((e & 1) != 0) over |= __builtin_mul_overflow(result, base, &result);
    if (over) return rt.error("integer result beyond 64 bits");
    if (e > 1 && __builtin_mul_overflow(base, base, &base)) over = true;
  }
  return Value(result);
}

Result<Value> int_op(const Runtime& rt, Op op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool over = false;
  switch (op) {
    case Op::add:
      over = __builtin_add_overflow(a, b, &r);
      break;
    case Op::sub:
      over = __builtin_sub_overflow(a, b, &r);
      break;
    case Op::mul:
      over = __builtin_mul_overflow(a, b, &r);
      break;
    case Op::pow:
      return int_pow(rt, a, b);
    default:
      if (b == 0) return rt.error("division by zero");
      if (op == Op::div) return Value(static_cast<double>(a) / static_cast<double>(b));
      over = a == INT64_MIN && b == -1;
      if (over && op == Op::mod) return Value(int64_t{0});
      if (!over) {
        int64_t mod = a % b;
        bool fix = mod != 0 && (mod < 0) != (b < 0);  // Python rounds towards minus infinity
        r = op == Op::mod ? mod + (fix ? b : 0) : a / b - (fix ? 1 : 0);
      }
  }
  if (over) return rt.error("integer result beyond 64 bits");
  return Value(r);
}

Result<Value> float_divmod(const Runtime& rt, Op op, double a, double b) {
  if (b == 0) return rt.error("division by zero");
  double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) {
      mod += b;
      div -= 1;
    }
  } else {
    mod = std::copysign(0.0, b);
  }
  if (op == Op::mod) return Value(mod);
  if (div == 0) return Value(std::copysign(0.0, a / b));
  double floor = std::floor(div);
  return Value(div - floor > 0.5 ? floor + 1 : floor);
}

Result<Value> float_op(const Runtime& rt, Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return Value(a + b);
    case Op::sub:
      return Value(a - b);
    case Op::mul:
      return Value(a * b);
    case Op::div:
      if (b == 0) return rt.error("division by zero");
      return Value(a / b);
    case Op::pow: {
      if (a == 0 && b < 0) return rt.error("division by zero");
      double r = std::pow(a, b);
      if (std::isnan(r) && !std::isnan(a) && !std::isnan(b)) {
        return rt.error("a fractional power of a negative number");
      }
      if (std::isinf(r) && !std::isinf(a) && !std::isinf(b)) {
        return rt.error("result of ** is too large");
      }
      return Value(r);
    }
    default:
      return float_divmod(rt, op, a, b);
  }
}

Result<Value> repeat(Runtime& rt, const Value& v, int64_t times) {
  size_t n = times > 0 ? static_cast<size_t>(times) : 0;
  if (v.is_string()) {
    StrBuilder out(rt);
    out.repeat(v.str(), n);
    PN_TRY(StrPtr s, out.finish());
    return Value(std::move(s));
  }
  const Seq& seq = *v.seq();
  size_t size = 0;
  if (__builtin_mul_overflow(seq.items.size(), n, &size)) size = SIZE_MAX;
  PN_TRY(rt.steps(size));
  PN_TRY(rt.bytes(size * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(size);
  for (size_t i = 0; i < size; ++i) items.push_back(seq.items[i % seq.items.size()]);
  return Value::list(std::move(items), seq.shape);
}

Result<Value> join(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_string()) {
    bool markup = a.str().markup || b.str().markup;
    StrPtr x = a.str_ptr(), y = b.str_ptr();
    if (markup && !x->markup) {
      PN_TRY(x, escape_html(rt, *x));
    }
    if (markup && !y->markup) {
      PN_TRY(y, escape_html(rt, *y));
    }
    StrBuilder out(rt);
    out.add(*x);
    out.add(*y);
    PN_TRY(StrPtr s, out.finish());
    if (!markup) return Value(std::move(s));
    auto marked = std::make_shared<Str>(*s);
    marked->markup = true;
    return Value(StrPtr(std::move(marked)));
  }
  const auto &x = a.seq()->items, &y = b.seq()->items;
  PN_TRY(rt.steps(x.size() + y.size()));
  PN_TRY(rt.bytes((x.size() + y.size()) * sizeof(Value)));
  std::vector<Value> items(x);
  items.insert(items.end(), y.begin(), y.end());
  return Value::list(std::move(items), a.seq()->shape);
}

bool joinable(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return true;
  return a.is_seq() && b.is_seq() && a.seq()->shape == b.seq()->shape &&
         a.seq()->shape <= Seq::Shape::tuple;
}

bool repeatable(const Value& v) {
  return v.is_string() || (v.is_seq() && v.seq()->shape <= Seq::Shape::tuple);
}

}  // namespace

Result<Value> binary(Runtime& rt, Op op, const Value& a, const Value& b) {
  if (op == Op::mod && a.is_string()) return percent_format(rt, a.str(), b);
  if (op == Op::add && joinable(a, b)) return join(rt, a, b);
  if (op == Op::mul && repeatable(a) && b.is_integer()) return repeat(rt, a, b.integer());
  if (op == Op::mul && repeatable(b) && a.is_integer()) return repeat(rt, b, a.integer());
  if (a.is_integer() && b.is_integer()) return int_op(rt, op, a.integer(), b.integer());
  if (!a.is_number() || !b.is_number()) return no_such(rt, op, a, b);
  if (a.is(Kind::big) || b.is(Kind::big)) return rt.error("integer result beyond 64 bits");
  return float_op(rt, op, a.real(), b.real());
}

Result<Value> negate(Runtime& rt, const Value& v) {
  if (v.is(Kind::real)) return Value(-v.real());
  return binary(rt, Op::sub, Value(int64_t{0}), v);
}

Result<Value> plus(Runtime& rt, const Value& v) {
  if (v.is(Kind::real) || v.is(Kind::big)) return v;
  return binary(rt, Op::add, Value(int64_t{0}), v);
}

Result<StrPtr> escape_html(Runtime& rt, const Str& s) {
  StrBuilder out(rt);
  size_t plain = 0, cursor = 0;
  for (size_t i = 0; i < s.text.size() && !out.full(); ++i) {
    char c = s.text[i];
    const char* escape = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : nullptr;
    if (escape == nullptr) continue;
    out.add(s, plain, i);
    out.add(escape, is_input(s, i, cursor));
    plain = i + 1;
  }
  out.add(s, plain, s.text.size());
  return out.finish();
}

}  // namespace pn::jinja
