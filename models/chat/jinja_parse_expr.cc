// SPDX-License-Identifier: Apache-2.0
//
// Expressions.
//
// Owns precedence, loosest first: inline if, or, and, not, comparisons, + -, ~, * / // %, **,
// unary, then postfix, filters and tests. As in Jinja, ~ binds tighter than +, and ** is
// left-associative.
#include <charconv>
#include <cstdlib>

#include "models/chat/jinja_parser.h"

namespace pn::jinja {

using TKind = Token::Kind;
using EKind = Expr::Kind;

ExprPtr Parser::make(EKind kind, int line, std::vector<ExprPtr> kids) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  e->kids = std::move(kids);
  for (const ExprPtr& kid : e->kids) {
    if (kid && kid->depth >= e->depth) e->depth = kid->depth + 1;
  }
  return e;
}

std::vector<ExprPtr> Parser::kids(ExprPtr a, ExprPtr b) {
  std::vector<ExprPtr> v;
  v.push_back(std::move(a));
  if (b) v.push_back(std::move(b));
  return v;
}

// Refuses a tree deeper than the limit: chains like a.b.c or 1+1+1 deepen it without nesting.
Result<ExprPtr> Parser::checked(ExprPtr e) {
  if (e->depth <= limits_.max_nesting) return e;
  return error("an expression deeper than " + std::to_string(limits_.max_nesting) + " levels");
}

// One expression, or several with commas as a tuple.
Result<ExprPtr> Parser::tuple(bool conditional, std::string_view end_name) {
  int line = here().line;
  PN_TRY(ExprPtr first, expression(conditional));
  if (!here().is(",")) return first;
  std::vector<ExprPtr> items = kids(std::move(first));
  while (take(",")) {
    TKind kind = here().kind;
    if (kind == TKind::out_end || kind == TKind::tag_end || here().is(")")) break;
    if (!end_name.empty() && here().is_name(end_name)) break;
    PN_TRY(ExprPtr item, expression(conditional));
    items.push_back(std::move(item));
  }
  return checked(make(EKind::tuple, line, std::move(items)));
}

Result<ExprPtr> Parser::expression(bool conditional) {
  Nest nest(*this);
  PN_TRY(nest.check());
  int line = here().line;
  PN_TRY(ExprPtr e, logical_or());
  while (conditional && take_name("if")) {
    PN_TRY(ExprPtr test, logical_or());
    std::vector<ExprPtr> parts = kids(std::move(test), std::move(e));
    ExprPtr other;
    if (take_name("else")) {
      PN_TRY(other, expression());
    }
    parts.push_back(std::move(other));
    PN_TRY(e, checked(make(EKind::choose, line, std::move(parts))));
  }
  return e;
}

Result<ExprPtr> Parser::logical_or() {
  PN_TRY(ExprPtr e, logical_and());
  while (here().is_name("or")) {
    int line = here().line;
    next();
    PN_TRY(ExprPtr right, logical_and());
    PN_TRY(e, checked(make(EKind::or_, line, kids(std::move(e), std::move(right)))));
  }
  return e;
}

Result<ExprPtr> Parser::logical_and() {
  PN_TRY(ExprPtr e, logical_not());
  while (here().is_name("and")) {
    int line = here().line;
    next();
    PN_TRY(ExprPtr right, logical_not());
    PN_TRY(e, checked(make(EKind::and_, line, kids(std::move(e), std::move(right)))));
  }
  return e;
}

Result<ExprPtr> Parser::logical_not() {
  if (!here().is_name("not")) return comparison();
  Nest nest(*this);
  PN_TRY(nest.check());
  int line = here().line;
  next();
  PN_TRY(ExprPtr e, logical_not());
  return checked(make(EKind::not_, line, kids(std::move(e))));
}

Result<ExprPtr> Parser::comparison() {
  int line = here().line;
  PN_TRY(ExprPtr e, sum());
  std::vector<ExprPtr> operands = kids(std::move(e));
  std::vector<Op> ops;
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"==", Op::eq}, {"!=", Op::ne}, {"<", Op::lt}, {"<=", Op::le}, {">", Op::gt}, {">=", Op::ge}};
  while (true) {
    size_t before = ops.size();
    for (const auto& [symbol, op] : kOps) {
      if (ops.size() == before && take(symbol)) ops.push_back(op);
    }
    if (ops.size() == before) {
      if (take_name("in")) {
        ops.push_back(Op::in);
      } else if (here().is_name("not") && ahead().is_name("in")) {
        next();
        next();
        ops.push_back(Op::not_in);
      } else {
        break;
      }
    }
    PN_TRY(ExprPtr right, sum());
    operands.push_back(std::move(right));
  }
  if (ops.empty()) return std::move(operands[0]);
  ExprPtr all = make(EKind::compare, line, std::move(operands));
  all->ops = std::move(ops);
  return checked(std::move(all));
}

Result<ExprPtr> Parser::sum() {
  PN_TRY(ExprPtr e, concat());
  while (here().is("+") || here().is("-")) {
    Op op = here().is("+") ? Op::add : Op::sub;
    int line = here().line;
    next();
    PN_TRY(ExprPtr right, concat());
    PN_TRY(e, checked(make(EKind::binary, line, kids(std::move(e), std::move(right)))));
    e->ops = {op};
  }
  return e;
}

