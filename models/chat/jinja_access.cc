// SPDX-License-Identifier: Apache-2.0
//
// Attributes, subscripts and slices.
//
// Owns the list of what can be reached from a value: methods named in jinja_methods*.cc, keys of
// dicts, members of namespaces and loops. Nothing else exists, so there are no internals to guard.
// `x.y` tries the method first, `x["y"]` the key, as Jinja does.
#include "models/chat/jinja_ops.h"

namespace pn::jinja {
namespace {

Value missing(const Value& obj, const std::string& name) {
  return Value::undefined(std::string("'") + obj.type_name() + " object' has no attribute '" +
                          name + "'");
}

tl::unexpected<Error> undefined_error(const Runtime& rt, const Value& v) {
  const auto& message = v.undefined_value().message;
  return rt.error(message ? *message : "a value is undefined");
}

Value loop_attr(const Loop& loop, const Value& obj, const std::string& name) {
  const std::vector<Value>& items = loop.items->items;
  int64_t index = static_cast<int64_t>(loop.index), n = static_cast<int64_t>(items.size());
  if (name == "index0") return Value(index);
  if (name == "index") return Value(index + 1);
  if (name == "revindex0") return Value(n - index - 1);
  if (name == "revindex") return Value(n - index);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 >= n);
  if (name == "length") return Value(n);
  if (name == "depth") return Value(int64_t{loop.depth});
  if (name == "depth0") return Value(int64_t{loop.depth - 1});
  if (name == "previtem") {
    return index > 0 && index <= n ? items[loop.index - 1]
                                   : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < n ? items[loop.index + 1] : Value::undefined("there is no next item");
  }
  return missing(obj, name);
}

Value object_attr(const Value& obj, const std::string& name) {
  const Object& o = *obj.object();
  if (o.kind == Object::Kind::loop) return loop_attr(static_cast<const Loop&>(o), obj, name);
  if (o.kind == Object::Kind::space) {
    const Value* v = static_cast<const Namespace&>(o).attrs->find(name);
    if (v != nullptr) return *v;
  }
  if (o.kind == Object::Kind::cycler && name == "current") {
    const auto& cycler = static_cast<const Cycler&>(o);
    return cycler.items[cycler.at];
  }
  if (o.kind == Object::Kind::macro && name == "name") {
    return static_cast<const Macro&>(o).stmt->value;
  }
  return missing(obj, name);
}

// Python's rules for a:b:c over n elements: clamps, and counts from the end when negative.
struct Range {
  int64_t start = 0, stop = 0, step = 1;
};

Result<Range> slice_range(const Runtime& rt, const Value (&bounds)[3], int64_t n) {
  Range r;
  if (!bounds[2].is_none()) r.step = bounds[2].integer();
  if (r.step == 0) return rt.error("a slice with step 0");
  if (r.step < -n - 1) r.step = -n - 1;  // the same elements, and no overflow
  if (r.step > n + 1) r.step = n + 1;
  bool back = r.step < 0;
  auto clamp = [n, back](const Value& v, int64_t absent) {
    if (v.is_none()) return absent;
    int64_t i = v.integer();
    if (i < 0) i = i < -n ? (back ? -1 : 0) : i + n;
    return i >= n ? (back ? n - 1 : n) : i;
  };
  r.start = clamp(bounds[0], back ? n - 1 : 0);
  r.stop = clamp(bounds[1], back ? -1 : n);
  return r;
}

Result<Value> slice_string(Runtime& rt, const Str& s, const Range& r) {
  StrBuilder out(rt);
  if (r.step == 1) {
    if (r.start < r.stop) {
      size_t begin = s.offset(static_cast<size_t>(r.start));
      out.add(s, begin, s.offset(static_cast<size_t>(r.stop)));
    }
  } else {
    PN_TRY(SeqPtr chars, string_elements(rt, s));
    for (int64_t i = r.start; r.step > 0 ? i < r.stop : i > r.stop; i += r.step) {
      out.add(chars->items[static_cast<size_t>(i)].str());
    }
  }
  PN_TRY(StrPtr result, out.finish());
  if (!s.markup) return Value(std::move(result));
  auto marked = std::make_shared<Str>(*result);
  marked->markup = true;
  return Value(StrPtr(std::move(marked)));
}

}  // namespace

