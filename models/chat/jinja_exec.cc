// SPDX-License-Identifier: Apache-2.0
//
// Statements.
//
// Owns what a template does: output, branches, loops, assignments. Output goes to the builder that
// the caller passes: the prompt, a macro's result, or a block that is captured.
#include "models/chat/jinja_eval.h"
#include "models/chat/jinja_parser.h"

namespace pn::jinja {

using SKind = Stmt::Kind;

void Scope::set(NameId name, Value value) {
  for (auto& [id, old] : values) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  values.emplace_back(name, std::move(value));
}

// Namespaces and kept scopes can refer to themselves; emptying them frees what they hold.
Evaluator::~Evaluator() {
  for (auto& space : spaces_) space->attrs->items.clear();
  for (auto& scope : kept_) scope->values.clear();
}

Result<StrPtr> Evaluator::render(const Globals& globals) {
  ScopeGuard outer(*this);
  for (const auto& [text, value] : globals) {
    for (NameId id = 0; id < ast_.names.size(); ++id) {
      if (ast_.names[id] == text) scope_->set(id, value);
    }
  }
  ScopeGuard own(*this);
  StrBuilder out(rt_, rt_.limits().max_output_bytes);
  PN_TRY(exec(ast_.body, out));
  return out.finish();
}

Result<Evaluator::Flow> Evaluator::exec(const Body& body, StrBuilder& out) {
  Level level(rt_);
  PN_TRY(rt_.check_depth());
  for (const Stmt& s : body) {
    PN_TRY(rt_.steps());
    rt_.line = s.line;
    PN_TRY(Flow flow, exec_one(s, out));
    if (flow != Flow::normal) return flow;
    if (out.full()) return rt_.over("the output, or a text made on the way, grew too long");
  }
  return Flow::normal;
}

Result<Evaluator::Flow> Evaluator::exec_one(const Stmt& s, StrBuilder& out) {
  switch (s.kind) {
    case SKind::data:
      out.add(s.value.str());
      return Flow::normal;
    case SKind::output: {
      PN_TRY(Value v, eval(*s.expr));
      rt_.line = s.line;
      PN_TRY(print(rt_, v, out));
      return Flow::normal;
    }
    case SKind::if_:
      return exec_if(s, out);
    case SKind::for_:
      return exec_for(s, out);
    case SKind::set:
      PN_TRY(exec_set(s));
      return Flow::normal;
    case SKind::set_block:
    case SKind::filter:
      return exec_captured(s, out);
    case SKind::macro:
      scope_->set(s.name, make_macro(s));
      return Flow::normal;
    case SKind::call_block:
      PN_TRY(exec_call_block(s, out));
      return Flow::normal;
    case SKind::with:
      return exec_with(s, out);
    case SKind::group:
      return exec(s.body, out);
    case SKind::break_:
      return Flow::break_;
    case SKind::continue_:
      return Flow::continue_;
  }
  return Flow::normal;
}

Result<Evaluator::Flow> Evaluator::exec_if(const Stmt& s, StrBuilder& out) {
  for (const auto& [test, body] : s.branches) {
    PN_TRY(Value v, eval(*test));
    if (truth(v)) return exec(body, out);
  }
  return exec(s.other, out);
}

Result<Evaluator::Flow> Evaluator::exec_for(const Stmt& s, StrBuilder& out) {
  PN_TRY(Value items, eval(*s.expr));
  rt_.line = s.line;
  return loop(s, items, 1, out);
}

Result<Evaluator::Flow> Evaluator::loop(const Stmt& s, const Value& items, int depth,
                                        StrBuilder& out) {
  auto loop = std::make_shared<Loop>();
  PN_TRY(loop->items, elements(rt_, items));
  if (s.test) {
    PN_TRY(loop->items, chosen(s, loop->items));
  }
  loop->depth = depth;
  loop->stmt = &s;
  if (s.recursive) {
    keep_scopes();
    loop->scope = scope_;
  }
  if (loop->items->items.empty()) {
    ScopeGuard guard(*this);
    return exec(s.other, out);
  }
  int message = message_;
  ScopeGuard guard(*this);
  for (; loop->index < loop->items->items.size(); ++loop->index) {
    Value item = loop->items->items[loop->index];
    if (loop->index > 0) guard.renew();
    scope_->set(kLoopName, Value(ObjectPtr(loop)));
    rt_.line = s.line;
    PN_TRY(assign(s.target, item));
    if (item.is_dict() && item.dict()->message >= 0) message_ = item.dict()->message;
    PN_TRY(Flow flow, exec(s.body, out));
    if (flow == Flow::break_) break;
  }
  message_ = message;
  return Flow::normal;
}

// The items that pass the loop's own `if`.
Result<SeqPtr> Evaluator::chosen(const Stmt& s, const SeqPtr& all) {
  ScopeGuard guard(*this);
  auto kept = std::make_shared<Seq>();
  for (size_t i = 0; i < all->items.size(); ++i) {
    Value item = all->items[i];
    rt_.line = s.line;
    PN_TRY(assign(s.target, item));
    PN_TRY(Value v, eval(*s.test));
    if (truth(v)) kept->items.push_back(std::move(item));
  }
  PN_TRY(rt_.bytes(kept->items.size() * sizeof(Value)));
  return kept;
}

Result<void> Evaluator::exec_set(const Stmt& s) {
  PN_TRY(Value v, eval(*s.expr));
  rt_.line = s.line;
  return assign(s.target, v);
}

// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}
Result<Evaluator::Flow> Evaluator::exec_captured(const Stmt& s, StrBuilder& out) {
  Value text;
  {
    ScopeGuard guard(*this);
    StrBuilder inner(rt_);
    PN_TRY(Flow flow, exec(s.body, inner));
    if (flow != Flow::normal) return flow;
    PN_TRY(StrPtr captured, inner.finish());
    text = Value(std::move(captured));
  }
  if (s.expr) {
    PN_TRY(text, filter(*s.expr, &text));
  }
  rt_.line = s.line;
  if (s.kind == SKind::set_block) {
    PN_TRY(assign(s.target, text));
  } else {
    PN_TRY(print(rt_, text, out));
  }
  return Flow::normal;
}

Result<Evaluator::Flow> Evaluator::exec_with(const Stmt& s, StrBuilder& out) {
  std::vector<Value> values;  // all evaluated outside, before any name is bound
  for (const auto& binding : s.bindings) {
    PN_TRY(Value v, eval(*binding.second));
    values.push_back(std::move(v));
  }
  ScopeGuard guard(*this);
  for (size_t i = 0; i < values.size(); ++i) PN_TRY(assign(s.bindings[i].first, values[i]));
  return exec(s.body, out);
}

Result<void> Evaluator::exec_call_block(const Stmt& s, StrBuilder& out) {
  PN_TRY(Value callee, eval(*s.expr->kids[0]));
  PN_TRY(Args args, arguments(s.expr->args.get()));
  args.named.emplace_back("caller", make_macro(s));
  rt_.line = s.line;
  PN_TRY(Value v, call_value(callee, args));
  return print(rt_, v, out);
}

Value Evaluator::make_macro(const Stmt& s) {
  keep_scopes();
  auto macro = std::make_shared<Macro>();
  macro->stmt = &s;
  macro->scope = scope_;
  return Value(ObjectPtr(std::move(macro)));
}

void Evaluator::keep_scopes() {
  for (Scope* s = scope_; s != nullptr && !s->kept; s = s->outer) s->kept = true;
}

Result<void> Evaluator::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::name) {
    scope_->set(target.name, value);
    return {};
  }
  if (target.kind == Target::Kind::attr) {
    Expr name;
    name.kind = Expr::Kind::name;
    name.name = target.name;
    PN_TRY(Value space, this->name(name));
    if (!space.is(Value::Kind::object) || space.object()->kind != Object::Kind::space) {
      return rt_.error("cannot assign attribute '" + target.text + "': '" +
                       ast_.names[target.name] + "' is not a namespace");
    }
    PN_TRY(rt_.bytes(sizeof(Value)));
    static_cast<Namespace&>(*space.object()).attrs->set(Value::text(target.text), value);
    return {};
  }
  PN_TRY(SeqPtr seq, elements(rt_, value));
  if (seq->items.size() != target.parts.size()) {
    return rt_.error("cannot unpack " + std::to_string(seq->items.size()) + " values into " +
                     std::to_string(target.parts.size()) + " names");
  }
  for (size_t i = 0; i < target.parts.size(); ++i) {
    PN_TRY(assign(target.parts[i], seq->items[i]));
  }
  return {};
}

}  // namespace pn::jinja
