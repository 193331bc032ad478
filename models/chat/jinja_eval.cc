// SPDX-License-Identifier: Apache-2.0
//
// Expressions.
//
// Owns one function a kind of node. Each node is a step and a level of depth, and sets the line
// that an error below it would name.
#include "models/chat/jinja_eval.h"

namespace pn::jinja {

using EKind = Expr::Kind;

Result<Value> Evaluator::eval(const Expr& e) {
  Level level(rt_);
  PN_TRY(rt_.check_depth());
  PN_TRY(rt_.steps());
  rt_.line = e.line;
  return eval_node(e);
}

Result<Value> Evaluator::eval_node(const Expr& e) {
  switch (e.kind) {
    case EKind::constant:
      return e.value;
    case EKind::name:
      return name(e);
    case EKind::list:
    case EKind::tuple: {
      PN_TRY(std::vector<Value> items, eval_all(e.kids));
      PN_TRY(rt_.bytes(items.size() * sizeof(Value)));
      return Value::list(std::move(items),
                         e.kind == EKind::list ? Seq::Shape::list : Seq::Shape::tuple);
    }
    case EKind::dict:
      return dict(e);
    case EKind::call:
      return call(e);
    case EKind::filter:
      return filter(e, nullptr);
    case EKind::test:
      return test(e);
    case EKind::slice:
      return slice(e);
    case EKind::compare:
      return comparison(e);
    case EKind::concat:
      return concat(e);
    case EKind::choose:
      return choose(e);
    default:
      break;
  }
  PN_TRY(Value left, eval(*e.kids[0]));
  if (e.kind == EKind::and_ && !truth(left)) return left;
  if (e.kind == EKind::or_ && truth(left)) return left;
  if (e.kids.size() == 1) {
    rt_.line = e.line;
    if (e.kind == EKind::attr) return get_attr(rt_, left, e.text);
    if (e.kind == EKind::not_) return Value(!truth(left));
    return e.kind == EKind::negate ? jinja::negate(rt_, left) : jinja::plus(rt_, left);
  }
  PN_TRY(Value right, eval(*e.kids[1]));
  rt_.line = e.line;
  if (e.kind == EKind::item) return get_item(rt_, left, right);
  if (e.kind == EKind::binary) return binary(rt_, e.ops[0], left, right);
  return right;  // and, or
}

Result<Value> Evaluator::name(const Expr& e) {
  for (const Scope* s = scope_; s != nullptr; s = s->outer) {
    for (const auto& [id, value] : s->values) {
      if (id == e.name) return value;
    }
  }
  const std::string& text = ast_.names[e.name];
  if (Native fn = find_function(text)) return Value(ObjectPtr(std::make_shared<Function>(fn)));
  return Value::undefined("'" + text + "' is undefined");
}

Result<std::vector<Value>> Evaluator::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) {
    PN_TRY(Value v, eval(*expr));
    values.push_back(std::move(v));
  }
  return values;
}

Result<Value> Evaluator::dict(const Expr& e) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < e.kids.size(); i += 2) {
    PN_TRY(Value key, eval(*e.kids[i]));
    PN_TRY(Value value, eval(*e.kids[i + 1]));
    PN_TRY(check_key(rt_, key));
    PN_TRY(rt_.steps(dict->items.size() / 8));
    dict->set(std::move(key), std::move(value));
  }
  PN_TRY(rt_.bytes(e.kids.size() * sizeof(Value)));
  return Value(DictPtr(std::move(dict)));
}

Result<Value> Evaluator::slice(const Expr& e) {
  PN_TRY(Value obj, eval(*e.kids[0]));
  Value bounds[3] = {None{}, None{}, None{}};
  for (size_t i = 0; i < 3; ++i) {
    if (!e.kids[i + 1]) continue;
    PN_TRY(bounds[i], eval(*e.kids[i + 1]));
  }
  rt_.line = e.line;
  return get_slice(rt_, obj, bounds);
}

// a < b < c: each operand once, up to the first that is false.
Result<Value> Evaluator::comparison(const Expr& e) {
  PN_TRY(Value left, eval(*e.kids[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    PN_TRY(Value right, eval(*e.kids[i + 1]));
    rt_.line = e.line;
    PN_TRY(bool yes, compare(rt_, e.ops[i], left, right));
    if (!yes) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Evaluator::concat(const Expr& e) {
  StrBuilder out(rt_);
  for (const ExprPtr& kid : e.kids) {
    PN_TRY(Value v, eval(*kid));
    PN_TRY(print(rt_, v, out));
  }
  PN_TRY(StrPtr s, out.finish());
  return Value(std::move(s));
}

Result<Value> Evaluator::choose(const Expr& e) {
  PN_TRY(Value test, eval(*e.kids[0]));
  if (truth(test)) return eval(*e.kids[1]);
  if (e.kids.size() > 2 && e.kids[2]) return eval(*e.kids[2]);
  return Value::undefined("the inline if on line " + std::to_string(e.line) +
                          " evaluated to false and no else section was defined");
}

// `subject` stands in for the missing head of a filter block's chain.
Result<Value> Evaluator::filter(const Expr& e, const Value* subject) {
  Value self;
  if (e.kids[0] == nullptr) {
    self = *subject;
  } else if (e.kids[0]->kind == EKind::filter) {
    Level level(rt_);
    PN_TRY(rt_.check_depth());
    PN_TRY(self, filter(*e.kids[0], subject));
  } else {
    PN_TRY(self, eval(*e.kids[0]));
  }
  PN_TRY(rt_.steps());
  rt_.line = e.line;
  Native fn = find_filter(e.text);
  if (fn == nullptr) return rt_.error("no filter named '" + e.text + "'");
  PN_TRY(Args args, arguments(e.args.get()));
  rt_.line = e.line;
  return fn(rt_, self, args);
}

Result<Value> Evaluator::test(const Expr& e) {
  PN_TRY(Value self, eval(*e.kids[0]));
  rt_.line = e.line;
  Native fn = find_test(e.text);
  if (fn == nullptr) return rt_.error("no test named '" + e.text + "'");
  PN_TRY(Args args, arguments(e.args.get()));
  rt_.line = e.line;
  return fn(rt_, self, args);
}

}  // namespace pn::jinja
