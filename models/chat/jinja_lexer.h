// SPDX-License-Identifier: Apache-2.0
//
// Template source -> tokens, with Jinja's rules for white space around tags.
//
// Owns trim_blocks, lstrip_blocks, {%- -%} {%+, comments and {% raw %}: after this file, data
// tokens are what is printed. Knows no grammar.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/chat/jinja_limits.h"

namespace pn::jinja {

struct Token {
  enum class Kind {
    data,
    out_begin,
    out_end,
    tag_begin,
    tag_end,
    name,
    string,
    integer,
    real,
    op,
    end
  };
  Kind kind = Kind::end;
  std::string text;  // data, name, decoded string, operator; digits without '_' of a number
  int line = 1;

  bool is(std::string_view symbol) const { return kind == Kind::op && text == symbol; }
  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
};

Result<std::vector<Token>> tokenize(std::string_view source, const Limits& limits);

}  // namespace pn::jinja
