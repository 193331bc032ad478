// SPDX-License-Identifier: Apache-2.0
//
// "..." % values and "...".format(values).
//
// Owns the two small languages inside format strings. A field's value keeps its marks.
#include "models/chat/jinja_spec.h"
#include "models/chat/jinja_text.h"
#include "models/chat/jinja_unicode.h"

namespace pn::jinja {
namespace {

// Reads a small number; more than 9 digits saturate, and the layout refuses them.
int read_int(std::string_view f, size_t& at) {
  int64_t n = 0;
  for (; at < f.size() && f[at] >= '0' && f[at] <= '9'; ++at) {
    n = std::min<int64_t>(n * 10 + (f[at] - '0'), 999'999'999);
  }
  return static_cast<int>(n);
}

class Percent {
 public:
  Percent(Runtime& rt, const Str& format, const Value& args)
      : rt_(rt), f_(format.text), format_(format), args_(args), out_(rt) {}

  Result<Value> run() {
    size_t at = 0;
    while (at < f_.size() && !out_.full()) {
      size_t percent = std::min(f_.find('%', at), f_.size());
      out_.add(format_, at, percent);
      at = percent;
      if (at < f_.size()) PN_TRY(directive(++at));
    }
    bool tuple = args_.is_seq() && args_.seq()->shape == Seq::Shape::tuple;
    bool unused = tuple
                      ? used_ < args_.seq()->items.size()
                      : used_ == 0 && !args_.is_dict() && !args_.is_seq() && !args_.is_undefined();
    if (unused) return rt_.error("not all arguments were used by the format string");
    PN_TRY(StrPtr s, out_.finish());
    return Value(std::move(s));
  }

 private:
  Result<Value> next() {
    if (args_.is_seq() && args_.seq()->shape == Seq::Shape::tuple) {
      if (used_ < args_.seq()->items.size()) return args_.seq()->items[used_++];
    } else if (used_ == 0) {
      ++used_;
      return args_;
    }
    return rt_.error("not enough arguments for the format string");
  }

  Result<int> number(size_t& at) {
    if (at < f_.size() && f_[at] == '*') {
      ++at;
      PN_TRY(Value v, next());
      PN_TRY(int64_t n, int_arg(rt_, &v, 0, "'*' in a format string"));
      return static_cast<int>(std::clamp<int64_t>(n, 0, 999'999'999));
    }
    return read_int(f_, at);
  }

