// SPDX-License-Identifier: Apache-2.0
//
// A parsed template, ready to render.
//
// Owns the tree and the limits. The whole public face of pn::jinja: parse once, render many times,
// from several threads at once. Knows nothing of conversations: see models/chat/prompt.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/chat/jinja_limits.h"
#include "models/chat/jinja_value.h"

namespace pn::jinja {

struct Ast;
using Variables = std::vector<std::pair<std::string, Value>>;

class Program {
 public:
  // Refuses broken syntax, other encodings than UTF-8, and nesting or size beyond the limits.
  static Result<Program> parse(std::string source, const Limits& limits = {});

  // `now` (seconds since 1970) is what strftime_now prints, in local time. An error about the
  // conversation has param "messages", or "messages[2]" when the template was looking at that one;
  // an error that blames the template alone has "chat_template".
  Result<StrPtr> render(const Variables& variables, int64_t now = 0) const;

  // Does the template name this variable anywhere?
  bool mentions(std::string_view name) const;

 private:
  std::shared_ptr<const Ast> ast_;
  Limits limits_;
};

}  // namespace pn::jinja
