// SPDX-License-Identifier: Apache-2.0
//
// One formatted field: what stands after ':' in "{:>8.2f}" or after '%' in "%08.2f".
//
// Owns the layout of numbers and strings in a field. Knows neither how a field is written nor where
// its value comes from.
#pragma once

#include "models/chat/jinja_ops.h"

namespace pn::jinja {

struct FieldSpec {
  StrPtr fill;      // one character; null: space
  char align = 0;   // < > ^ =, 0: by type
  char sign = '-';  // + - or space
  bool alternate = false, zero = false, comma = false;
  int width = 0;
  int precision = -1;
  char type = 0;
};

Result<void> format_string(Runtime& rt, const Str& s, const FieldSpec& spec, StrBuilder& out);
Result<void> format_number(Runtime& rt, const Value& v, const FieldSpec& spec, StrBuilder& out);

}  // namespace pn::jinja
