// SPDX-License-Identifier: Apache-2.0
//
// The classes of code points that pre-tokenizers tell apart. The data is Unicode's general category
// and White_Space (unicode_data.inc); it knows nothing of words or tokens.
#pragma once

#include <cstdint>
#include <string_view>

namespace pn::tok {

enum class CharClass : uint8_t {
  other,   // controls, formats, unassigned, private use
  space,   // White_Space
  upper,   // Lu Lt
  lower,   // Ll
  letter,  // Lm Lo
  mark,    // M
  number,  // N
  punct,   // P
  symbol,  // S
};

CharClass char_class(char32_t point);
std::string_view unicode_version();

}  // namespace pn::tok
