// SPDX-License-Identifier: Apache-2.0
//
// What values do: print, compare, compute, give their parts.
//
// Owns Python's semantics for built-in types, one function an operation. All of them charge the
// runtime; none of them knows syntax or scopes.
#pragma once

#include <string>
#include <string_view>

#include "models/chat/jinja_ast.h"
#include "models/chat/jinja_objects.h"

namespace pn::jinja {

// jinja_print.cc
Result<void> print(Runtime& rt, const Value& v, StrBuilder& out);  // str(v)
Result<void> repr(Runtime& rt, const Value& v, StrBuilder& out);   // repr(v)
Result<StrPtr> to_str(Runtime& rt, const Value& v);
std::string float_repr(double d);

// jinja_compare.cc
enum class Order { less, equal, greater, none };  // none: a NaN is involved
bool truth(const Value& v);
Result<bool> equal(Runtime& rt, const Value& a, const Value& b);
Result<Order> order(Runtime& rt, const Value& a, const Value& b);
Result<bool> contains(Runtime& rt, const Value& container, const Value& item);
Result<bool> compare(Runtime& rt, Op op, const Value& a, const Value& b);

// jinja_arith.cc
Result<Value> binary(Runtime& rt, Op op, const Value& a, const Value& b);
Result<Value> negate(Runtime& rt, const Value& v);
Result<Value> plus(Runtime& rt, const Value& v);
Result<StrPtr> escape_html(Runtime& rt, const Str& s);

// jinja_access.cc
Result<Value> get_attr(Runtime& rt, const Value& obj, const std::string& name);
Result<Value> get_item(Runtime& rt, const Value& obj, const Value& key);
Result<Value> get_slice(Runtime& rt, const Value& obj, const Value (&bounds)[3]);
Result<void> check_key(Runtime& rt, const Value& key);  // may it be a key of a dict?

// jinja_iterate.cc
Result<Value> length(Runtime& rt, const Value& v);
Result<SeqPtr> elements(Runtime& rt,
                        const Value& v);  // what a for loop goes over; lists are shared
Result<SeqPtr> string_elements(Runtime& rt, const Str& s);
Value dict_view(const Dict& d, Seq::Shape shape);

// jinja_methods*.cc: null when the type has no such method
Native find_method(const Value& obj, std::string_view name);
Native find_string_method(std::string_view name);

// jinja_filters*.cc, jinja_tests.cc: null when there is no such name
Native find_filter(std::string_view name);
Native find_text_filter(std::string_view name);
Native find_sequence_filter(std::string_view name);
Native find_selection_filter(std::string_view name);
Native find_test(std::string_view name);

// jinja_functions.cc
Native find_function(std::string_view name);  // range, namespace, raise_exception, ...

// jinja_format.cc
Result<Value> percent_format(Runtime& rt, const Str& format, const Value& args);
Result<Value> brace_format(Runtime& rt, const Str& format, const Args& args);

}  // namespace pn::jinja
