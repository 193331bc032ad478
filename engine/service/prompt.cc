// SPDX-License-Identifier: Apache-2.0
//
// Template, pieces, ids; see prompt.h.
#include "engine/service/prompt.h"

#include <string>

namespace pn::engine {

namespace {

bool starts_with_bos(const std::vector<chat::Piece>& pieces, const std::string& bos) {
  return !bos.empty() && !pieces.empty() && pieces.front().trusted &&
         pieces.front().text.compare(0, bos.size(), bos) == 0;
}

}  // namespace

Result<std::vector<int32_t>> chat_prompt(const chat::Template& format,
                                         const tok::Tokenizer& tokenizer,
                                         const ChatPrompt& prompt) {
  chat::RenderInput input;
  input.messages = prompt.messages;
  input.enable_thinking = prompt.enable_thinking;
  input.extra = prompt.extra;
  input.bos_token = tokenizer.bos() >= 0 ? tokenizer.piece(tokenizer.bos(), true) : "";
  input.eos_token = tokenizer.eos() >= 0 ? tokenizer.piece(tokenizer.eos(), true) : "";
  PN_TRY(const std::vector<chat::Piece> pieces, format.render(input));
  std::vector<tok::Tokenizer::Part> parts;
  parts.reserve(pieces.size());
  for (const chat::Piece& piece : pieces) parts.push_back({piece.text, piece.trusted});
  std::vector<int32_t> ids = tokenizer.encode(parts, !starts_with_bos(pieces, input.bos_token));
  // An EOS of the vocabulary's own would end the conversation before the answer.
  if (!ids.empty() && tokenizer.add_eos() && ids.back() == tokenizer.eos()) ids.pop_back();
  if (ids.empty())
    return fail(Code::invalid,
                "the template renders these messages to an empty prompt: say something",
                "messages");
  return ids;
}

}  // namespace pn::engine
