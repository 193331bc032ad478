// SPDX-License-Identifier: Apache-2.0
//
// map, select, reject, selectattr, rejectattr.
//
// Owns filters that apply another filter or a test to every element. Results are generators in
// Jinja: they give their elements once and have no length, and so do ours.
#include "models/chat/jinja_select.h"

#include <algorithm>

#include "models/chat/jinja_text.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

Result<Value> attribute_of(Runtime& rt, Value item, const Value& attribute) {
  if (!attribute.is_string()) return get_item(rt, item, attribute);
  std::string_view path = attribute.str().text;
  for (size_t at = 0; at <= path.size();) {
    size_t end = std::min(path.find('.', at), path.size());
    std::string part(path.substr(at, end - at));
    bool digits =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    Value key = digits ? Value(static_cast<int64_t>(std::stoll(part))) : Value::text(part);
    PN_TRY(item, get_item(rt, item, key));
    at = end + 1;
  }
  return item;
}

Args rest(const Args& args, size_t from) {
  Args out;
  for (size_t i = from; i < args.positional.size(); ++i)
    out.positional.push_back(args.positional[i]);
  out.named = args.named;
  return out;
}

// map(attribute=..., default=...)
Result<Value> map_attributes(Runtime& rt, const Seq& seq, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "map", {"attribute", "default"}, 1));
  PN_TRY(std::vector<Value> items, attributes_of(rt, seq, *a[0], a[1]));
  return Value::list(std::move(items), Seq::Shape::generator);
}

Result<Value> map_filter(Runtime& rt, const Value& self, const Args& args) {
  if (!truth(self)) return Value::list({}, Seq::Shape::generator);  // None and 0 too, as in Jinja
  PN_TRY(SeqPtr seq, elements(rt, self));
  if (args.positional.empty()) return map_attributes(rt, *seq, args);
  PN_TRY(const Str* name, str_arg(rt, &args.positional[0], "map"));
  Native fn = find_filter(name->text);
  if (fn == nullptr) return rt.error("no filter named '" + name->text + "'");
  Level level(rt);
  PN_TRY(rt.check_depth());
  Args inner = rest(args, 1);
  std::vector<Value> items;
  for (const Value& item : seq->items) {
    PN_TRY(rt.steps());
    PN_TRY(Value v, fn(rt, item, inner));
    items.push_back(std::move(v));
  }
  PN_TRY(rt.bytes(items.size() * sizeof(Value)));
  return Value::list(std::move(items), Seq::Shape::generator);
}

// The elements whose test (or truth, without a test) equals `keep`; of an attribute when `attr`.
template <bool keep, bool attr>
Result<Value> select_filter(Runtime& rt, const Value& self, const Args& args) {
  if (!truth(self)) return Value::list({}, Seq::Shape::generator);
  PN_TRY(SeqPtr seq, elements(rt, self));
  size_t used = attr ? 1 : 0;
  if (args.positional.size() < used) return rt.error("selectattr needs an attribute");
  Native test = nullptr;
  Args inner;
  if (args.positional.size() > used) {
    PN_TRY(const Str* name, str_arg(rt, &args.positional[used], "select"));
    test = find_test(name->text);
    if (test == nullptr) return rt.error("no test named '" + name->text + "'");
    inner = rest(args, used + 1);
  }
  std::vector<Value> items;
  for (const Value& item : seq->items) {
    PN_TRY(rt.steps());
    Value subject = item;
    if (attr) {
      PN_TRY(subject, attribute_of(rt, item, args.positional[0]));
    }
    bool yes = false;
    if (test != nullptr) {
      PN_TRY(Value answer, test(rt, subject, inner));
      yes = truth(answer);
    } else {
      yes = truth(subject);
    }
    if (yes == keep) items.push_back(item);
  }
  PN_TRY(rt.bytes(items.size() * sizeof(Value)));
  return Value::list(std::move(items), Seq::Shape::generator);
}

}  // namespace

Result<std::vector<Value>> attributes_of(Runtime& rt, const Seq& seq, const Value& attribute,
                                         const Value* fallback) {
  std::vector<Value> out;
  for (const Value& item : seq.items) {
    PN_TRY(rt.steps());
    PN_TRY(Value v, attribute_of(rt, item, attribute));
    if (v.is_undefined() && fallback != nullptr) v = *fallback;
    out.push_back(std::move(v));
  }
  PN_TRY(rt.bytes(out.size() * sizeof(Value)));
  return out;
}

Native find_selection_filter(std::string_view name) {
  if (name == "map") return map_filter;
  if (name == "select") return select_filter<true, false>;
  if (name == "reject") return select_filter<false, false>;
  if (name == "selectattr") return select_filter<true, true>;
  if (name == "rejectattr") return select_filter<false, true>;
  return nullptr;
}

}  // namespace pn::jinja
