// SPDX-License-Identifier: Apache-2.0
//
// Attributes of many elements at once.
//
// Owns the attribute="a.b.0" notation of map, sort, join and their like.
#pragma once

#include "models/chat/jinja_ops.h"

namespace pn::jinja {

// One value per element of `seq`; `fallback`, when given, stands in for undefined ones.
Result<std::vector<Value>> attributes_of(Runtime& rt, const Seq& seq, const Value& attribute,
                                         const Value* fallback);

}  // namespace pn::jinja
