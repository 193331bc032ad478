// SPDX-License-Identifier: Apache-2.0
//
// Truth, equality, order and membership.
//
// Owns Python's comparison rules: numbers compare across types, sequences element by element, and
// types without an order are refused. Shared parts can make a small value huge to walk, so each
// visited pair is a step.
#include <cmath>

#include "models/chat/jinja_ops.h"

namespace pn::jinja {
namespace {

using Kind = Value::Kind;

Order order_of(long double a, long double b) {
  if (a < b) return Order::less;
  if (a > b) return Order::greater;
  return a == b ? Order::equal : Order::none;
}

// long double has 64 bits of mantissa here, so that no integer is rounded.
long double wide(const Value& v) {
  if (v.is(Kind::big)) return static_cast<long double>(v.big());
  return v.is_integer() ? static_cast<long double>(v.integer()) : v.real();
}

Result<bool> equal_seq(Runtime& rt, const Seq& a, const Seq& b) {
  if (a.shape != b.shape || a.items.size() != b.items.size()) return false;
  if (a.shape == Seq::Shape::generator || a.shape == Seq::Shape::values) return &a == &b;
  for (size_t i = 0; i < a.items.size(); ++i) {
    PN_TRY(bool same, equal(rt, a.items[i], b.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dict(Runtime& rt, const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  PN_TRY(rt.steps(a.items.size()));
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(key);
    if (other == nullptr) return false;
    PN_TRY(bool same, equal(rt, value, *other));
    if (!same) return false;
  }
  return true;
}

}  // namespace

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return v.integer() != 0;
    case Kind::real:
      return v.real() != 0;
    case Kind::string:
      return !v.str().text.empty();
    case Kind::seq:
      return v.seq()->shape == Seq::Shape::generator || !v.seq()->items.empty();
    case Kind::dict:
      return !v.dict()->items.empty();
    default:
      return true;
  }
}

Result<bool> equal(Runtime& rt, const Value& a, const Value& b) {
  Level level(rt);
  PN_TRY(rt.check_depth());
  PN_TRY(rt.steps());
  if (a.is_number() && b.is_number()) return wide(a) == wide(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string:
      PN_TRY(rt.steps(a.str().text.size() / 256));
      return a.str().text == b.str().text;
    case Kind::seq:
      return equal_seq(rt, *a.seq(), *b.seq());
    case Kind::dict:
      return equal_dict(rt, *a.dict(), *b.dict());
    case Kind::object:
      return a.object() == b.object();
    default:
      return true;  // both undefined, or both None
  }
}

Result<Order> order(Runtime& rt, const Value& a, const Value& b) {
  Level level(rt);
  PN_TRY(rt.check_depth());
  PN_TRY(rt.steps());
  if (a.is_number() && b.is_number()) return order_of(wide(a), wide(b));
  if (a.is_string() && b.is_string()) {
    PN_TRY(rt.steps(a.str().text.size() / 256));
    int c = a.str().text.compare(b.str().text);  // UTF-8 sorts as code points do
    return c < 0 ? Order::less : c > 0 ? Order::greater : Order::equal;
  }
  bool both = a.is_seq() && b.is_seq() && a.seq()->shape == b.seq()->shape;
  if (!both || a.seq()->shape > Seq::Shape::tuple) {
    if (a.is_undefined() || b.is_undefined()) {
      const Value& u = a.is_undefined() ? a : b;
      const auto& message = u.undefined_value().message;
      return rt.error(message ? *message : "a value is undefined");
    }
    return rt.error(std::string("'") + a.type_name() + "' and '" + b.type_name() +
                    "' have no order");
  }
  const auto &x = a.seq()->items, &y = b.seq()->items;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    PN_TRY(bool same, equal(rt, x[i], y[i]));
    if (!same) return order(rt, x[i], y[i]);
  }
  return order_of(static_cast<long double>(x.size()), static_cast<long double>(y.size()));
}

Result<bool> contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return rt.error(std::string("'in' with a string needs a string on the left, found ") +
                      item.type_name());
    }
    PN_TRY(rt.steps(container.str().text.size() / 64));
    return container.str().text.find(item.str().text) != std::string::npos;
  }
  if (container.is_dict()) {
    PN_TRY(check_key(rt, item));
    PN_TRY(rt.steps(container.dict()->items.size() / 8));
    return container.dict()->find(item) != nullptr;
  }
  if (!container.is_seq() && !container.is_undefined()) {
    return rt.error(std::string("'in' cannot search a value of type ") + container.type_name());
  }
  PN_TRY(SeqPtr seq, elements(rt, container));
  for (const Value& candidate : seq->items) {
    PN_TRY(bool same, equal(rt, candidate, item));
    if (same) return true;
  }
  return false;
}

Result<bool> compare(Runtime& rt, Op op, const Value& a, const Value& b) {
  if (op == Op::eq) return equal(rt, a, b);
  if (op == Op::in) return contains(rt, b, a);
  if (op == Op::ne || op == Op::not_in) {
    PN_TRY(bool yes, op == Op::ne ? equal(rt, a, b) : contains(rt, b, a));
    return !yes;
  }
  PN_TRY(Order o, order(rt, a, b));
  if (op == Op::lt) return o == Order::less;
  if (op == Op::le) return o == Order::less || o == Order::equal;
  if (op == Op::gt) return o == Order::greater;
  return o == Order::greater || o == Order::equal;
}

}  // namespace pn::jinja