Result<Value> get_attr(Runtime& rt, const Value& obj, const std::string& name) {
  if (obj.is_undefined()) return undefined_error(rt, obj);
  if (obj.is(Value::Kind::object)) return object_attr(obj, name);
  if (Native fn = find_method(obj, name)) {
    return Value(ObjectPtr(std::make_shared<Method>(obj, fn)));
  }
  if (obj.is_dict()) {
    PN_TRY(rt.steps(obj.dict()->items.size() / 8));
    if (const Value* v = obj.dict()->find(name)) return *v;
  }
  return missing(obj, name);
}

Result<Value> get_item(Runtime& rt, const Value& obj, const Value& key) {
  if (obj.is_undefined()) return undefined_error(rt, obj);
  if (obj.is_dict()) {
    PN_TRY(rt.steps(obj.dict()->items.size() / 8));
    if (const Value* v = obj.dict()->find(key)) return *v;
  }
  bool indexed = obj.is_string() || (obj.is_seq() && obj.seq()->shape <= Seq::Shape::range);
  if (indexed && key.is_integer()) {
    int64_t n = static_cast<int64_t>(obj.is_string() ? obj.str().chars : obj.seq()->items.size());
    int64_t i = key.integer() < 0 ? key.integer() + n : key.integer();
    if (i < 0 || i >= n) {
      return Value::undefined(std::string(obj.type_name()) + " object has no element " +
                              std::to_string(key.integer()));
    }
    if (obj.is_seq()) return obj.seq()->items[static_cast<size_t>(i)];
    return slice_string(rt, obj.str(), {i, i + 1, 1});
  }
  if (key.is_string()) {
    if (obj.is_dict() && find_method(obj, key.str().text) == nullptr) {
      return missing(obj, key.str().text);
    }
    return get_attr(rt, obj, key.str().text);
  }
  StrBuilder shown(rt, 200);
  if (!key.is_undefined()) PN_TRY(repr(rt, key, shown));
  return Value::undefined(std::string("'") + obj.type_name() + " object' has no element " +
                          shown.text());
}

Result<Value> get_slice(Runtime& rt, const Value& obj, const Value (&bounds)[3]) {
  if (obj.is_undefined()) return undefined_error(rt, obj);
  for (const Value& v : bounds) {
    if (v.is_none() || v.is_integer()) continue;
    return rt.error(std::string("a slice needs integers, found ") + v.type_name());
  }
  if (obj.is_string()) {
    PN_TRY(Range r, slice_range(rt, bounds, static_cast<int64_t>(obj.str().chars)));
    return slice_string(rt, obj.str(), r);
  }
  if (!obj.is_seq() || obj.seq()->shape > Seq::Shape::range) {
    return rt.error(std::string("a value of type ") + obj.type_name() + " cannot be sliced");
  }
  const std::vector<Value>& from = obj.seq()->items;
  PN_TRY(Range r, slice_range(rt, bounds, static_cast<int64_t>(from.size())));
  std::vector<Value> items;
  for (int64_t i = r.start; r.step > 0 ? i < r.stop : i > r.stop; i += r.step) {
    items.push_back(from[static_cast<size_t>(i)]);
  }
  PN_TRY(rt.steps(items.size()));
  PN_TRY(rt.bytes(items.size() * sizeof(Value)));
  return Value::list(std::move(items), obj.seq()->shape);
}

// Scalars, and tuples of scalars: comparing such keys needs no meter.
Result<void> check_key(Runtime& rt, const Value& key) {
  if (key.is_seq() && key.seq()->shape == Seq::Shape::tuple) {
    for (const Value& part : key.seq()->items) {
      if (part.is_seq() || part.is_dict() || part.is(Value::Kind::object)) {
        return rt.error("a key of a dict may be a tuple of plain values only");
      }
    }
    return rt.steps(key.seq()->items.size());
  }
  if (key.is_seq() || key.is_dict()) {
    return rt.error(std::string("unhashable type: '") + key.type_name() + "'");
  }
  return {};
}

}  // namespace pn::jinja
