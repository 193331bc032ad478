// SPDX-License-Identifier: Apache-2.0
//
// The evaluator: walks the tree.
//
// Owns scopes, control flow, calls of macros and loops. Expressions are in jinja_eval.cc,
// statements in jinja_exec.cc, calls in jinja_call.cc. A scope is a list of names that looks
// outward: `set` in a loop writes to the turn's own scope, so nothing leaks out, and `if` has no
// scope of its own.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "models/chat/jinja_ast.h"
#include "models/chat/jinja_ops.h"

namespace pn::jinja {

struct Scope {
  Scope* outer = nullptr;
  std::vector<std::pair<NameId, Value>> values;
  bool kept = false;  // a macro or loop object may look into it after it ends

  void set(NameId name, Value value);
};

class Evaluator {
 public:
  Evaluator(const Ast& ast, Runtime& rt) : ast_(ast), rt_(rt) {}
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  using Globals = std::vector<std::pair<std::string, Value>>;
  Result<StrPtr> render(const Globals& globals);

  // Index of the message in whose turn of a loop the evaluator is or was last; -1: none.
  int message() const { return message_; }

 private:
  enum class Flow { normal, break_, continue_ };
  class ScopeGuard;

  // jinja_eval.cc
  Result<Value> eval(const Expr& e);
  Result<Value> eval_node(const Expr& e);
  Result<Value> name(const Expr& e);
  Result<std::vector<Value>> eval_all(const std::vector<ExprPtr>& exprs);
  Result<Value> dict(const Expr& e);
  Result<Value> slice(const Expr& e);
  Result<Value> comparison(const Expr& e);
  Result<Value> concat(const Expr& e);
  Result<Value> choose(const Expr& e);
  Result<Value> filter(const Expr& e, const Value* subject);
  Result<Value> test(const Expr& e);

  // jinja_call.cc
  Result<Value> call(const Expr& e);
  Result<Args> arguments(const CallArgs* args);
  Result<Value> call_value(const Value& callee, const Args& args);
  Result<Value> call_macro(const Macro& macro, const Args& args);
  Result<void> bind_parameters(const Stmt& macro, const Args& args, Scope& scope);
  Result<void> bind_extra(const Stmt& macro, const Args& args, Scope& scope);

  // jinja_exec.cc
  Result<Flow> exec(const Body& body, StrBuilder& out);
  Result<Flow> exec_one(const Stmt& s, StrBuilder& out);
  Result<Flow> exec_if(const Stmt& s, StrBuilder& out);
  Result<Flow> exec_for(const Stmt& s, StrBuilder& out);
  Result<Flow> loop(const Stmt& s, const Value& items, int depth, StrBuilder& out);
  Result<Flow> turns(const Stmt& s, Loop& loop, StrBuilder& out);
  Result<SeqPtr> chosen(const Stmt& s, const SeqPtr& all);
  Result<void> exec_set(const Stmt& s);
  Result<Flow> exec_captured(const Stmt& s, StrBuilder& out);
  Result<Flow> exec_with(const Stmt& s, StrBuilder& out);
  Result<void> exec_call_block(const Stmt& s, StrBuilder& out);
  Result<void> assign(const Target& target, const Value& value);
  Value make_macro(const Stmt& s);
  void keep_scopes();

  const Ast& ast_;
  Runtime& rt_;
  Scope* scope_ = nullptr;
  int loop_depth_ = 0;
  int message_ = -1;
  std::vector<std::unique_ptr<Scope>> kept_;
  std::vector<std::shared_ptr<Namespace>> spaces_;  // emptied at the end: they can hold themselves
};

// A new innermost scope, for as long as it lives.
class Evaluator::ScopeGuard {
 public:
  explicit ScopeGuard(Evaluator& ev) : ScopeGuard(ev, ev.scope_) {}
  ScopeGuard(Evaluator& ev, Scope* outer) : ev_(ev), before_(ev.scope_) { open(outer); }
  ~ScopeGuard() {
    close();
    ev_.scope_ = before_;
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

  // A fresh scope in the same place: the next turn of a loop.
  void renew() {
    Scope* outer = scope_->outer;
    if (!scope_->kept) {
      scope_->values.clear();
      return;
    }
    close();
    open(outer);
  }

 private:
  void open(Scope* outer) {
    scope_ = std::make_unique<Scope>();
    scope_->outer = outer;
    ev_.scope_ = scope_.get();
  }
  void close() {
    if (scope_->kept) ev_.kept_.push_back(std::move(scope_));
  }

  Evaluator& ev_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

}  // namespace pn::jinja
