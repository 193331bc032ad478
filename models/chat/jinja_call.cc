// SPDX-License-Identifier: Apache-2.0
//
// Calls: arguments, macros, methods, recursive loops.
//
// Owns the binding of arguments to parameters. A method is called on its value directly, without an
// object for it in between.
#include "models/chat/jinja_eval.h"
#include "models/chat/jinja_parser.h"

namespace pn::jinja {

using EKind = Expr::Kind;

Result<Value> Evaluator::call(const Expr& e) {
  const Expr& callee = *e.kids[0];
  if (callee.kind == EKind::attr) {
    PN_TRY(Value self, eval(*callee.kids[0]));
    rt_.line = e.line;
    if (Native fn = find_method(self, callee.text)) {
      PN_TRY(Args args, arguments(e.args.get()));
      rt_.line = e.line;
      return fn(rt_, self, args);
    }
    PN_TRY(Value target, get_attr(rt_, self, callee.text));
    PN_TRY(Args args, arguments(e.args.get()));
    rt_.line = e.line;
    return call_value(target, args);
  }
  PN_TRY(Value target, eval(callee));
  PN_TRY(Args args, arguments(e.args.get()));
  rt_.line = e.line;
  return call_value(target, args);
}

Result<Args> Evaluator::arguments(const CallArgs* from) {
  Args args;
  if (from == nullptr) return args;
  PN_TRY(args.positional, eval_all(from->positional));
  for (const auto& [name, expr] : from->named) {
    PN_TRY(Value v, eval(*expr));
    args.named.emplace_back(name, std::move(v));
  }
  if (from->star) {
    PN_TRY(Value v, eval(*from->star));
    PN_TRY(SeqPtr seq, elements(rt_, v));
    PN_TRY(rt_.steps(seq->items.size()));
    args.positional.insert(args.positional.end(), seq->items.begin(), seq->items.end());
  }
  if (from->star_star) {
    PN_TRY(Value v, eval(*from->star_star));
    if (!v.is_dict()) return rt_.error(std::string("** needs a dict, found ") + v.type_name());
    PN_TRY(rt_.steps(v.dict()->items.size()));
    for (const auto& [key, value] : v.dict()->items) {
      if (!key.is_string()) return rt_.error("** needs a dict with names as keys");
      args.named.emplace_back(key.str().text, value);
    }
  }
  return args;
}

Result<Value> Evaluator::call_value(const Value& callee, const Args& args) {
  if (callee.is_undefined()) return get_attr(rt_, callee, "");  // its error
  if (!callee.is(Value::Kind::object)) {
    return rt_.error(std::string("'") + callee.type_name() + "' object is not callable");
  }
  Object& object = *callee.object();
  switch (object.kind) {
    case Object::Kind::macro:
      return call_macro(static_cast<const Macro&>(object), args);
    case Object::Kind::function: {
      PN_TRY(Value v, static_cast<const Function&>(object).fn(rt_, callee, args));
      if (v.is(Value::Kind::object) && v.object()->kind == Object::Kind::space) {
        spaces_.push_back(std::static_pointer_cast<Namespace>(v.object()));
      }
      return v;
    }
    case Object::Kind::method: {
      const auto& method = static_cast<const Method&>(object);
      return method.fn(rt_, method.self, args);
    }
    case Object::Kind::joiner: {
      auto& joiner = static_cast<Joiner&>(object);
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return Value::text("");
    }
    case Object::Kind::loop: {
      auto& loop = static_cast<Loop&>(object);
      if (loop.scope == nullptr) {
        return rt_.error("loop(...) needs the loop to be marked 'recursive'");
      }
      PN_TRY(auto a, args.bind(rt_, "loop()", {"iterable"}, 1));
      ScopeGuard guard(*this, loop.scope);
      StrBuilder out(rt_);
      PN_TRY(this->loop(*loop.stmt, *a[0], loop.depth + 1, out));
      PN_TRY(StrPtr s, out.finish());
      return Value(std::move(s));
    }
    default:
      return rt_.error(std::string("'") + callee.type_name() + "' object is not callable");
  }
}

Result<Value> Evaluator::call_macro(const Macro& macro, const Args& args) {
  Level level(rt_);
  PN_TRY(rt_.check_depth());
  ScopeGuard guard(*this, macro.scope);
  PN_TRY(bind_extra(*macro.stmt, args, *scope_));
  PN_TRY(bind_parameters(*macro.stmt, args, *scope_));
  StrBuilder out(rt_);
  PN_TRY(exec(macro.stmt->body, out));
  PN_TRY(StrPtr s, out.finish());
  return Value(std::move(s));
}

// A default is evaluated in the macro's own scope, where it sees the parameters before it.
Result<void> Evaluator::bind_parameters(const Stmt& macro, const Args& args, Scope& scope) {
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& p = macro.parameters[i];
    const Value* given = i < args.positional.size() ? &args.positional[i] : nullptr;
    for (const auto& [name, value] : args.named) {
      if (name != p.text) continue;
      if (given != nullptr) return rt_.error("a macro was given '" + name + "' twice");
      given = &value;
    }
    if (given != nullptr) {
      scope.set(p.name, *given);
    } else if (p.fallback) {
      PN_TRY(Value v, eval(*p.fallback));
      scope.set(p.name, std::move(v));
    } else {
      scope.set(p.name, Value::undefined("parameter '" + p.text + "' was not provided"));
    }
  }
  return {};
}

// Arguments beyond the parameters go to varargs, kwargs and caller, if the body names these.
Result<void> Evaluator::bind_extra(const Stmt& macro, const Args& args, Scope& scope) {
  std::string title = "macro '" + macro.value.str().text + "'";
  std::vector<Value> varargs;
  for (size_t i = macro.parameters.size(); i < args.positional.size(); ++i) {
    varargs.push_back(args.positional[i]);
  }
  if (!varargs.empty() && !macro.uses_varargs) {
    return rt_.error(title + " takes not more than " + std::to_string(macro.parameters.size()) +
                     " arguments");
  }
  auto kwargs = std::make_shared<Dict>();
  Value caller = Value::undefined("No caller defined");
  for (const auto& [name, value] : args.named) {
    bool parameter = false;
    for (const Parameter& p : macro.parameters) parameter |= p.text == name;
    if (parameter) continue;
    if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      kwargs->set(Value::text(name), value);
    } else {
      return rt_.error(title + " takes no argument '" + name + "'");
    }
  }
  if (macro.uses_varargs) {
    scope.set(kVarargsName, Value::list(std::move(varargs), Seq::Shape::tuple));
  }
  if (macro.uses_kwargs) scope.set(kKwargsName, Value(DictPtr(std::move(kwargs))));
  if (macro.uses_caller) scope.set(kCallerName, std::move(caller));
  return {};
}

}  // namespace pn::jinja
