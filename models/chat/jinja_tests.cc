// SPDX-License-Identifier: Apache-2.0
//
// Tests: what may follow `is`.
//
// Owns Jinja's tests. Each returns a boolean; a test with an argument takes exactly one.
#include "models/chat/jinja_text.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

using Kind = Value::Kind;

template <bool (*test)(const Value&)>
Result<Value> plain(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "this test", {}));
  return Value(test(self));
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::boolean); }
bool is_true(const Value& v) { return v.is(Kind::boolean) && v.boolean(); }
bool is_false(const Value& v) { return v.is(Kind::boolean) && !v.boolean(); }
bool is_int(const Value& v) { return v.is(Kind::integer) || v.is(Kind::big); }
bool is_float(const Value& v) { return v.is(Kind::real); }
bool is_num(const Value& v) { return v.is_number(); }
bool is_text(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
// Undefined has a length and can be iterated: it is empty.
bool is_iterable(const Value& v) {
  return v.is_string() || v.is_seq() || v.is_dict() || v.is_undefined() ||
         (v.is(Kind::object) && v.object()->kind == Object::Kind::loop);
}
bool is_sequence(const Value& v) {
  if (v.is_string() || v.is_dict() || v.is_undefined()) return true;
  return v.is_seq() && v.seq()->shape <= Seq::Shape::range;
}
bool is_callable(const Value& v) {
  if (v.is_undefined()) return true;  // Undefined has __call__, which raises
  if (!v.is(Kind::object)) return false;
  Object::Kind kind = v.object()->kind;
  return kind == Object::Kind::macro || kind == Object::Kind::function ||
         kind == Object::Kind::method || kind == Object::Kind::joiner || kind == Object::Kind::loop;
}
bool is_escaped(const Value& v) { return v.is_string() && v.str().markup; }

template <bool upper>
Result<Value> case_of(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "this test", {}));
  PN_TRY(StrPtr s, to_str(rt, self));
  PN_TRY(rt.steps(1 + s->text.size() / 16));
  bool any = false;
  for (size_t at = 0; at < s->text.size();) {
    char32_t c = next_char(s->text, at);
    if (upper ? is_lower(c) : is_upper(c)) return Value(false);
    any |= upper ? is_upper(c) : is_lower(c);
  }
  return Value(any);
}

template <Op op>
Result<Value> compares(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "a comparison test", {"other"}, 1));
  PN_TRY(bool yes, compare(rt, op, self, *a[0]));
  return Value(yes);
}

Result<Value> remainder_is(Runtime& rt, const Value& self, int64_t divisor, int64_t wanted) {
  PN_TRY(Value rest, binary(rt, Op::mod, self, Value(divisor)));
  PN_TRY(bool yes, equal(rt, rest, Value(wanted)));
  return Value(yes);
}

template <int wanted>
Result<Value> parity(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "this test", {}));
  if (!self.is_number()) return rt.error(std::string("parity of a ") + self.type_name());
  return remainder_is(rt, self, 2, wanted);
}

Result<Value> divisible(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "divisibleby", {"num"}, 1));
  PN_TRY(int64_t by, int_arg(rt, a[0], 0, "divisibleby"));
  if (!self.is_number()) return rt.error(std::string("divisibleby of a ") + self.type_name());
  return remainder_is(rt, self, by, 0);
}

Result<Value> same_as(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "sameas", {"other"}, 1));
  const Value& other = *a[0];
  if (self.kind() != other.kind()) return Value(false);
  if (self.is_seq()) return Value(self.seq() == other.seq());
  if (self.is_dict()) return Value(self.dict() == other.dict());
  PN_TRY(bool same, equal(rt, self, other));
  return Value(same);
}

template <Native (*find)(std::string_view)>
Result<Value> exists(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "this test", {}));
  return Value(self.is_string() && find(self.str().text) != nullptr);
}

}  // namespace

Native find_test(std::string_view name) {
  static constexpr std::pair<std::string_view, Native> kTests[] = {
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"none", plain<is_none>},
      {"string", plain<is_text>},
      {"mapping", plain<is_mapping>},
      {"iterable", plain<is_iterable>},
      {"sequence", plain<is_sequence>},
      {"boolean", plain<is_boolean>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"number", plain<is_num>},
      {"integer", plain<is_int>},
      {"float", plain<is_float>},
      {"callable", plain<is_callable>},
      {"escaped", plain<is_escaped>},
      {"lower", case_of<false>},
      {"upper", case_of<true>},
      {"odd", parity<1>},
      {"even", parity<0>},
      {"divisibleby", divisible},
      {"sameas", same_as},
      {"in", compares<Op::in>},
      {"eq", compares<Op::eq>},
      {"equalto", compares<Op::eq>},
      {"==", compares<Op::eq>},
      {"ne", compares<Op::ne>},
      {"!=", compares<Op::ne>},
      {"lt", compares<Op::lt>},
      {"lessthan", compares<Op::lt>},
      {"<", compares<Op::lt>},
      {"le", compares<Op::le>},
      {"<=", compares<Op::le>},
      {"gt", compares<Op::gt>},
      {"greaterthan", compares<Op::gt>},
      {">", compares<Op::gt>},
      {"ge", compares<Op::ge>},
      {">=", compares<Op::ge>},
      {"filter", exists<find_filter>},
      {"test", exists<find_test>},
  };
  for (const auto& [test, fn] : kTests) {
    if (test == name) return fn;
  }
  return nullptr;
}

}  // namespace pn::jinja
