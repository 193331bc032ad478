// SPDX-License-Identifier: Apache-2.0
//
// A parsed template, ready to render.
//
// Owns the join of parser and evaluator, and the last word on whom an error blames.
#include "models/chat/jinja_program.h"

#include <algorithm>

#include "models/chat/jinja_eval.h"
#include "models/chat/jinja_parser.h"

namespace pn::jinja {

Result<Program> Program::parse(std::string source, const Limits& limits) {
  PN_TRY(Ast ast, jinja::parse(source, limits));
  Program program;
  program.ast_ = std::make_shared<const Ast>(std::move(ast));
  program.limits_ = limits;
  return program;
}

Result<StrPtr> Program::render(const Variables& variables, int64_t now) const {
  Runtime rt(limits_);
  rt.now = now;
  Evaluator evaluator(*ast_, rt);
  Result<StrPtr> out = evaluator.render(variables);
  if (!out && out.error().param == "messages" && evaluator.message() >= 0) {
    out.error().param += "[" + std::to_string(evaluator.message()) + "]";
  }
  return out;
}

bool Program::mentions(std::string_view name) const {
  return std::find(ast_->names.begin(), ast_->names.end(), name) != ast_->names.end();
}

}  // namespace pn::jinja
