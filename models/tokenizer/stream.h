// SPDX-License-Identifier: Apache-2.0
//
// Token ids -> text, one id at a time: what a client may be shown, as soon as it may be shown.
//
// Owns the bytes between the last token and the last complete character, and the text that may yet
// become a stop string. It must not know about requests or finish reasons. The one idea: what was
// emitted is never taken back, so text waits exactly as long as it could still be the beginning of
// a stop string or of a character, and no longer.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace pn::tok {

class TextStream {
 public:
  // Where the output stands. With SPM the first word of a text has a space in front that encode()
  // put there: it belongs to the text when the output goes on with a prompt, and does not when
  // the output is a text of its own (then all pushes together equal Tokenizer::decode).
  enum class Start { continues, fresh };

  struct Options {
    Start start = Start::continues;
    bool render_special = false;  // show control tokens, but never one that ends the generation
  };

  struct Out {
    std::string text;      // valid UTF-8, never a part of a stop string
    bool stopped = false;  // a stop string was met; it and what follows are dropped
    std::string stop;      // which one, when stopped
  };

  // Empty stop strings are ignored: the caller refuses them. The stop string that is complete first
  // wins, and of those that are complete at the same place the one that begins first; so the result
  // does not depend on how the text is cut into tokens. The tokenizer must outlive this.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : TextStream(tokenizer, std::move(stops), Options{}) {}
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops, Options options);

  Out push(int32_t id);
  // The end without a stop string: gives what was held back; an unfinished character becomes
  // U+FFFD.
  Out finish();

 private:
  void take_bytes(bool at_end);  // bytes_ -> text_
  Out advance(bool at_end);      // text_ -> Out
  size_t held_back() const;      // bytes at the end of text_ that may become a stop string

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::string bytes_;  // of an unfinished character, at most 3
  std::string text_;   // complete characters that were not emitted
  bool render_special_;
  bool at_start_;  // a leading space is still to be dropped
  bool stopped_ = false;
};

}  // namespace pn::tok
