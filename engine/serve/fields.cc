// SPDX-License-Identifier: Apache-2.0
//
// JSON reads that refuse by name; see fields.h.
#include "engine/serve/fields.h"

#include <fmt/format.h>

namespace pn::serve {

namespace {

std::string kind(const Json& value) {
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return value.is_boolean() ? "a boolean" : "null";
}

// No request has a reason to nest deeper, and copies and texts of JSON recurse.
constexpr int kDepthMax = 64;

bool too_deep(const std::string& body) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if ((c == '[' || c == '{') && ++depth > kDepthMax) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

}  // namespace

Result<Json> parse_json(const std::string& body) {
  if (too_deep(body))
    return fail(Code::invalid, fmt::format("the body nests deeper than {} levels", kDepthMax));
  try {
    return Json::parse(body);
  } catch (const Json::parse_error& e) {
    // Its text repeats the position and names the token; the library's prefix says nothing to
    // users.
    const std::string what = e.what();
    const size_t colon = what.find("] ");
    return fail(Code::invalid,
                fmt::format("the body is not JSON: {} (byte {} of {})",
                            colon == std::string::npos ? what : what.substr(colon + 2), e.byte,
                            body.size()));
  }
}

Fields::Fields(const Json& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {
  if (!object.is_object())
    error_ = Error{Code::invalid,
                   fmt::format("{} must be an object, found {}",
                               prefix_.empty() ? "the request" : prefix_, kind(object)),
                   prefix_};
}

std::string Fields::path(const std::string& name) const {
  return prefix_.empty() ? name : prefix_ + "." + name;
}

void Fields::refuse(const std::string& name, const std::string& why) {
  if (!error_) error_ = Error{Code::invalid, path(name) + " " + why, path(name)};
}

const Json* Fields::find(const char* name) {
  known_.insert(name);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool Fields::has(const char* name) { return find(name) != nullptr; }
const Json* Fields::raw(const char* name) { return find(name); }

std::optional<bool> Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  refuse(name, "must be true or false, found " + kind(*value));
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(const char* name, int64_t least, int64_t most) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  const bool whole = value->is_number_integer() &&
                     !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  if (!whole) {
    refuse(name, "must be an integer, found " + kind(*value));
    return std::nullopt;
  }
  const int64_t n = value->get<int64_t>();
  if (n >= least && n <= most) return n;
  refuse(name, fmt::format("must be from {} to {}, found {}", least, most, n));
  return std::nullopt;
}

std::optional<double> Fields::number(const char* name, double least, double most) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) {
    refuse(name, "must be a number, found " + kind(*value));
    return std::nullopt;
  }
  const double n = value->get<double>();
  if (n >= least && n <= most) return n;
  refuse(name, fmt::format("must be from {} to {}, found {}", least, most, n));
  return std::nullopt;
}

std::optional<std::string> Fields::text(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  refuse(name, "must be a string, found " + kind(*value));
  return std::nullopt;
}

std::vector<std::string> Fields::texts(const char* name, size_t most) {
  const Json* value = find(name);
  if (!value) return {};
  std::vector<std::string> out;
  if (value->is_string()) {
    out.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    for (const Json& item : *value) {
      if (!item.is_string()) {
        refuse(name, "must hold strings, found " + kind(item));
        return {};
      }
      out.push_back(item.get<std::string>());
    }
  } else {
    refuse(name, "must be a string or an array of strings, found " + kind(*value));
    return {};
  }
  if (out.size() > most)
    refuse(name, fmt::format("holds {} strings, at most {}", out.size(), most));
  for (const std::string& item : out)
    if (item.empty()) refuse(name, "holds an empty string");
  return out;
}

Result<void> Fields::finish() {
  if (!error_)
    for (const auto& [name, value] : object_.items())
      if (!known_.count(name) && !value.is_null()) {
        refuse(name, "is not a parameter of this endpoint; remove it, or set it to null");
        break;
      }
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

}  // namespace pn::serve
