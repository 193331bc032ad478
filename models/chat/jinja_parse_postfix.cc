// SPDX-License-Identifier: Apache-2.0
//
// What follows an operand: attributes, subscripts, calls, filters, tests, and their arguments.
//
// Owns the right-hand ends of expressions. Each step wraps the operand in one more node, so the
// depth is checked at every one of them.
#include "models/chat/jinja_parser.h"

namespace pn::jinja {

using TKind = Token::Kind;
using EKind = Expr::Kind;

Result<ExprPtr> Parser::postfix(ExprPtr e) {
  while (true) {
    int line = here().line;
    if (take(".")) {
      if (here().kind == TKind::integer) {
        PN_TRY(ExprPtr index, number());
        PN_TRY(e, checked(make(EKind::item, line, kids(std::move(e), std::move(index)))));
        continue;
      }
      PN_TRY(std::string name, expect_name("an attribute"));
      PN_TRY(e, checked(make(EKind::attr, line, kids(std::move(e)))));
      e->text = std::move(name);
    } else if (here().is("[")) {
      PN_TRY(e, subscript(std::move(e)));
    } else if (here().is("(")) {
      PN_TRY(auto args, call_args());
      PN_TRY(e, checked(with_args(make(EKind::call, line, kids(std::move(e))), std::move(args))));
    } else {
      return e;
    }
  }
}

// [index], [start:stop:step], [a, b]
Result<ExprPtr> Parser::subscript(ExprPtr e) {
  int line = here().line;
  PN_TRY(expect("["));
  std::vector<ExprPtr> parts = kids(std::move(e));
  if (!here().is(":")) {
    PN_TRY(ExprPtr index, expression());
    parts.push_back(std::move(index));
    if (!here().is(":")) {
      PN_TRY(expect("]"));
      return checked(make(EKind::item, line, std::move(parts)));
    }
  } else {
    parts.push_back(nullptr);
  }
  while (parts.size() < 4 && take(":")) {
    ExprPtr part;
    if (!here().is(":") && !here().is("]")) {
      PN_TRY(part, expression());
    }
    parts.push_back(std::move(part));
  }
  PN_TRY(expect("]"));
  parts.resize(4);
  return checked(make(EKind::slice, line, std::move(parts)));
}

Result<ExprPtr> Parser::filters_and_tests(ExprPtr e) {
  while (true) {
    if (here().is("|")) {
      PN_TRY(e, filters(std::move(e), false));
    } else if (here().is_name("is")) {
      PN_TRY(e, test(std::move(e)));
    } else if (here().is("(")) {
      int line = here().line;
      PN_TRY(auto args, call_args());
      PN_TRY(e, checked(with_args(make(EKind::call, line, kids(std::move(e))), std::move(args))));
    } else {
      return e;
    }
  }
}

Result<ExprPtr> Parser::filters(ExprPtr e, bool first_without_pipe) {
  while (first_without_pipe || take("|")) {
    first_without_pipe = false;
    int line = here().line;
    PN_TRY(std::string name, expect_name("the name of a filter"));
    std::vector<ExprPtr> parts;
    parts.push_back(std::move(e));
    PN_TRY(e, checked(make(EKind::filter, line, std::move(parts))));
    e->text = std::move(name);
    std::unique_ptr<CallArgs> args;
    if (here().is("(")) {
      PN_TRY(args, call_args());
    }
    e = with_args(std::move(e), std::move(args));
  }
  return e;
}

Result<ExprPtr> Parser::test(ExprPtr e) {
  int line = here().line;
  next();  // is
  bool negated = take_name("not");
  PN_TRY(std::string name, expect_name("the name of a test"));
  e = make(EKind::test, line, kids(std::move(e)));
  e->text = std::move(name);
  std::unique_ptr<CallArgs> args;
  TKind kind = here().kind;
  bool word = kind == TKind::name && !here().is_name("else") && !here().is_name("or") &&
              !here().is_name("and");
  if (here().is("(")) {
    PN_TRY(args, call_args());
  } else if (word || kind == TKind::string || kind == TKind::integer || kind == TKind::real ||
             here().is("[") || here().is("{")) {
    if (here().is_name("is")) return error("two tests in a row; use 'and'");
    args = std::make_unique<CallArgs>();
    PN_TRY(ExprPtr arg, primary());
    PN_TRY(arg, postfix(std::move(arg)));
    args->positional.push_back(std::move(arg));
  }
  e = with_args(std::move(e), std::move(args));
  if (negated) e = make(EKind::not_, line, kids(std::move(e)));
  return checked(std::move(e));
}

ExprPtr Parser::with_args(ExprPtr e, std::unique_ptr<CallArgs> args) {
  auto deepen = [&e](const ExprPtr& arg) {
    if (arg && arg->depth >= e->depth) e->depth = arg->depth + 1;
  };
  if (args) {
    for (const ExprPtr& arg : args->positional) deepen(arg);
    for (const auto& named : args->named) deepen(named.second);
    deepen(args->star);
    deepen(args->star_star);
  }
  e->args = std::move(args);
  return e;
}

Result<std::unique_ptr<CallArgs>> Parser::call_args() {
  auto args = std::make_unique<CallArgs>();
  PN_TRY(expect("("));
  bool first = true;
  while (!here().is(")")) {
    if (!first) PN_TRY(expect(","));
    if (here().is(")")) break;
    first = false;
    PN_TRY(call_arg(*args));
  }
  PN_TRY(expect(")"));
  return args;
}

Result<void> Parser::call_arg(CallArgs& args) {
  if (take("**")) {
    if (args.star_star) return error("two ** arguments in one call");
    PN_TRY(args.star_star, expression());
  } else if (take("*")) {
    if (args.star || args.star_star) return error("a * argument after another");
    PN_TRY(args.star, expression());
  } else if (here().kind == TKind::name && ahead().is("=")) {
    std::string name = here().text;
    next();
    next();
    if (args.star_star) return error("a named argument after **");
    PN_TRY(ExprPtr value, expression());
    args.named.emplace_back(std::move(name), std::move(value));
  } else {
    if (args.star || args.star_star || !args.named.empty()) {
      return error("a positional argument after a named one");
    }
    PN_TRY(ExprPtr value, expression());
    args.positional.push_back(std::move(value));
  }
  return {};
}

}  // namespace pn::jinja
