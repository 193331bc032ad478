// SPDX-License-Identifier: Apache-2.0
//
// tojson and from_json.
//
// Owns a writer with Python's layout (", " and ": ", indent, sort_keys, ensure_ascii) that keeps
// the marks of strings. Text read back by from_json is marked as input whole: it may hold anything.
#include "models/chat/jinja_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/chat/jinja_text.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

class Writer {
 public:
  Writer(Runtime& rt) : out(rt), rt_(rt) {}

  bool ensure_ascii = false, sort_keys = false;
  const Str* indent = nullptr;  // null: one line
  StrPtr comma = make_str(", "), colon = make_str(": ");
  StrBuilder out;

  Result<void> write(const Value& v);

 private:
  void string(const Str& s);
  void unit(char32_t code, bool input);
  Result<void> key(const Value& v);
  Result<void> array(const Seq& seq);
  Result<void> object(const Dict& dict);
  void line();

  Runtime& rt_;
  size_t level_ = 0;
};

std::string json_float(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return float_repr(d);
}

void Writer::line() {
  if (indent == nullptr) return;
  out.add("\n");
  for (size_t i = 0; i < level_ && !out.full(); ++i) out.add(*indent);
}

void Writer::unit(char32_t code, bool input) {
  char buf[16];
  std::snprintf(buf, sizeof buf, "\\u%04x", static_cast<unsigned>(code));
  out.add(buf, input);
}

void Writer::string(const Str& s) {
  out.add("\"");
  size_t plain = 0, cursor = 0;
  for (size_t at = 0; at < s.text.size() && !out.full();) {
    size_t begin = at;
    char32_t c = next_char(s.text, at);
    bool special = c < 0x20 || c == '"' || c == '\\' || (ensure_ascii && c >= 0x7F);
    if (!special) continue;
    out.add(s, plain, begin);
    plain = at;
    bool input = is_input(s, begin, cursor);
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
    size_t simple = c < 0x80 ? kFrom.find(static_cast<char>(c)) : kFrom.npos;
    if (simple != kFrom.npos) {
      const char escaped[2] = {'\\', kTo[simple]};
      out.add(std::string_view(escaped, 2), input);
    } else if (c < 0x10000) {
      unit(c, input);
    } else {
      unit(0xD800 + ((c - 0x10000) >> 10), input);
      unit(0xDC00 + ((c - 0x10000) & 0x3FF), input);
    }
  }
  out.add(s, plain, s.text.size());
  out.add("\"");
}

Result<void> Writer::key(const Value& v) {
  if (v.is_string()) {
    string(v.str());
    return {};
  }
  if (!v.is_number() && !v.is_none()) {
    return rt_.error(std::string("tojson: a key of type ") + v.type_name());
  }
  out.add("\"");
  PN_TRY(write(v));
  out.add("\"");
  return {};
}

Result<void> Writer::array(const Seq& seq) {
  out.add("[");
  ++level_;
  for (size_t i = 0; i < seq.items.size() && !out.full(); ++i) {
    if (i > 0) out.add(*comma);
    line();
    PN_TRY(write(seq.items[i]));
  }
  --level_;
  if (!seq.items.empty()) line();
  out.add("]");
  return {};
}

Result<void> Writer::object(const Dict& dict) {
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.items) entries.push_back(&entry);
  if (sort_keys) {
    Result<void> failed;
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      if (!failed) return false;
      Result<Order> o = order(rt_, a->first, b->first);
      if (o) return *o == Order::less;
      failed = tl::make_unexpected(std::move(o).error());
      return false;
    });
    PN_TRY(std::move(failed));
  }
  out.add("{");
  ++level_;
  for (size_t i = 0; i < entries.size() && !out.full(); ++i) {
    if (i > 0) out.add(*comma);
    line();
    PN_TRY(key(entries[i]->first));
    out.add(*colon);
    PN_TRY(write(entries[i]->second));
  }
  --level_;
  if (!entries.empty()) line();
  out.add("}");
  return {};
}

Result<void> Writer::write(const Value& v) {
  Level level(rt_);
  PN_TRY(rt_.check_depth());
  PN_TRY(rt_.steps());
  switch (v.kind()) {
    case Value::Kind::none:
      out.add("null");
      return {};
    case Value::Kind::boolean:
      out.add(v.boolean() ? "true" : "false");
      return {};
    case Value::Kind::integer:
      out.add(std::to_string(v.integer()));
      return {};
    case Value::Kind::big:
      out.add(std::to_string(v.big()));
      return {};
    case Value::Kind::real:
      out.add(json_float(v.real()));
      return {};
    case Value::Kind::string:
      string(v.str());
      return {};
    case Value::Kind::dict:
      return object(*v.dict());
    case Value::Kind::seq:
      if (v.seq()->shape <= Seq::Shape::tuple) return array(*v.seq());
      break;
    default:
      break;
  }
  return rt_.error(std::string("tojson: a value of type ") + v.type_name() + " is not JSON");
}

Result<StrPtr> indent_text(Runtime& rt, const Value& v) {
  if (v.is_string()) return v.str_ptr();
  PN_TRY(int64_t width, int_arg(rt, &v, 0, "tojson(indent=...)"));
  if (width > 1000) return rt.error("tojson with an indent beyond 1000");
  return make_str(std::string(width > 0 ? static_cast<size_t>(width) : 0, ' '));
}

}  // namespace

Result<Value> tojson_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(auto a, args.bind(rt, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  Writer writer(rt);
  writer.ensure_ascii = a[0] != nullptr && truth(*a[0]);
  writer.sort_keys = a[3] != nullptr && truth(*a[3]);
  StrPtr indent;
  if (a[1] != nullptr && !a[1]->is_none()) {
    PN_TRY(indent, indent_text(rt, *a[1]));
    writer.indent = indent.get();
    writer.comma = make_str(",");
  }
  if (a[2] != nullptr && !a[2]->is_none()) {
    PN_TRY(SeqPtr pair, elements(rt, *a[2]));
    if (pair->items.size() != 2 || !pair->items[0].is_string() || !pair->items[1].is_string()) {
      return rt.error("tojson(separators=...) needs two strings");
    }
    writer.comma = pair->items[0].str_ptr();
    writer.colon = pair->items[1].str_ptr();
  }
  PN_TRY(writer.write(self));
  PN_TRY(StrPtr s, writer.out.finish());
  return Value(std::move(s));
}

Result<Value> from_json_filter(Runtime& rt, const Value& self, const Args& args) {
  PN_TRY(args.bind(rt, "from_json", {}));
  PN_TRY(const Str* text, str_arg(rt, &self, "from_json"));
  PN_TRY(rt.steps(1 + text->text.size() / 8));
  PN_TRY(rt.bytes(text->text.size() * 8));
  auto json = nlohmann::ordered_json::parse(text->text, nullptr, false);
  if (json.is_discarded()) return rt.error("from_json: the text is not JSON");
  Result<Value> v = from_json(json);
  if (!v) return rt.error(v.error().message);
  return v;
}

}  // namespace pn::jinja
