// SPDX-License-Identifier: Apache-2.0
//
// Tokens -> tree.
//
// Owns the grammar: a recursive-descent parser in two files, statements (jinja_parser.cc) and
// expressions (jinja_parse_expr.cc). Knows no values but constants. Every error names a line and
// what was expected there.
#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/chat/jinja_ast.h"
#include "models/chat/jinja_lexer.h"

namespace pn::jinja {

Result<Ast> parse(std::string_view source, const Limits& limits);

// Names that always have these numbers.
enum : NameId { kLoopName, kCallerName, kVarargsName, kKwargsName };

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits);
  Result<Ast> run();

 private:
  using Tags = std::initializer_list<std::string_view>;

  // statements
  Result<Body> body(Tags ends);
  Result<void> statement(Body& out);
  Result<Stmt> if_statement(int line);
  Result<Stmt> for_statement(int line);
  Result<void> set_statement(Body& out, int line);
  Result<Stmt> macro_statement(int line);
  Result<Stmt> call_statement(int line);
  Result<Stmt> filter_statement(int line);
  Result<Stmt> with_statement(int line);
  Result<void> macro_body(Stmt& stmt, std::string_view end);
  Result<void> parameters(Stmt& stmt);
  Result<Target> target(bool attributes);
  Result<Target> one_target(bool attributes);
  Result<void> tag_end();

  // expressions
  Result<ExprPtr> tuple(bool conditional, std::string_view end_name = {});
  Result<ExprPtr> parenthesized();
  Result<ExprPtr> expression(bool conditional = true);
  Result<ExprPtr> logical_or();
  Result<ExprPtr> logical_and();
  Result<ExprPtr> logical_not();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concat();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> unary(bool filters);
  Result<ExprPtr> primary();
  Result<ExprPtr> number();
  Result<ExprPtr> list();
  Result<ExprPtr> dict();
  Result<ExprPtr> postfix(ExprPtr e);
  Result<ExprPtr> subscript(ExprPtr e);
  Result<ExprPtr> filters_and_tests(ExprPtr e);
  Result<ExprPtr> filters(ExprPtr e, bool first_without_pipe);
  Result<ExprPtr> test(ExprPtr e);
  Result<std::unique_ptr<CallArgs>> call_args();
  Result<void> call_arg(CallArgs& args);

  // tokens
  const Token& here() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void next() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool take(std::string_view op);
  bool take_name(std::string_view name);
  Result<void> expect(std::string_view op);
  Result<std::string> expect_name(std::string_view what);
  tl::unexpected<Error> error(const std::string& what) const;
  tl::unexpected<Error> expected(std::string_view what) const;

  NameId name_id(const std::string& name);
  void note_use(NameId id);
  ExprPtr make(Expr::Kind kind, int line, std::vector<ExprPtr> kids = {});
  static std::vector<ExprPtr> kids(ExprPtr a, ExprPtr b = nullptr);
  Result<ExprPtr> checked(ExprPtr e);
  static ExprPtr with_args(ExprPtr e, std::unique_ptr<CallArgs> args);

  class Nest;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  const Limits& limits_;
  uint32_t nesting_ = 0;
  int loops_ = 0;              // loops that a break here would leave
  std::vector<Stmt*> macros_;  // being parsed, outermost first
  std::unordered_map<std::string, NameId> ids_;
  Ast ast_;
};

// One level of syntax.
class Parser::Nest {
 public:
  explicit Nest(Parser& p) : p_(p) { ++p_.nesting_; }
  ~Nest() { --p_.nesting_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;
  Result<void> check() const;

 private:
  Parser& p_;
};

}  // namespace pn::jinja
