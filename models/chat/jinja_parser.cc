// SPDX-License-Identifier: Apache-2.0
//
// Statements.
//
// Owns tags and the token cursor. `import`, `include` and `extends` are refused by name: a template
// in a model file may not reach other files.
#include "models/chat/jinja_parser.h"

#include <algorithm>

namespace pn::jinja {

using TKind = Token::Kind;

Result<Ast> parse(std::string_view source, const Limits& limits) {
  PN_TRY(std::vector<Token> tokens, tokenize(source, limits));
  return Parser(std::move(tokens), limits).run();
}

Parser::Parser(std::vector<Token> tokens, const Limits& limits)
    : tokens_(std::move(tokens)), limits_(limits) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) name_id(name);
}

Result<Ast> Parser::run() {
  PN_TRY(ast_.body, body({}));
  return std::move(ast_);
}

// Until one of `ends`, whose name is left as the current token; until the end when there is none.
Result<Body> Parser::body(Tags ends) {
  Nest nest(*this);
  PN_TRY(nest.check());
  Body out;
  int opened = here().line;
  while (here().kind != TKind::end) {
    int line = here().line;
    if (here().kind == TKind::data) {
      Stmt s;
      s.line = line;
      s.value = Value::text(here().text);
      out.push_back(std::move(s));
      next();
    } else if (here().kind == TKind::out_begin) {
      next();
      Stmt s;
      s.kind = Stmt::Kind::output;
      s.line = line;
      PN_TRY(s.expr, tuple(true));
      if (here().kind != TKind::out_end) return expected("'}}'");
      next();
      out.push_back(std::move(s));
    } else {
      next();
      for (std::string_view end : ends) {
        if (here().is_name(end)) return out;
      }
      PN_TRY(statement(out));
      PN_TRY(tag_end());
    }
  }
  if (ends.size() == 0) return out;
  return fail(Code::invalid,
              "chat template line " + std::to_string(opened) + ": a block opened before here is " +
                  "not closed by {% " + std::string(*(ends.end() - 1)) + " %}",
              "chat_template");
}

Result<void> Parser::statement(Body& out) {
  int line = here().line;
  PN_TRY(std::string tag, expect_name("the name of a tag"));
  auto add = [&out](Result<Stmt> s) -> Result<void> {
    if (!s) return tl::make_unexpected(std::move(s).error());
    out.push_back(std::move(*s));
    return {};
  };
  if (tag == "if") return add(if_statement(line));
  if (tag == "for") return add(for_statement(line));
  if (tag == "set") return set_statement(out, line);
  if (tag == "macro") return add(macro_statement(line));
  if (tag == "call") return add(call_statement(line));
  if (tag == "filter") return add(filter_statement(line));
  if (tag == "with") return add(with_statement(line));
  Stmt s;
  s.line = line;
  if (tag == "generation") {  // marks the assistant's text for training; prints its body
    PN_TRY(tag_end());
    s.kind = Stmt::Kind::group;
    PN_TRY(s.body, body({"endgeneration"}));
    next();
    return add(std::move(s));
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) return error("'" + tag + "' outside of a for loop");
    s.kind = tag == "break" ? Stmt::Kind::break_ : Stmt::Kind::continue_;
    return add(std::move(s));
  }
  for (const char* known : {"include", "import", "from", "extends", "block", "autoescape", "do"}) {
    if (tag == known) {
      return error("the tag '" + tag + "' is not supported in a chat template");
    }
  }
  return error("unknown tag '" + tag + "'");
}

Result<Stmt> Parser::if_statement(int line) {
  Stmt s;
  s.kind = Stmt::Kind::if_;
  s.line = line;
  while (true) {
    PN_TRY(ExprPtr test, tuple(false));
    PN_TRY(tag_end());
    PN_TRY(Body then, body({"elif", "else", "endif"}));
    s.branches.emplace_back(std::move(test), std::move(then));
    if (take_name("elif")) continue;
    if (take_name("else")) {
      PN_TRY(tag_end());
      PN_TRY(s.other, body({"endif"}));
    }
    next();
    return s;
  }
}

Result<Stmt> Parser::for_statement(int line) {
  Stmt s;
  s.kind = Stmt::Kind::for_;
  s.line = line;
  PN_TRY(s.target, target(false));
  if (!take_name("in")) return expected("'in'");
  PN_TRY(s.expr, tuple(false, "recursive"));
  if (take_name("if")) {
    PN_TRY(s.test, expression());
  }
  s.recursive = take_name("recursive");
  PN_TRY(tag_end());
  ++loops_;
  Result<Body> turns = body({"endfor", "else"});
  --loops_;
  PN_TRY(s.body, std::move(turns));
  if (take_name("else")) {
    PN_TRY(tag_end());
    PN_TRY(s.other, body({"endfor"}));
  }
  next();
  return s;
}

Result<void> Parser::set_statement(Body& out, int line) {
  Stmt s;
  s.line = line;
  PN_TRY(s.target, target(true));
  if (take("=")) {
    s.kind = Stmt::Kind::set;
    PN_TRY(s.expr, tuple(true));
  } else {
    s.kind = Stmt::Kind::set_block;
    if (here().is("|")) {
      PN_TRY(s.expr, filters(nullptr, false));
    }
    PN_TRY(tag_end());
    PN_TRY(s.body, body({"endset"}));
    next();
  }
  out.push_back(std::move(s));
  return {};
}

