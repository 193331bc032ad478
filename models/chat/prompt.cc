// SPDX-License-Identifier: Apache-2.0
//
// Rendering of conversations.
//
// Owns the cut of the rendered text into pieces along its marks.
#include "models/chat/prompt.h"

#include <ctime>

namespace pn::chat {

Result<Template> Template::parse(std::string source, const jinja::Limits& limits) {
  Template t;
  PN_TRY(t.program_, jinja::Program::parse(source, limits));
  t.source_ = std::move(source);
  t.caps_ = probe(t.program_);
  return t;
}

Result<std::vector<Piece>> Template::render(const RenderInput& input) const {
  PN_TRY(jinja::Variables variables, make_variables(input, caps_, program_));
  int64_t now = input.now ? *input.now : static_cast<int64_t>(std::time(nullptr));
  PN_TRY(jinja::StrPtr out, program_.render(variables, now));
  std::vector<Piece> pieces;
  size_t at = 0;
  auto add = [&](size_t end, bool trusted) {
    if (at < end) pieces.push_back({out->text.substr(at, end - at), trusted});
    at = end;
  };
  for (const jinja::Span& span : out->input) {
    add(span.begin, true);
    add(span.end, false);
  }
  add(out->text.size(), true);
  return pieces;
}

std::string flat(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace pn::chat
