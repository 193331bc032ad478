// SPDX-License-Identifier: Apache-2.0
//
// String operations shared by methods and filters.
//
// Owns cutting, stripping, replacing and case of marked strings. Offsets are bytes at character
// borders. Every result keeps the marks of the bytes it took.
#pragma once

#include <functional>

#include "models/chat/jinja_ops.h"

namespace pn::jinja {

Result<Value> cut(Runtime& rt, const Str& s, size_t begin, size_t end);
Result<Value> concat_all(Runtime& rt, std::initializer_list<const Str*> parts);

// strip(): without `chars`, white space.
enum class Side { both, left, right };
Result<Value> strip(Runtime& rt, const Str& s, const Str* chars, Side side);

// replace(): count < 0 means all.
Result<Value> replace_text(Runtime& rt, const Str& s, const Str& from, const Str& to,
                           int64_t count);

// Character by character through `put`, which appends the new form; marks follow.
using CaseFn = void (*)(std::string& out, char32_t c, bool word_start);
Result<Value> map_chars(Runtime& rt, const Str& s, CaseFn put);
void put_upper(std::string& out, char32_t c, bool word_start);
void put_lower(std::string& out, char32_t c, bool word_start);
Result<Value> capitalize(Runtime& rt, const Str& s);

// Spaces (or `fill`) before and after, `before` + `after` characters of them.
Result<Value> padded(Runtime& rt, const Str& s, size_t before, size_t after, const Str& fill);
Result<Value> centered(Runtime& rt, const Str& s, int64_t width, const Str& fill);

Result<Value> join_list(Runtime& rt, const std::vector<Value>& items, const Str& separator);
Result<Value> split_lines(Runtime& rt, const Str& s, bool keep_ends);

const Str& space_str();

// The argument as an integer, or `absent` when it was not given or is None.
Result<int64_t> int_arg(const Runtime& rt, const Value* v, int64_t absent, const char* what);
Result<const Str*> str_arg(const Runtime& rt, const Value* v, const char* what);

}  // namespace pn::jinja
