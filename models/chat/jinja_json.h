// SPDX-License-Identifier: Apache-2.0
//
// tojson and from_json.
//
// Owns JSON text: json.dumps as chat templates get it (no HTML escapes), and reading it back.
#pragma once

#include "models/chat/jinja_ops.h"

namespace pn::jinja {

Result<Value> tojson_filter(Runtime& rt, const Value& self, const Args& args);
Result<Value> from_json_filter(Runtime& rt, const Value& self, const Args& args);

}  // namespace pn::jinja
