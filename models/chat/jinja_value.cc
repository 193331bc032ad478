// SPDX-License-Identifier: Apache-2.0
//
// Containers and the way in from JSON.
//
// Owns key lookup of dicts (linear: chat dicts have a handful of keys, most of different lengths)
// and the conversion of request JSON.
#include "models/chat/jinja_value.h"

#include <nlohmann/json.hpp>

namespace pn::jinja {
namespace {

bool same_key(const Value& a, const Value& b) {
  if (a.is_string() != b.is_string()) return false;
  if (a.is_string()) return a.str().text == b.str().text;
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
    return a.real() == b.real();
  }
  if (a.is_seq() && b.is_seq()) {
    const auto &x = a.seq()->items, &y = b.seq()->items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!same_key(x[i], y[i])) return false;
    }
    return x.size() == y.size();
  }
  return a.is_none() && b.is_none();
}

Result<Value> convert(const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth < 0) return fail(Code::invalid, "JSON nested too deeply for a chat template");
  switch (json.type()) {
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(json.get<int64_t>());
    case Type::number_unsigned: {
      uint64_t n = json.get<uint64_t>();
      if (n > static_cast<uint64_t>(INT64_MAX)) return Value(n);
      return Value(static_cast<int64_t>(n));
    }
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string:
      return Value(make_input(json.get_ref<const std::string&>()));
    case Type::array: {
      auto seq = std::make_shared<Seq>();
      seq->items.reserve(json.size());
      for (const auto& item : json) {
        PN_TRY(Value v, convert(item, depth - 1));
        seq->items.push_back(std::move(v));
      }
      return Value(std::move(seq));
    }
    case Type::object: {
      auto dict = std::make_shared<Dict>();
      dict->items.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        PN_TRY(Value v, convert(item, depth - 1));
        dict->items.emplace_back(Value(make_input(key)), std::move(v));
      }
      return Value(std::move(dict));
    }
    default:
      return Value(None{});
  }
}

}  // namespace

void release(std::vector<Value>& values) {
  thread_local std::vector<Value>* pending = nullptr;
  auto nested = [](const Value& v) { return v.kind() >= Value::Kind::seq; };
  std::vector<Value> own;
  std::vector<Value>& into = pending != nullptr ? *pending : own;
  for (Value& v : values) {
    if (nested(v)) into.push_back(std::move(v));
  }
  values.clear();
  if (pending != nullptr || own.empty()) return;
  pending = &own;
  while (!own.empty()) {
    Value last = std::move(own.back());
    own.pop_back();
  }
  pending = nullptr;
}

Seq::Seq() = default;
Seq::~Seq() { release(items); }

Dict::Dict() = default;
Dict::Dict(const Dict&) = default;
Dict& Dict::operator=(const Dict&) = default;
Dict::~Dict() {
  std::vector<Value> values;
  for (auto& [key, value] : items) {
    if (key.kind() >= Value::Kind::seq) values.push_back(std::move(key));
    if (value.kind() >= Value::Kind::seq) values.push_back(std::move(value));
  }
  release(values);
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (k.is_string() && k.str().text == key) return &v;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.str().text);
  for (const auto& [k, v] : items) {
    if (same_key(k, key)) return &v;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  for (auto& [k, v] : items) {
    if (same_key(k, key)) {
      v = std::move(value);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

Value Value::list(std::vector<Value> items, Seq::Shape shape) {
  auto seq = std::make_shared<Seq>();
  seq->items = std::move(items);
  seq->shape = shape;
  return Value(std::move(seq));
}

Value Value::undefined(std::string message) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}

double Value::real() const {
  if (is(Kind::real)) return std::get<double>(data_);
  if (is(Kind::big)) return static_cast<double>(big());
  return static_cast<double>(integer());
}

const char* Value::type_name() const {
  switch (kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::dict:
      return "dict";
    case Kind::seq: {
      static const char* const kNames[] = {"list",        "tuple",      "range",    "dict_keys",
                                           "dict_values", "dict_items", "generator"};
      return kNames[static_cast<int>(seq()->shape)];
    }
    case Kind::object:
      break;
  }
  static const char* const kNames[] = {"Namespace", "Macro",  "function", "method",
                                       "loop",      "Cycler", "Joiner"};
  return kNames[static_cast<int>(object()->kind)];
}

Result<Value> from_json(const nlohmann::ordered_json& json, int max_depth) {
  return convert(json, max_depth);
}

}  // namespace pn::jinja