Result<ExprPtr> Parser::concat() {
  int line = here().line;
  PN_TRY(ExprPtr e, product());
  if (!here().is("~")) return e;
  std::vector<ExprPtr> parts = kids(std::move(e));
  while (take("~")) {
    PN_TRY(ExprPtr right, product());
    parts.push_back(std::move(right));
  }
  return checked(make(EKind::concat, line, std::move(parts)));
}

Result<ExprPtr> Parser::product() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"*", Op::mul}, {"/", Op::div}, {"//", Op::floor_div}, {"%", Op::mod}};
  PN_TRY(ExprPtr e, power());
  while (true) {
    const Op* op = nullptr;
    for (const auto& [symbol, o] : kOps) {
      if (here().is(symbol)) op = &o;
    }
    if (op == nullptr) return e;
    int line = here().line;
    next();
    PN_TRY(ExprPtr right, power());
    PN_TRY(e, checked(make(EKind::binary, line, kids(std::move(e), std::move(right)))));
    e->ops = {*op};
  }
}

Result<ExprPtr> Parser::power() {
  PN_TRY(ExprPtr e, unary(true));
  while (here().is("**")) {
    int line = here().line;
    next();
    PN_TRY(ExprPtr right, unary(true));
    PN_TRY(e, checked(make(EKind::binary, line, kids(std::move(e), std::move(right)))));
    e->ops = {Op::pow};
  }
  return e;
}

Result<ExprPtr> Parser::unary(bool with_filters) {
  Nest nest(*this);
  PN_TRY(nest.check());
  int line = here().line;
  ExprPtr e;
  if (here().is("-") || here().is("+")) {
    EKind kind = here().is("-") ? EKind::negate : EKind::plus;
    next();
    PN_TRY(ExprPtr inner, unary(false));
    e = make(kind, line, kids(std::move(inner)));
  } else {
    PN_TRY(e, primary());
  }
  PN_TRY(e, postfix(std::move(e)));
  if (with_filters) return filters_and_tests(std::move(e));
  return e;
}

Result<ExprPtr> Parser::primary() {
  const Token& token = here();
  ExprPtr e = make(EKind::constant, token.line);
  if (token.kind == TKind::name) {
    const std::string& name = token.text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      e->value = Value(name == "true" || name == "True");
    } else if (name == "none" || name == "None") {
      e->value = Value(None{});
    } else {
      e->kind = EKind::name;
      e->name = name_id(name);
      note_use(e->name);
    }
    next();
    return e;
  }
  if (token.kind == TKind::string) {
    std::string text;
    for (; here().kind == TKind::string; next()) text += here().text;
    e->value = Value::text(std::move(text));
    return e;
  }
  if (token.kind == TKind::integer || token.kind == TKind::real) return number();
  if (token.is("(")) return parenthesized();
  if (token.is("[")) return list();
  if (token.is("{")) return dict();
  return expected("an expression");
}

Result<ExprPtr> Parser::number() {
  const Token& token = here();
  ExprPtr e = make(EKind::constant, token.line);
  if (token.kind == TKind::real) {
    e->value = Value(std::strtod(token.text.c_str(), nullptr));
    next();
    return e;
  }
  int base = 10;
  std::string_view digits = token.text;
  if (digits.size() > 1 && digits[1] > '9') {
    base = digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t n = 0;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), n, base);
  if (ec == std::errc::result_out_of_range) return error("an integer beyond 64 bits");
  if (ec != std::errc() || end != digits.data() + digits.size()) return expected("a number");
  e->value = Value(n);
  next();
  return e;
}

Result<ExprPtr> Parser::parenthesized() {
  int line = here().line;
  PN_TRY(expect("("));
  if (take(")")) return make(EKind::tuple, line);
  PN_TRY(ExprPtr e, tuple(true));
  PN_TRY(expect(")"));
  return e;
}

Result<ExprPtr> Parser::list() {
  int line = here().line;
  PN_TRY(expect("["));
  std::vector<ExprPtr> items;
  while (!here().is("]")) {
    if (!items.empty()) PN_TRY(expect(","));
    if (here().is("]")) break;
    PN_TRY(ExprPtr item, expression());
    items.push_back(std::move(item));
  }
  PN_TRY(expect("]"));
  return checked(make(EKind::list, line, std::move(items)));
}

Result<ExprPtr> Parser::dict() {
  int line = here().line;
  PN_TRY(expect("{"));
  std::vector<ExprPtr> items;
  while (!here().is("}")) {
    if (!items.empty()) PN_TRY(expect(","));
    if (here().is("}")) break;
    PN_TRY(ExprPtr key, expression());
    PN_TRY(expect(":"));
    PN_TRY(ExprPtr value, expression());
    items.push_back(std::move(key));
    items.push_back(std::move(value));
  }
  PN_TRY(expect("}"));
  return checked(make(EKind::dict, line, std::move(items)));
}

}  // namespace pn::jinja
