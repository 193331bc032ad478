// SPDX-License-Identifier: Apache-2.0
//
// SentencePiece's BPE (`tokenizer.ggml.model` = llama): characters, joined as long as the pair is a
// token, the highest score first; what is no token becomes bytes.
//
// Owns spaces as U+2581 and the space in front. It must not know special tokens: control, unknown
// and byte tokens never come out of their spelling.
#pragma once

#include <memory>

#include "models/tokenizer/algorithm.h"
#include "models/tokenizer/vocabulary.h"

namespace pn::tok {

// The value of "<0xHH>", or -1.
int byte_token_value(std::string_view token);

class Spm : public Algorithm {
 public:
  // `ids` outlives the result; the vocabulary has checked types and scores. unk -1: what has no
  // token is dropped.
  struct Options {
    bool add_space_prefix = true;
    int32_t unk = -1;
  };
  Spm(const Vocabulary& vocabulary, const TokenIds& ids, Options options);

  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  void append_piece(std::string_view token, std::string& out) const override;

 private:
  uint32_t find(std::string_view text) const;

  const TokenIds& ids_;
  Options options_;
  size_t longest_ = 0;  // bytes of the longest token
  std::vector<uint32_t>
      keys_;               // (n_vocab) scores as ascending keys, or Node::kNone: never from text
  int32_t byte_ids_[256];  // -1: none
};

}  // namespace pn::tok
