// SPDX-License-Identifier: Apache-2.0
//
// Typed reads of a JSON object in which nothing is ignored.
//
// Owns the rule "a parameter that is accepted acts, any other is a 400 that names it": every read
// notes the name, and finish() refuses what nobody read. null means absent. The first mistake wins;
// later reads return their fallback.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hal/host/result.h"

namespace pn::serve {

using Json = nlohmann::ordered_json;

Result<Json> parse_json(const std::string& body);  // the byte position in the message

class Fields {
 public:
  // prefix: path of the object inside the request, "" for the request itself.
  Fields(const Json& object, std::string prefix);

  bool has(const char* name);  // present and not null; marks the name as known
  const Json* raw(const char* name);
  std::optional<bool> boolean(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most);
  std::optional<double> number(const char* name, double least, double most);
  std::optional<std::string> text(const char* name);
  // One string or a list of them, at most `most`, none empty.
  std::vector<std::string> texts(const char* name, size_t most);

  void refuse(const std::string& name, const std::string& why);
  // The first mistake, or the first name that nobody read.
  Result<void> finish();

 private:
  const Json* find(const char* name);
  std::string path(const std::string& name) const;

  const Json& object_;
  std::string prefix_;
  std::set<std::string> known_;
  std::optional<Error> error_;
};

}  // namespace pn::serve
