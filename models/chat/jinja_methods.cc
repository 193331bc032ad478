// SPDX-License-Identifier: Apache-2.0
//
// Methods of dicts, lists and namespaces-like objects.
//
// Owns the short list of methods that a template may call. Only list.append and list.pop change a
// value; they act on values of this render, never on the request.
#include <cmath>

#include "models/chat/jinja_ops.h"

namespace pn::jinja {
namespace {

Result<Value> view(Runtime& rt, const Value& self, const Args& args, Seq::Shape shape) {
  PN_TRY(args.bind(rt, "a dict view", {}));
  PN_TRY(rt.steps(self.dict()->items.size()));
  return dict_view(*self.dict(), shape);
}
Result<Value> dict_items(Runtime& rt, const Value& self, const Args& args) {
  return view(rt, self, args, Seq::Shape::items);
}
Result<Value> dict_keys(Runtime& rt, const Value& self, const Args& args) {
  return view(rt, self, args, Seq::Shape::keys);
}
Result<Value> dict_values(Runtime& rt, const Value& self, const Args& args) {
  return view(rt, self, args, Seq::Shape::values);
}

Result<Value> dict_get(Runtime& rt, const Value& self, const Args& args) {
  if (!args.named.empty()) return rt.error("get() takes no named arguments");
  PN_TRY(auto a, args.bind(rt, "get()", {"key", "default"}, 1));
  PN_TRY(check_key(rt, *a[0]));
  PN_TRY(rt.steps(self.dict()->items.size() / 8));
  if (const Value* v = self.dict()->find(*a[0])) return *v;
  return a[1] != nullptr ? *a[1] : Value(None{});
}

Result<Value> dict_copy(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "copy()", {}));
  PN_TRY(rt.steps(self.dict()->items.size()));
  PN_TRY(rt.bytes(self.dict()->items.size() * 2 * sizeof(Value)));
  return Value(std::make_shared<Dict>(*self.dict()));
}

Result<Value> list_copy(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "copy()", {}));
  PN_TRY(rt.steps(self.seq()->items.size()));
  PN_TRY(rt.bytes(self.seq()->items.size() * sizeof(Value)));
  return Value::list(self.seq()->items);
}

// Can `needle` be reached from `v`? A list that holds itself could never be freed.
Result<bool> reaches(Runtime& rt, const Value& v, const Seq* needle) {
  Level level(rt);
  PN_TRY(rt.check_depth());
  PN_TRY(rt.steps());
  if (v.is_seq()) {
    if (v.seq().get() == needle) return true;
    for (const Value& item : v.seq()->items) {
      PN_TRY(bool found, reaches(rt, item, needle));
      if (found) return true;
    }
  } else if (v.is_dict()) {
    for (const auto& entry : v.dict()->items) {
      PN_TRY(bool found, reaches(rt, entry.second, needle));
      if (found) return true;
    }
  } else if (v.is(Value::Kind::object)) {
    return true;  // a namespace or macro can reach anything
  }
  return false;
}

Result<Value> list_append(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "append()", {"object"}, 1));
  PN_TRY(bool cycle, reaches(rt, *a[0], self.seq().get()));
  if (cycle) return rt.error("append() of a value that may hold the list itself");
  PN_TRY(rt.bytes(2 * sizeof(Value)));
  self.seq()->items.push_back(*a[0]);
  return Value(None{});
}

Result<Value> list_pop(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "pop()", {"index"}));
  std::vector<Value>& items = self.seq()->items;
  int64_t n = static_cast<int64_t>(items.size());
  if (a[0] != nullptr && !a[0]->is_integer()) return rt.error("pop() needs an integer");
  int64_t i = a[0] != nullptr ? a[0]->integer() : -1;
  if (i < 0) i += n;
  if (i < 0 || i >= n) return rt.error("pop() from an empty list or beyond its end");
  PN_TRY(rt.steps(items.size() / 16));
  Value taken = items[static_cast<size_t>(i)];
  items.erase(items.begin() + i);
  return taken;
}

