// SPDX-License-Identifier: Apache-2.0
//
// Functions that every template may call.
//
// Owns range, dict, namespace, cycler, joiner, raise_exception and strftime_now. What
// raise_exception says reaches the user as it is: it is how a template refuses a conversation.
#include <ctime>

#include "models/chat/jinja_text.h"

namespace pn::jinja {
namespace {

__extension__ typedef __int128 Wide;  // holds any difference of two 64-bit numbers

Result<Value> range_function(Runtime& rt, const Value&, const Args& args) {
  if (!args.named.empty()) return rt.error("range() takes no named arguments");
  PN_TRY(auto a, args.bind(rt, "range()", {"start", "stop", "step"}, 1));
  for (const Value* v : a) {
    if (v != nullptr && !v->is_integer()) {
      return rt.error(std::string("range() needs integers, found ") + v->type_name());
    }
  }
  int64_t start = a[1] == nullptr ? 0 : a[0]->integer();
  int64_t stop = a[1] == nullptr ? a[0]->integer() : a[1]->integer();
  int64_t step = a[2] == nullptr ? 1 : a[2]->integer();
  if (step == 0) return rt.error("range() with step 0");
  auto distance = static_cast<Wide>(stop) - start;
  Wide n = step > 0 ? (distance + step - 1) / step : (distance + step + 1) / step;
  if ((distance > 0) != (step > 0) || distance == 0) n = 0;
  if (n > rt.limits().max_range) {
    return rt.over("range() of more than " + std::to_string(rt.limits().max_range) + " elements");
  }
  PN_TRY(rt.steps(static_cast<uint64_t>(n)));
  PN_TRY(rt.bytes(static_cast<uint64_t>(n) * sizeof(Value)));
  std::vector<Value> items;
  for (int64_t i = 0; i < static_cast<int64_t>(n); ++i) items.push_back(Value(start + i * step));
  return Value::list(std::move(items), Seq::Shape::range);
}

Result<std::shared_ptr<Dict>> dict_of(Runtime& rt, const Args& args, const char* what) {
  auto dict = std::make_shared<Dict>();
  if (args.positional.size() > 1) return rt.error(std::string(what) + " takes one dict");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_dict()) {
      *dict = *from.dict();
      dict->message = -1;
    } else {
      PN_TRY(SeqPtr pairs, elements(rt, from));
      for (const Value& pair : pairs->items) {
        if (!pair.is_seq() || pair.seq()->items.size() != 2) {
          return rt.error(std::string(what) + " needs pairs of key and value");
        }
        PN_TRY(check_key(rt, pair.seq()->items[0]));
        PN_TRY(rt.steps(1 + dict->items.size() / 8));
        dict->set(pair.seq()->items[0], pair.seq()->items[1]);
      }
    }
  }
  PN_TRY(rt.steps(dict->items.size() + args.named.size()));
  PN_TRY(rt.bytes((dict->items.size() + args.named.size()) * 2 * sizeof(Value)));
  for (const auto& [name, value] : args.named) dict->set(Value::text(name), value);
  return dict;
}

Result<Value> dict_function(Runtime& rt, const Value&, const Args& args) {
  PN_TRY(auto dict, dict_of(rt, args, "dict()"));
  return Value(DictPtr(std::move(dict)));
}

Result<Value> namespace_function(Runtime& rt, const Value&, const Args& args) {
  auto space = std::make_shared<Namespace>();
  PN_TRY(space->attrs, dict_of(rt, args, "namespace()"));
  return Value(ObjectPtr(std::move(space)));
}

Result<Value> cycler_function(Runtime& rt, const Value&, const Args& args) {
  if (args.positional.empty()) return rt.error("cycler() needs at least one value");
  auto cycler = std::make_shared<Cycler>();
  cycler->items = args.positional;
  return Value(ObjectPtr(std::move(cycler)));
}

Result<Value> joiner_function(Runtime& rt, const Value&, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "joiner()", {"sep"}));
  auto joiner = std::make_shared<Joiner>();
  joiner->separator = a[0] != nullptr ? *a[0] : Value::text(", ");
  return Value(ObjectPtr(std::move(joiner)));
}

Result<Value> raise_exception(Runtime& rt, const Value&, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "raise_exception()", {"message"}, 1));
  PN_TRY(StrPtr message, to_str(rt, *a[0]));
  return fail(Code::invalid, message->text, "messages");
}

// Each % directive is passed to the C library alone; those it does not know are refused.
Result<Value> strftime_now(Runtime& rt, const Value&, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "strftime_now()", {"format"}, 1));
  PN_TRY(const Str* format, str_arg(rt, a[0], "strftime_now()"));
  std::time_t now = static_cast<std::time_t>(rt.now);
  std::tm tm{};
  if (localtime_r(&now, &tm) == nullptr) return rt.error("strftime_now(): no local time");
  StrBuilder out(rt);
  const std::string& f = format->text;
  for (size_t i = 0; i < f.size() && !out.full(); ++i) {
    size_t percent = std::min(f.find('%', i), f.size());
    out.add(*format, i, percent);
    if (percent == f.size()) break;
    i = percent + 1;
    if (i < f.size() && (f[i] == '-' || f[i] == '_' || f[i] == '^')) ++i;
    static constexpr std::string_view kKnown = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%";
    if (i < f.size() && f[i] == 'f') {  // no parts of a second here
      out.add("000000");
    } else if (i < f.size() && (f[i] == 'z' || f[i] == 'Z')) {  // nothing for a naive time
    } else if (i < f.size() && kKnown.find(f[i]) != kKnown.npos) {
      char buf[128];
      out.add(
          {buf, std::strftime(buf, sizeof buf, f.substr(percent, i - percent + 1).c_str(), &tm)});
    } else {
      return rt.error("strftime_now(): unknown directive in '" + f.substr(0, 80) + "'");
    }
  }
  PN_TRY(StrPtr s, out.finish());
  return Value(std::move(s));
}

}  // namespace

Native find_function(std::string_view name) {
  if (name == "namespace") return namespace_function;
  if (name == "raise_exception") return raise_exception;
  if (name == "range") return range_function;
  if (name == "strftime_now") return strftime_now;
  if (name == "dict") return dict_function;
  if (name == "joiner") return joiner_function;
  if (name == "cycler") return cycler_function;
  return nullptr;
}

}  // namespace pn::jinja
