// SPDX-License-Identifier: Apache-2.0
//
// Filters over sequences, and the table of all filters.
//
// Owns length, first, join, sort and their like. Keys for sorting are computed once per element;
// strings compare without case unless asked, as Jinja does.
#include <algorithm>

#include "models/chat/jinja_select.h"
#include "models/chat/jinja_text.h"

namespace pn::jinja {
namespace {

Result<Value> length_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "length", {}));
  return length(rt, self);
}

Result<Value> default_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "default", {"default_value", "boolean"}));
  bool absent = self.is_undefined() || (a[1] != nullptr && truth(*a[1]) && !truth(self));
  if (!absent) return self;
  return a[0] != nullptr ? *a[0] : Value::text("");
}

Result<Value> first_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "first", {}));
  PN_TRY(SeqPtr seq, elements(rt, self));
  return seq->items.empty() ? Value::undefined("No first item, sequence was empty.")
                            : seq->items.front();
}

bool reversible(const Value& v) { return !v.is_seq() || v.seq()->shape != Seq::Shape::generator; }

Result<Value> last_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "last", {}));
  if (!reversible(self)) return rt.error("last of a generator; make it a list first");
  PN_TRY(SeqPtr seq, elements(rt, self));
  return seq->items.empty() ? Value::undefined("No last item, sequence was empty.")
                            : seq->items.back();
}

Result<Value> list_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "list", {}));
  PN_TRY(SeqPtr seq, elements(rt, self));
  PN_TRY(rt.steps(seq->items.size()));
  PN_TRY(rt.bytes(seq->items.size() * sizeof(Value)));
  return Value::list(seq->items);
}

Result<Value> items_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "items", {}));
  if (self.is_undefined()) return Value::list({}, Seq::Shape::generator);
  if (!self.is_dict()) return rt.error("items: can only get item pairs from a mapping");
  PN_TRY(rt.steps(self.dict()->items.size()));
  Value pairs = dict_view(*self.dict(), Seq::Shape::items);
  pairs.seq()->shape = Seq::Shape::generator;
  return pairs;
}

Result<Value> join_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "join", {"d", "attribute"}));
  StrPtr separator = make_str("");
  if (a[0] != nullptr) {
    PN_TRY(separator, to_str(rt, *a[0]));
  }
  PN_TRY(SeqPtr seq, elements(rt, self));
  if (a[1] == nullptr || a[1]->is_none()) return join_list(rt, seq->items, *separator);
  PN_TRY(std::vector<Value> items, attributes_of(rt, *seq, *a[1], nullptr));
  return join_list(rt, items, *separator);
}

Result<Value> reverse_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "reverse", {}));
  if (self.is_string()) return get_slice(rt, self, {None{}, None{}, Value(int64_t{-1})});
  PN_TRY(SeqPtr seq, elements(rt, self));
  PN_TRY(rt.steps(seq->items.size()));
  PN_TRY(rt.bytes(seq->items.size() * sizeof(Value)));
  return Value::list({seq->items.rbegin(), seq->items.rend()}, Seq::Shape::generator);
}

// Sort keys of strings without case, unless `exact`.
Result<Value> fold(Runtime& rt, const Value& v, bool exact) {
  if (exact || !v.is_string()) return v;
  return map_chars(rt, v.str(), put_lower);
}

Result<std::vector<Value>> sort_keys(Runtime& rt, const Seq& seq, const Value* attribute,
                                     bool exact) {
  std::vector<Value> values = seq.items;
  if (attribute != nullptr && !attribute->is_none()) {
    PN_TRY(values, attributes_of(rt, seq, *attribute, nullptr));
  }
  for (Value& v : values) {
    PN_TRY(v, fold(rt, v, exact));
  }
  return values;
}

// The order of items by key, stable; reverse keeps equal ones in place, as sorted() does.
Result<std::vector<size_t>> sorted(Runtime& rt, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> at(keys.size());
  for (size_t i = 0; i < at.size(); ++i) at[i] = i;
  Result<void> failed;
  std::stable_sort(at.begin(), at.end(), [&](size_t x, size_t y) {
    if (!failed) return false;
    Result<Order> o = reverse ? order(rt, keys[y], keys[x]) : order(rt, keys[x], keys[y]);
    if (o) return *o == Order::less;
    failed = tl::make_unexpected(std::move(o).error());
    return false;
  });
  PN_TRY(std::move(failed));
  return at;
}

// Several attributes "a,b": each element's key is the tuple of them.
Result<std::vector<Value>> multi_keys(Runtime& rt, const Seq& seq, const Value* attribute,
                                      bool exact) {
  if (attribute == nullptr || !attribute->is_string() ||
      attribute->str().text.find(',') == std::string::npos) {
    return sort_keys(rt, seq, attribute, exact);
  }
  std::vector<std::vector<Value>> tuples(seq.items.size());
  std::string_view names = attribute->str().text;
  for (size_t at = 0; at <= names.size();) {
    size_t end = std::min(names.find(',', at), names.size());
    Value one = Value::text(std::string(names.substr(at, end - at)));
    PN_TRY(std::vector<Value> keys, sort_keys(rt, seq, &one, exact));
    for (size_t i = 0; i < keys.size(); ++i) tuples[i].push_back(std::move(keys[i]));
    at = end + 1;
  }
  std::vector<Value> keys;
  keys.reserve(tuples.size());
  for (auto& parts : tuples) keys.push_back(Value::list(std::move(parts), Seq::Shape::tuple));
  return keys;
}

bool flag(const Value* v) { return v != nullptr && truth(*v); }

