// SPDX-License-Identifier: Apache-2.0
//
// From drawn ids to what a listener hears: text without stop strings, whole characters, log
// probabilities, one ending.
//
// Owns the text stream of one request and the tokens whose text is still held back. Knows no
// device. The one idea: a token is shown when the first byte of its text is, so tokens and text
// tell the same story when a stop string swallows some of both.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "engine/schedule/sequence.h"
#include "engine/service/generate.h"
#include "models/tokenizer/stream.h"

namespace pn::engine {

class Generation : public Sink {
 public:
  Generation(const tok::Tokenizer& tokenizer, const GenerateRequest& request, std::string die,
             std::shared_ptr<Listener> listener);

  bool token(const Drawn& drawn) override;
  void ended(const Ended& end) override;

 private:
  struct Held {
    TokenInfo info;
    size_t start;  // of its bytes, counted from the first token
  };
  TokenInfo info_of(const Drawn& drawn) const;
  void hand_over(std::string text, bool all_tokens);

  const tok::Tokenizer& tokenizer_;
  tok::TextStream stream_;
  std::shared_ptr<Listener> listener_;
  std::string die_;
  uint32_t prompt_tokens_;
  bool ignore_eos_;
  bool logprobs_;
  bool stopped_ = false;  // by a stop string
  std::string stop_match_;
  std::deque<Held> held_;
  size_t pushed_ = 0;   // bytes of all tokens
  size_t emitted_ = 0;  // bytes of text handed over
};

}  // namespace pn::engine
