// SPDX-License-Identifier: Apache-2.0
//
// Values of the template language: what Python would hold, in 64 bits and shared pointers.
//
// Owns Value and its containers. Lists and dicts are shared and treated as immutable, but for
// list.append and list.pop. Knows nothing of syntax. Objects (macros, namespaces, loops) are opaque
// here: the evaluator defines them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/chat/jinja_string.h"

namespace pn::jinja {

class Value;

// What an undefined value says when it is used for more than its absence; empty: "is undefined".
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct None {};

// Destroys values without recursion: a template can nest a million lists, the stack cannot.
void release(std::vector<Value>& values);

struct Seq {
  Seq();  // out of line, like all that needs a complete Value
  ~Seq();
  Seq(const Seq&) = delete;
  Seq& operator=(const Seq&) = delete;
  enum class Shape { list, tuple, range, keys, values, items, generator };
  std::vector<Value> items;
  Shape shape = Shape::list;
  bool consumed = false;  // a generator gives its items once
};
using SeqPtr = std::shared_ptr<Seq>;

struct Dict {
  Dict();
  Dict(const Dict&);
  Dict& operator=(const Dict&);
  ~Dict();
  std::vector<std::pair<Value, Value>> items;  // in insertion order
  int message = -1;                            // index in `messages` when it is one of them
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  void set(Value key, Value value);
};
using DictPtr = std::shared_ptr<Dict>;

struct Object {
  enum class Kind { space, macro, function, method, loop, cycler, joiner };
  const Kind kind;
  explicit Object(Kind k) : kind(k) {}
  virtual ~Object() = default;
};
using ObjectPtr = std::shared_ptr<Object>;

class Value {
 public:
  // `big` is an integer above 2^63-1 from the request: it prints and compares, no more.
  enum class Kind { undefined, none, boolean, integer, big, real, string, seq, dict, object };
  using Data = std::variant<Undefined, None, bool, int64_t, uint64_t, double, StrPtr, SeqPtr,
                            DictPtr, ObjectPtr>;

  Value() = default;
  Value(Undefined v) : data_(std::move(v)) {}
  Value(None v) : data_(v) {}
  Value(bool v) : data_(v) {}
  Value(int64_t v) : data_(v) {}
  Value(uint64_t v) : data_(v) {}
  Value(double v) : data_(v) {}
  Value(StrPtr v) : data_(std::move(v)) {}
  Value(SeqPtr v) : data_(std::move(v)) {}
  Value(DictPtr v) : data_(std::move(v)) {}
  Value(ObjectPtr v) : data_(std::move(v)) {}
  Value(const char*) = delete;
  template <typename T>
  Value(T*) = delete;

  static Value text(std::string s) { return Value(make_str(std::move(s))); }
  static Value list(std::vector<Value> items, Seq::Shape shape = Seq::Shape::list);
  static Value count(size_t n) { return Value(static_cast<int64_t>(n)); }
  static Value undefined(std::string message);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind k) const { return kind() == k; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_string() const { return is(Kind::string); }
  bool is_dict() const { return is(Kind::dict); }
  bool is_seq() const { return is(Kind::seq); }
  // bool counts as an integer, as in Python
  bool is_integer() const { return is(Kind::integer) || is(Kind::boolean); }
  bool is_number() const { return is_integer() || is(Kind::real) || is(Kind::big); }

  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const {
    return is(Kind::boolean) ? int64_t{boolean()} : std::get<int64_t>(data_);
  }
  uint64_t big() const { return std::get<uint64_t>(data_); }
  double real() const;  // of any number
  const Str& str() const { return *std::get<StrPtr>(data_); }
  const StrPtr& str_ptr() const { return std::get<StrPtr>(data_); }
  const SeqPtr& seq() const { return std::get<SeqPtr>(data_); }
  const DictPtr& dict() const { return std::get<DictPtr>(data_); }
  const ObjectPtr& object() const { return std::get<ObjectPtr>(data_); }
  const Undefined& undefined_value() const { return std::get<Undefined>(data_); }

  // "str", "int", "dict": Python's name, for messages
  const char* type_name() const;

 private:
  Data data_;
};

// A value of the request: every string in it, keys too, is marked as input. Refuses nesting deeper
// than `max_depth`.
Result<Value> from_json(const nlohmann::ordered_json& json, int max_depth = 100);

}  // namespace pn::jinja
