// SPDX-License-Identifier: Apache-2.0
//
// Length and elements of what can be iterated, and binding of arguments.
//
// Owns the one way from a value to its elements. Lists come back shared, not copied: callers index
// them and check the bound each turn, as append and pop may run in between.
#include "models/chat/jinja_ops.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {

Result<Value> length(Runtime& rt, const Value& v) {
  if (v.is_undefined()) return Value(int64_t{0});
  if (v.is_string()) return Value::count(v.str().chars);
  if (v.is_dict()) return Value::count(v.dict()->items.size());
  if (v.is_seq() && v.seq()->shape != Seq::Shape::generator) {
    return Value::count(v.seq()->items.size());
  }
  return rt.error(std::string("a value of type ") + v.type_name() + " has no length");
}

Result<SeqPtr> string_elements(Runtime& rt, const Str& s) {
  PN_TRY(rt.steps(s.chars));
  PN_TRY(rt.bytes(s.chars * (sizeof(Value) + sizeof(Str))));
  auto seq = std::make_shared<Seq>();
  seq->items.reserve(s.chars);
  for (size_t at = 0; at < s.text.size();) {
    size_t begin = at;
    next_char(s.text, at);
    StrBuilder one(rt);
    one.add(s, begin, at);
    PN_TRY(StrPtr c, one.finish());
    seq->items.push_back(Value(std::move(c)));
  }
  return seq;
}

Value dict_view(const Dict& d, Seq::Shape shape) {
  std::vector<Value> items;
  items.reserve(d.items.size());
  for (const auto& [key, value] : d.items) {
    if (shape == Seq::Shape::keys) {
      items.push_back(key);
    } else if (shape == Seq::Shape::values) {
      items.push_back(value);
    } else {
      items.push_back(Value::list({key, value}, Seq::Shape::tuple));
    }
  }
  return Value::list(std::move(items), shape);
}

Result<SeqPtr> elements(Runtime& rt, const Value& v) {
  if (v.is_undefined()) return std::make_shared<Seq>();
  if (v.is_string()) return string_elements(rt, v.str());
  if (v.is_dict()) {
    PN_TRY(rt.steps(v.dict()->items.size()));
    return dict_view(*v.dict(), Seq::Shape::keys).seq();
  }
  if (!v.is_seq()) return rt.error(std::string("'") + v.type_name() + "' object is not iterable");
  if (v.seq()->shape != Seq::Shape::generator) return v.seq();
  if (v.seq()->consumed) return std::make_shared<Seq>();
  v.seq()->consumed = true;
  return v.seq();
}

Result<std::vector<const Value*>> Args::bind(const Runtime& rt, std::string_view what,
                                             std::initializer_list<std::string_view> names,
                                             size_t required) const {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (positional.size() > names.size()) {
    return rt.error(std::string(what) + " takes at most " + std::to_string(names.size()) +
                    " arguments, " + std::to_string(positional.size()) + " were given");
  }
  for (size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : named) {
    size_t i = 0;
    while (i < names.size() && names.begin()[i] != name) ++i;
    if (i == names.size()) return rt.error(std::string(what) + " has no argument '" + name + "'");
    if (bound[i] != nullptr) {
      return rt.error(std::string(what) + " was given '" + name + "' twice");
    }
    bound[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return rt.error(std::string(what) + " needs the argument '" + std::string(names.begin()[i]) +
                      "'");
    }
  }
  return bound;
}

}  // namespace pn::jinja
