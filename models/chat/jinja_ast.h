// SPDX-License-Identifier: Apache-2.0
//
// The syntax tree of a template.
//
// Owns the nodes, no behaviour. Names are numbers (index into Ast::names), so that looking one up
// compares integers. `depth` counts levels below a node: the parser refuses trees that would make
// the evaluator, or a destructor, recurse without bound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/chat/jinja_value.h"

namespace pn::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Stmt>;
using NameId = uint32_t;

enum class Op { add, sub, mul, div, floor_div, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *args, **kwargs
};

struct Expr {
  enum class Kind {
    constant,  // value
    name,      // name
    list,      // kids
    tuple,     // kids
    dict,      // kids: key, value, key, value
    attr,      // kids[0].text
    item,      // kids[0][kids[1]]
    slice,     // kids[0][kids[1]:kids[2]:kids[3]], each but the first may be null
    call,      // kids[0](args)
    filter,    // kids[0] | text(args); kids[0] is null at the head of a filter block
    test,      // kids[0] is text(args)
    negate,    // -kids[0]
    plus,      // +kids[0]
    not_,      // not kids[0]
    and_,      // kids[0] and kids[1]
    or_,       // kids[0] or kids[1]
    binary,    // kids[0] ops[0] kids[1]
    compare,   // kids[0] ops[0] kids[1] ops[1] kids[2] ...
    concat,    // kids joined by ~
    choose,    // kids[1] if kids[0] else kids[2]; kids[2] may be null
  };
  Kind kind = Kind::constant;
  int line = 1;
  uint32_t depth = 1;
  NameId name = 0;
  Value value;
  std::string text;
  std::vector<ExprPtr> kids;
  std::vector<Op> ops;
  std::unique_ptr<CallArgs> args;
};

// What `set` and `for` assign to.
struct Target {
  enum class Kind { name, attr, tuple } kind = Kind::name;  // attr: name.text, of a namespace
  NameId name = 0;
  std::string text;
  std::vector<Target> parts;
};

struct Parameter {
  NameId name = 0;
  std::string text;
  ExprPtr fallback;  // null: undefined when absent
};

struct Stmt {
  enum class Kind {
    data,        // text, as a trusted constant in `value`
    output,      // expr
    if_,         // branches, other
    for_,        // target in expr [if test] body, other = else; recursive
    set,         // target = expr
    set_block,   // target = body, through the filters of expr when not null
    macro,       // name, parameters, body
    call_block,  // expr(...) with caller(parameters) = body
    filter,      // expr's filters over body
    with,        // names = exprs, body
    group,       // body, in the same scope (generation)
    break_,
    continue_,
  };
  Kind kind = Kind::data;
  int line = 1;
  Value value;
  ExprPtr expr, test;
  Target target;
  Body body, other;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  NameId name = 0;
  std::vector<Parameter> parameters;
  bool recursive = false;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Ast {
  Body body;
  std::vector<std::string> names;
};

}  // namespace pn::jinja