Result<Value> list_index(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "index()", {"value"}, 1));
  const std::vector<Value>& items = self.seq()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    PN_TRY(bool same, equal(rt, items[i], *a[0]));
    if (same) return Value::count(i);
  }
  return rt.error("index() of a value that is not in the list");
}

Result<Value> list_count(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "count()", {"value"}, 1));
  size_t n = 0;
  for (const Value& item : self.seq()->items) {
    PN_TRY(bool same, equal(rt, item, *a[0]));
    n += same ? 1 : 0;
  }
  return Value::count(n);
}

Result<Value> immutable(Runtime& rt, const Value& self, const Args&) {
  return rt.error(std::string("this method would change a '") + self.type_name() +
                  "', which chat templates may not");
}

Result<Value> is_integer_method(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "is_integer()", {}));
  double d = self.real();
  return Value(std::isfinite(d) && std::floor(d) == d);
}

Native find_dict_method(std::string_view name) {
  if (name == "items") return dict_items;
  if (name == "keys") return dict_keys;
  if (name == "values") return dict_values;
  if (name == "get") return dict_get;
  if (name == "copy") return dict_copy;
  for (const char* n : {"pop", "update", "clear", "setdefault", "popitem", "fromkeys"}) {
    if (name == n) return immutable;
  }
  return nullptr;
}

Native find_list_method(std::string_view name, bool list) {
  if (name == "index") return list_index;
  if (name == "count") return list_count;
  if (!list) return nullptr;
  if (name == "append") return list_append;
  if (name == "pop") return list_pop;
  if (name == "copy") return list_copy;
  for (const char* n : {"extend", "insert", "remove", "clear", "sort", "reverse"}) {
    if (name == n) return immutable;
  }
  return nullptr;
}

Result<Value> loop_cycle(Runtime& rt, const Value& self, const Args& args) {
  if (args.positional.empty()) return rt.error("loop.cycle() needs values to cycle through");
  const auto& loop = static_cast<const Loop&>(*self.object());
  return args.positional[loop.index % args.positional.size()];
}

Result<Value> loop_changed(Runtime& rt, const Value& self, const Args& args) {
  auto& loop = static_cast<Loop&>(*self.object());
  PN_TRY(bool same, equal(rt, Value::list(loop.changed), Value::list(args.positional)));
  if (loop.has_changed && same) return Value(false);
  for (const Value& v : args.positional) {
    if (v.is(Value::Kind::object)) return rt.error("loop.changed() takes plain values");
  }
  loop.changed = args.positional;
  loop.has_changed = true;
  return Value(true);
}

Result<Value> cycler_next(Runtime&, const Value& self, const Args&) {
  auto& cycler = static_cast<Cycler&>(*self.object());
  Value v = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return v;
}

Result<Value> cycler_reset(Runtime&, const Value& self, const Args&) {
  static_cast<Cycler&>(*self.object()).at = 0;
  return Value(None{});
}

Native find_object_method(const Object& obj, std::string_view name) {
  if (obj.kind == Object::Kind::loop && name == "cycle") return loop_cycle;
  if (obj.kind == Object::Kind::loop && name == "changed") return loop_changed;
  if (obj.kind == Object::Kind::cycler && name == "next") return cycler_next;
  if (obj.kind == Object::Kind::cycler && name == "reset") return cycler_reset;
  return nullptr;
}

}  // namespace

Native find_method(const Value& obj, std::string_view name) {
  switch (obj.kind()) {
    case Value::Kind::string:
      return find_string_method(name);
    case Value::Kind::dict:
      return find_dict_method(name);
    case Value::Kind::seq:
      if (obj.seq()->shape > Seq::Shape::range) return nullptr;
      return find_list_method(name, obj.seq()->shape == Seq::Shape::list);
    case Value::Kind::real:
      return name == "is_integer" ? is_integer_method : nullptr;
    case Value::Kind::object:
      return find_object_method(*obj.object(), name);
    default:
      return nullptr;
  }
}

}  // namespace pn::jinja
