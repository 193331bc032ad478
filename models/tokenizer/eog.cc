// SPDX-License-Identifier: Apache-2.0
//
// Which tokens end a generation. Files name one or two; models emit others of their family, and a
// missed one means an answer that never ends. So the spellings of all known families count, where
// the vocabulary has them.
#include "models/tokenizer/tokenizer.h"

namespace pn::tok {
namespace {

struct Ending {
  std::string_view text;
  bool ends_turn = false;  // may stand in for a missing eot_token_id
  // Could be ordinary text, so it counts only where the file does not call it a normal token.
  bool plain = false;
};

constexpr Ending kEndings[] = {
    {"<|eot_id|>", true},
    {"<|im_end|>", true},
    {"<|end|>", true},
    {"<end_of_turn>", true},
    {"<|endoftext|>", true},
    {"<|end_of_text|>", true},
    {"<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
     true},
    {"<end_of_utterance>", true},
    {"<turn|>", true},
    {"<EOT>", true, true},
    {"[EOT]", true, true},
    {"<|return|>"},
    {"<|call|>"},
    {"<|flush|>"},
    {"<|calls|>"},
    {"<|eom_id|>"},
    {"<|tool_response>"},
    {"<|fim_pad|>"},
    {"<|repo_name|>"},
    {"<|file_sep|>"},
    {"</s>", false, true},
    {"[EOS]", false, true},
    {"<eos>", false, true},
};

}  // namespace

void Tokenizer::find_eog() {
  const Vocabulary& v = vocabulary_;
  eog_.assign(v.tokens.size(), false);
  always_render_.assign(v.tokens.size(), false);
  eot_ = v.eot.value_or(-1);
  for (const Ending& ending : kEndings) {
    auto found = find(ending.text);
    if (!found) continue;
    int32_t& kind = vocabulary_.types[size_t(*found)];
    if (kind == int32_t(TokenType::normal)) {
      if (ending.plain) continue;
      warnings_.push_back("token " + std::string(ending.text) +
                          " ends a generation but is typed as normal text: taken as control");
      kind = int32_t(TokenType::control);
    }
    eog_[size_t(*found)] = true;
    if (eot_ < 0 && ending.ends_turn) eot_ = *found;
  }
  for (const auto& id : {v.eos, v.eot, v.eom, v.fim_pad, v.fim_rep, v.fim_sep}) {
    if (id) eog_[size_t(*id)] = true;
  }

  // Harmony: <|end|> closes a message of several, and the channel marks are part of the answer.
  auto end = find("<|end|>");
  if (end && find("<|return|>") && find("<|call|>")) {
    eog_[size_t(*end)] = false;
    for (const char* text : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
      if (auto id = find(text)) always_render_[size_t(*id)] = true;
    }
    if (eot_ == *end && !v.eot) eot_ = find("<|return|>").value_or(-1);
  }
  auto old_end = find("</s>");
  if (old_end && find("<|tool_response>")) eog_[size_t(*old_end)] = false;
}

}  // namespace pn::tok