  Result<void> directive(size_t& at) {
    FieldSpec spec;
    Value keyed;
    bool has_key = at < f_.size() && f_[at] == '(';
    if (has_key) {
      size_t close = f_.find(')', at);
      if (close == f_.npos || !args_.is_dict()) return rt_.error("%(name) needs a dict and a ')'");
      const Value* v = args_.dict()->find(f_.substr(at + 1, close - at - 1));
      if (v == nullptr) return rt_.error("a %(name) that the dict lacks");
      keyed = *v;
      at = close + 1;
    }
    for (; at < f_.size() && std::string_view("-+ #0").find(f_[at]) != f_.npos; ++at) {
      if (f_[at] == '-') spec.align = '<';
      if (f_[at] == '+') spec.sign = '+';
      if (f_[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (f_[at] == '#') spec.alternate = true;
      if (f_[at] == '0') spec.zero = true;
    }
    PN_TRY(spec.width, number(at));
    if (at < f_.size() && f_[at] == '.') {
      PN_TRY(spec.precision, number(++at));
    }
    while (at < f_.size() && (f_[at] == 'l' || f_[at] == 'h' || f_[at] == 'L')) ++at;
    if (at >= f_.size()) return rt_.error("a format string ends inside a directive");
    spec.type = f_[at++];
    if (spec.type == '%') {
      out_.add("%");
      return {};
    }
    if (!has_key) {
      PN_TRY(keyed, next());
    }
    return field(keyed, spec);
  }

  Result<void> field(const Value& v, FieldSpec spec) {
    if (spec.align == '<') spec.zero = false;
    if (std::string_view("sra").find(spec.type) != f_.npos) {
      StrPtr s;
      if (spec.type == 's') {
        PN_TRY(s, to_str(rt_, v));
      } else {
        StrBuilder shown(rt_);
        PN_TRY(repr(rt_, v, shown));
        PN_TRY(s, shown.finish());
      }
      spec.zero = false;
      if (spec.align == 0) spec.align = '>';
      return format_string(rt_, *s, spec, out_);
    }
    if (spec.type == 'c') return character(v, spec);
    if (std::string_view("diuoxXeEfFgG").find(spec.type) == f_.npos) {
      return rt_.error("unsupported format character '" + std::string(1, spec.type) + "'");
    }
    if (!v.is_number()) {
      return rt_.error(std::string("%") + spec.type + " needs a number, found " + v.type_name());
    }
    Value n = v;
    if (std::string_view("diuoxX").find(spec.type) != f_.npos) {
      bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
      if (v.is(Value::Kind::real)) {
        if (!decimal || !(v.real() < 9e18 && v.real() > -9e18)) {
          return rt_.error("this format needs an integer");
        }
        n = Value(static_cast<int64_t>(v.real()));
      }
      if (decimal) spec.type = 'd';
    }
    return format_number(rt_, n, spec, out_);
  }

  // %c: one character, or a code point. A number may come from the request, so it is not trusted.
  Result<void> character(const Value& v, FieldSpec spec) {
    spec.zero = false;
    if (spec.align == 0) spec.align = '>';
    if (v.is_string() && v.str().chars == 1) return format_string(rt_, v.str(), spec, out_);
    bool code = v.is_integer() && v.integer() >= 0 && v.integer() <= 0x10FFFF &&
                (v.integer() < 0xD800 || v.integer() > 0xDFFF);
    if (!code) return rt_.error("%c needs one character or a code point");
    std::string one;
    append_utf8(one, static_cast<char32_t>(v.integer()));
    return format_string(rt_, *make_input(one), spec, out_);
  }

  Runtime& rt_;
  std::string_view f_;
  const Str& format_;
  const Value& args_;
  size_t used_ = 0;
  StrBuilder out_;
};

class Brace {
 public:
  Brace(Runtime& rt, const Str& format, const Args& args)
      : rt_(rt), f_(format.text), format_(format), args_(args), out_(rt) {}

  Result<Value> run() {
    size_t at = 0;
    while (at < f_.size() && !out_.full()) {
      size_t brace = std::min(f_.find_first_of("{}", at), f_.size());
      out_.add(format_, at, brace);
      if (brace == f_.size()) break;
      at = brace + 1;
      if (at < f_.size() && f_[at] == f_[brace]) {
        out_.add(format_, brace, at++);
      } else if (f_[brace] == '}') {
        return rt_.error("single '}' in a format string");
      } else {
        PN_TRY(field(at));
      }
    }
    PN_TRY(StrPtr s, out_.finish());
    return Value(std::move(s));
  }

 private:
  // name[.attr|[index]]*[!r|!s][:spec]}
  Result<void> field(size_t& at) {
    size_t end = f_.find_first_of("{}", at);
    if (end == f_.npos || f_[end] == '{') return rt_.error("expected '}' in a format string");
    std::string_view body = f_.substr(at, end - at);
    at = end + 1;
    size_t colon = std::min(body.find(':'), body.size());
    std::string_view name = body.substr(0, colon);
    std::string_view spec_text = body.substr(std::min(colon + 1, body.size()));
    char conversion = 0;
    if (size_t bang = name.find('!'); bang != name.npos) {
      if (bang + 2 != name.size()) return rt_.error("a bad conversion in a format string");
      conversion = name[bang + 1];
      name = name.substr(0, bang);
    }
    PN_TRY(Value v, lookup(name));
    if (conversion == 'r') {
      StrBuilder shown(rt_);
      PN_TRY(repr(rt_, v, shown));
      PN_TRY(StrPtr s, shown.finish());
      v = Value(std::move(s));
    } else if (conversion == 's') {
      PN_TRY(StrPtr s, to_str(rt_, v));
      v = Value(std::move(s));
    } else if (conversion != 0) {
      return rt_.error("a bad conversion in a format string");
    }
    return layout(v, spec_text);
  }

  Result<Value> lookup(std::string_view name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    PN_TRY(Value v, argument(std::string(name.substr(0, at))));
    while (at < name.size()) {
      bool index = name[at] == '[';
      size_t end = index ? name.find(']', at) : name.find_first_of(".[", at + 1);
      if (index && end == name.npos) return rt_.error("missing ']' in a format string");
      end = std::min(end, name.size());
      std::string part(name.substr(at + 1, end - at - 1));
      size_t digits = 0;
      int number = read_int(part, digits);
      bool numeric = index && !part.empty() && digits == part.size();
      Value key = numeric ? Value(int64_t{number}) : Value::text(part);
      PN_TRY(v, index ? get_item(rt_, v, key) : get_attr(rt_, v, part));
      if (v.is_undefined()) return rt_.error("a format field names a part that is not there");
      at = index ? end + 1 : end;
    }
    return v;
  }

  Result<Value> argument(const std::string& name) {
    size_t digits = 0;
    int64_t index = read_int(name, digits);
    if (digits == name.size()) {
      bool automatic = name.empty();
      if (used_mode_ != 0 && used_mode_ != (automatic ? 1 : 2)) {
        return rt_.error("a format string mixes {} and {0}");
      }
      used_mode_ = automatic ? 1 : 2;
      if (automatic) index = next_++;
      if (index < static_cast<int64_t>(args_.positional.size())) {
        return args_.positional[static_cast<size_t>(index)];
      }
      return rt_.error("a format string names argument " + std::to_string(index) +
                       ", which was not given");
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    return rt_.error("a format string names the argument '" + name + "', which was not given");
  }

  // [[fill]align][sign][#][0][width][,][.precision][type]
  Result<void> layout(const Value& v, std::string_view s) {
    FieldSpec spec;
    size_t at = 0;
    auto aligns = [&](size_t i) {
      return i < s.size() && std::string_view("<>^=").find(s[i]) != s.npos;
    };
    size_t after_fill = 0;
    if (!s.empty()) next_char(s, after_fill);
    if (aligns(after_fill) && after_fill > 0) {
      spec.fill = make_str(std::string(s.substr(0, after_fill)));
      spec.align = s[after_fill];
      at = after_fill + 1;
    } else if (aligns(0)) {
      spec.align = s[at++];
    }
    if (at < s.size() && (s[at] == '+' || s[at] == '-' || s[at] == ' ')) spec.sign = s[at++];
    if (at < s.size() && s[at] == '#') spec.alternate = ++at != 0;
    if (at < s.size() && s[at] == '0') spec.zero = ++at != 0;
    spec.width = read_int(s, at);
    if (at < s.size() && s[at] == ',') spec.comma = ++at != 0;
    if (at < s.size() && s[at] == '.') spec.precision = read_int(s, ++at);
    if (at < s.size()) spec.type = s[at++];
    if (at != s.size()) return rt_.error("a bad format specifier '" + std::string(s) + "'");
    return typed(v, spec, s.empty());
  }

  Result<void> typed(const Value& v, const FieldSpec& spec, bool empty) {
    bool number = v.is_number() && !(v.is(Value::Kind::boolean) && spec.type == 0);
    bool known = spec.type == 0 ||
                 (number && std::string_view("dxXobeEfFgG%").find(spec.type) != f_.npos) ||
                 (v.is_string() && spec.type == 's');
    if (v.is(Value::Kind::real) && std::string_view("dxXob").find(spec.type) != f_.npos) {
      known = spec.type == 0;
    }
    bool strung = v.is_string() && (spec.align == '=' || spec.sign != '-' || spec.comma);
    if (!known || strung) return rt_.error("a format specifier that does not fit its value");
    if (number) return format_number(rt_, v, spec, out_);
    if (!v.is_string() && !empty) {
      return rt_.error(std::string("a format specifier for a value of type ") + v.type_name());
    }
    PN_TRY(StrPtr s, to_str(rt_, v));
    return format_string(rt_, *s, spec, out_);
  }

  Runtime& rt_;
  std::string_view f_;
  const Str& format_;
  const Args& args_;
  int used_mode_ = 0;  // 1: {}, 2: {0}
  int64_t next_ = 0;
  StrBuilder out_;
};

}  // namespace

Result<Value> percent_format(Runtime& rt, const Str& format, const Value& args) {
  return Percent(rt, format, args).run();
}

Result<Value> brace_format(Runtime& rt, const Str& format, const Args& args) {
  return Brace(rt, format, args).run();
}

}  // namespace pn::jinja
