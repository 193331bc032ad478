// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding over the GPT-2 byte alphabet (`tokenizer.ggml.model` = gpt2).
//
// Owns the byte alphabet and the ranked merges as a hash table over numbered symbols. It must not
// know special tokens: what is control never comes out, whatever the merges say.
#pragma once

#include <memory>

#include "hal/host/result.h"
#include "models/tokenizer/algorithm.h"
#include "models/tokenizer/pretokenize.h"
#include "models/tokenizer/vocabulary.h"

namespace pn::tok {

struct BpeScratch;

class Bpe : public Algorithm {
 public:
  // `ids` outlives the result; `vocabulary.merges` is not needed afterwards.
  static Result<std::unique_ptr<Bpe>> create(const Vocabulary& vocabulary, const TokenIds& ids,
                                             const PreTokenizer& pre);

  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  void append_piece(std::string_view token, std::string& out) const override;

 private:
  struct Merge {
    uint64_t pair = UINT64_MAX;  // left symbol << 32 | right symbol
    Pair result;                 // its rank, and the symbol it becomes
  };

  Bpe(const Vocabulary& vocabulary, const TokenIds& ids, const PreTokenizer& pre);
  Result<void> read_merges(const std::vector<std::string>& merges);
  void insert(const Merge& merge);
  Pair find(uint32_t left, uint32_t right) const;
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void emit(uint32_t symbol, std::string_view bytes, std::vector<int32_t>& out) const;

  const TokenIds& ids_;
  const PreTokenizer& pre_;
  uint32_t n_vocab_;
  std::vector<bool> usable_;   // (n_vocab) may come out of plain text
  uint32_t byte_symbol_[256];  // below n_vocab a token, else a symbol that is none
  std::vector<Merge> merges_;  // open addressing, a power of two
};

}  // namespace pn::tok