Result<Value> sort_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "sort", {"reverse", "case_sensitive", "attribute"}));
  PN_TRY(SeqPtr seq, elements(rt, self));
  PN_TRY(rt.bytes(seq->items.size() * 3 * sizeof(Value)));
  PN_TRY(std::vector<Value> keys, multi_keys(rt, *seq, a[2], flag(a[1])));
  PN_TRY(std::vector<size_t> at, sorted(rt, keys, flag(a[0])));
  std::vector<Value> items;
  items.reserve(at.size());
  for (size_t i : at) items.push_back(seq->items[i]);
  return Value::list(std::move(items));
}

Result<Value> dictsort_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "dictsort", {"case_sensitive", "by", "reverse"}));
  if (!self.is_dict()) return rt.error(std::string("dictsort of a ") + self.type_name());
  std::string by = "key";
  if (a[1] != nullptr) {
    PN_TRY(const Str* s, str_arg(rt, a[1], "dictsort"));
    by = s->text;
  }
  if (by != "key" && by != "value") return rt.error("dictsort sorts by 'key' or 'value'");
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict()->items) {
    PN_TRY(Value k, fold(rt, by == "key" ? key : value, flag(a[0])));
    keys.push_back(std::move(k));
  }
  PN_TRY(std::vector<size_t> at, sorted(rt, keys, flag(a[2])));
  PN_TRY(rt.bytes(keys.size() * 4 * sizeof(Value)));
  Value pairs = dict_view(*self.dict(), Seq::Shape::items);
  std::vector<Value> items;
  items.reserve(at.size());
  for (size_t i : at) items.push_back(pairs.seq()->items[i]);
  return Value::list(std::move(items));
}

Result<Value> unique_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "unique", {"case_sensitive", "attribute"}));
  PN_TRY(SeqPtr seq, elements(rt, self));
  PN_TRY(std::vector<Value> keys, sort_keys(rt, *seq, a[1], flag(a[0])));
  std::vector<Value> items, seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    PN_TRY(check_key(rt, keys[i]));
    bool known = false;
    for (size_t j = 0; j < seen.size() && !known; ++j) {
      PN_TRY(known, equal(rt, seen[j], keys[i]));
    }
    if (known) continue;
    seen.push_back(keys[i]);
    items.push_back(seq->items[i]);
  }
  return Value::list(std::move(items), Seq::Shape::generator);
}

template <bool largest>
Result<Value> extreme_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "min", {"case_sensitive", "attribute"}));
  PN_TRY(SeqPtr seq, elements(rt, self));
  if (seq->items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  PN_TRY(std::vector<Value> keys, sort_keys(rt, *seq, a[1], flag(a[0])));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    PN_TRY(Order o, order(rt, keys[i], keys[best]));
    if (o == (largest ? Order::greater : Order::less)) best = i;
  }
  return seq->items[best];
}

Result<Value> sum_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "sum", {"attribute", "start"}));
  PN_TRY(SeqPtr seq, elements(rt, self));
  std::vector<Value> items = seq->items;
  if (a[0] != nullptr && !a[0]->is_none()) {
    PN_TRY(items, attributes_of(rt, *seq, *a[0], nullptr));
  }
  Value total = a[1] != nullptr ? *a[1] : Value(int64_t{0});
  if (total.is_string()) return rt.error("sum of strings; use join");
  for (const Value& item : items) {
    PN_TRY(rt.steps());
    PN_TRY(total, binary(rt, Op::add, total, item));
  }
  return total;
}

Result<Value> batch_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "batch", {"linecount", "fill_with"}, 1));
  PN_TRY(int64_t n, int_arg(rt, a[0], 0, "batch"));
  if (n < 1 || n > rt.limits().max_range) return rt.error("batch with a size out of range");
  PN_TRY(SeqPtr seq, elements(rt, self));
  PN_TRY(rt.steps(seq->items.size() + static_cast<size_t>(n)));
  std::vector<Value> rows, row;
  for (const Value& item : seq->items) {
    if (static_cast<int64_t>(row.size()) == n) rows.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (a[1] != nullptr && !a[1]->is_none()) row.resize(static_cast<size_t>(n), *a[1]);
    rows.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(rows), Seq::Shape::generator);
}

// Attribute only, never a key: attr("items") of a dict is its method.
Result<Value> attr_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "attr", {"name"}, 1));
  PN_TRY(const Str* name, str_arg(rt, a[0], "attr"));
  if (self.is_dict() && find_method(self, name->text) == nullptr) {
    return Value::undefined("'dict object' has no attribute '" + name->text + "'");
  }
  return get_attr(rt, self, name->text);
}

}  // namespace

Native find_sequence_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, Native> kFilters[] = {
      {"length", length_filter},      {"count", length_filter},      {"default", default_filter},
      {"d", default_filter},          {"items", items_filter},       {"join", join_filter},
      {"list", list_filter},          {"first", first_filter},       {"last", last_filter},
      {"sort", sort_filter},          {"dictsort", dictsort_filter}, {"unique", unique_filter},
      {"min", extreme_filter<false>}, {"max", extreme_filter<true>}, {"sum", sum_filter},
      {"reverse", reverse_filter},    {"batch", batch_filter},       {"attr", attr_filter},
  };
  for (const auto& [filter, fn] : kFilters) {
    if (filter == name) return fn;
  }
  return nullptr;
}

Native find_filter(std::string_view name) {
  if (Native fn = find_text_filter(name)) return fn;
  if (Native fn = find_sequence_filter(name)) return fn;
  return find_selection_filter(name);
}

}  // namespace pn::jinja
