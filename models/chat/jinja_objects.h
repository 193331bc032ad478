// SPDX-License-Identifier: Apache-2.0
//
// Values with behaviour: namespaces, macros, loops, bound methods; and the arguments of a call.
//
// Owns the data that the evaluator and the attribute lookup share. Nothing here leads to the host:
// no object has an attribute beyond those listed in jinja_access.cc.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "models/chat/jinja_value.h"

namespace pn::jinja {

struct Stmt;
struct Scope;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The value of each name in `names` in order, null when absent. Refuses what fits no name, and
  // the absence of one of the first `required`.
  Result<std::vector<const Value*>> bind(const Runtime& rt, std::string_view what,
                                         std::initializer_list<std::string_view> names,
                                         size_t required = 0) const;
};

using Native = Result<Value> (*)(Runtime& rt, const Value& self, const Args& args);

struct Namespace : Object {
  Namespace() : Object(Kind::space) {}
  std::shared_ptr<Dict> attrs = std::make_shared<Dict>();
};

struct Macro : Object {
  Macro() : Object(Kind::macro) {}
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;  // where it was defined; kept by the evaluator until the render ends
};

struct Function : Object {
  explicit Function(Native f) : Object(Kind::function), fn(f) {}
  Native fn;
};

struct Method : Object {
  Method(Value s, Native f) : Object(Kind::method), self(std::move(s)), fn(f) {}
  ~Method() override {
    std::vector<Value> one{std::move(self)};
    release(one);
  }
  Value self;
  Native fn;
};

struct Loop : Object {
  Loop() : Object(Kind::loop) {}
  SeqPtr items;
  size_t index = 0;  // from 0
  int depth = 1;
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;  // around a recursive loop, for loop(...)
  std::vector<Value> changed;
  bool has_changed = false;
};

struct Cycler : Object {
  Cycler() : Object(Kind::cycler) {}
  ~Cycler() override { release(items); }
  std::vector<Value> items;
  size_t at = 0;
};

struct Joiner : Object {
  Joiner() : Object(Kind::joiner) {}
  ~Joiner() override {
    std::vector<Value> one{std::move(separator)};
    release(one);
  }
  Value separator;
  bool used = false;
};

}  // namespace pn::jinja