Result<Stmt> Parser::macro_statement(int line) {
  Stmt s;
  s.kind = Stmt::Kind::macro;
  s.line = line;
  PN_TRY(std::string name, expect_name("the name of a macro"));
  s.name = name_id(name);
  s.value = Value::text(name);
  PN_TRY(parameters(s));
  PN_TRY(macro_body(s, "endmacro"));
  return s;
}

// {% call(args) macro(...) %}body{% endcall %}
Result<Stmt> Parser::call_statement(int line) {
  Stmt s;
  s.kind = Stmt::Kind::call_block;
  s.line = line;
  s.value = Value::text("caller");
  if (here().is("(")) PN_TRY(parameters(s));
  PN_TRY(s.expr, expression());
  if (s.expr->kind != Expr::Kind::call) return expected("a macro call");
  PN_TRY(macro_body(s, "endcall"));
  return s;
}

Result<void> Parser::macro_body(Stmt& s, std::string_view end) {
  PN_TRY(tag_end());
  int loops = loops_;
  loops_ = 0;
  macros_.push_back(&s);
  Result<Body> inner = body({end});
  macros_.pop_back();
  loops_ = loops;
  PN_TRY(s.body, std::move(inner));
  next();
  return {};
}

Result<void> Parser::parameters(Stmt& s) {
  PN_TRY(expect("("));
  while (!here().is(")")) {
    if (!s.parameters.empty()) PN_TRY(expect(","));
    if (here().is(")")) break;
    Parameter p;
    PN_TRY(p.text, expect_name("the name of a parameter"));
    p.name = name_id(p.text);
    if (take("=")) {
      PN_TRY(p.fallback, expression());
    } else if (!s.parameters.empty() && s.parameters.back().fallback) {
      return error("parameter '" + p.text + "' without a default follows one with a default");
    }
    s.parameters.push_back(std::move(p));
  }
  return expect(")");
}

Result<Stmt> Parser::filter_statement(int line) {
  Stmt s;
  s.kind = Stmt::Kind::filter;
  s.line = line;
  PN_TRY(s.expr, filters(nullptr, true));
  PN_TRY(tag_end());
  PN_TRY(s.body, body({"endfilter"}));
  next();
  return s;
}

Result<Stmt> Parser::with_statement(int line) {
  Stmt s;
  s.kind = Stmt::Kind::with;
  s.line = line;
  while (here().kind != TKind::tag_end) {
    if (!s.bindings.empty()) PN_TRY(expect(","));
    PN_TRY(Target t, one_target(false));
    PN_TRY(expect("="));
    PN_TRY(ExprPtr e, expression());
    s.bindings.emplace_back(std::move(t), std::move(e));
  }
  PN_TRY(tag_end());
  PN_TRY(s.body, body({"endwith"}));
  next();
  return s;
}

Result<Target> Parser::target(bool attributes) {
  PN_TRY(Target first, one_target(attributes));
  if (!here().is(",")) return first;
  Target all;
  all.kind = Target::Kind::tuple;
  all.parts.push_back(std::move(first));
  while (take(",")) {
    if (here().kind != TKind::name && !here().is("(")) break;
    if (here().is_name("in")) break;
    PN_TRY(Target part, one_target(false));
    all.parts.push_back(std::move(part));
  }
  return all;
}

Result<Target> Parser::one_target(bool attributes) {
  Nest nest(*this);
  PN_TRY(nest.check());
  if (take("(")) {
    PN_TRY(Target inner, target(false));
    PN_TRY(expect(")"));
    return inner;
  }
  Target t;
  PN_TRY(std::string name, expect_name("a name to assign to"));
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) return error("'" + name + "' cannot be assigned to");
  }
  t.name = name_id(name);
  if (attributes && take(".")) {
    t.kind = Target::Kind::attr;
    PN_TRY(t.text, expect_name("an attribute of a namespace"));
  }
  return t;
}

Result<void> Parser::tag_end() {
  if (here().kind != TKind::tag_end) return expected("'%}'");
  next();
  return {};
}

bool Parser::take(std::string_view op) {
  if (!here().is(op)) return false;
  next();
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!here().is_name(name)) return false;
  next();
  return true;
}

Result<void> Parser::expect(std::string_view op) {
  if (take(op)) return {};
  return expected("'" + std::string(op) + "'");
}

Result<std::string> Parser::expect_name(std::string_view what) {
  if (here().kind != TKind::name) return expected(what);
  std::string name = here().text;
  next();
  return name;
}

tl::unexpected<Error> Parser::error(const std::string& what) const {
  return fail(Code::invalid, "chat template line " + std::to_string(here().line) + ": " + what,
              "chat_template");
}

tl::unexpected<Error> Parser::expected(std::string_view what) const {
  std::string found =
      here().kind == TKind::end ? "the end of the template" : "'" + here().text.substr(0, 40) + "'";
  return error("expected " + std::string(what) + ", found " + found);
}

NameId Parser::name_id(const std::string& name) {
  auto [it, added] = ids_.try_emplace(name, static_cast<NameId>(ast_.names.size()));
  if (added) ast_.names.push_back(name);
  return it->second;
}

// A macro takes extra arguments only when its body names them.
void Parser::note_use(NameId id) {
  for (Stmt* macro : macros_) {
    macro->uses_caller |= id == kCallerName;
    macro->uses_varargs |= id == kVarargsName;
    macro->uses_kwargs |= id == kKwargsName;
  }
}

Result<void> Parser::Nest::check() const {
  if (p_.nesting_ <= p_.limits_.max_nesting) return {};
  return p_.error("nested deeper than " + std::to_string(p_.limits_.max_nesting) + " levels");
}

}  // namespace pn::jinja
