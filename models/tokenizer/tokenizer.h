// SPDX-License-Identifier: Apache-2.0
//
// Text -> token ids -> bytes, for the vocabulary of one model.
//
// Owns the rules around the two algorithms (spm.h, bpe.h): which special tokens are cut out of the
// text, where BOS and EOS go, which ids end a generation, what a token looks like as bytes. It must
// not know about templates, requests or sampling. The one idea: what may turn into a control token
// is said per range of the text, and nothing else about the borders of these ranges matters.
//
// Immutable after create(): every call is const, thread-safe and allocates only its result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hal/host/result.h"
#include "models/tokenizer/vocabulary.h"

namespace pn::tok {

class Algorithm;      // algorithm.h; spm.h, bpe.h
class SpecialTokens;  // special.h
struct PreTokenizer;  // pretokenize.h

class Tokenizer {
 public:
  // A range of the text. Control tokens are cut only where parse_special is set: set it for what a
  // template wrote, never for what a user wrote.
  struct Part {
    std::string_view text;
    bool parse_special = false;
  };

  // Refuses by name a model or pre-tokenizer that is not known here, and vocabularies that
  // contradict themselves (sizes, merges, types).
  static Result<std::unique_ptr<Tokenizer>> create(Vocabulary vocabulary);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  // Parts are one text: words run across their borders as if there were none. User-defined tokens
  // are cut everywhere, control tokens only inside parse_special ranges. Bytes that are not UTF-8
  // count as U+FFFD. add_special puts BOS in front and EOS behind where the vocabulary wants them;
  // empty text gives no other token; 1 GiB is the most. A BOS that the text itself holds is not
  // taken into account: pass add_special = false for a template that writes its own.
  std::vector<int32_t> encode(std::span<const Part> parts, bool add_special) const;
  std::vector<int32_t> encode(std::string_view text, bool parse_special, bool add_special) const;

  // The raw bytes of one token, which need not be whole characters. Control and unknown tokens are
  // empty unless render_special. An id outside the vocabulary is empty.
  std::string piece(int32_t id, bool render_special) const;

  // The bytes of all tokens; with SPM one leading space goes, where encode() would have added it.
  // May hold unfinished UTF-8: stream.h gives text.
  std::string decode(std::span<const int32_t> ids, bool render_special) const;

  bool is_eog(int32_t id) const;      // ends a generation; its text is not shown
  bool is_control(int32_t id) const;  // control or unknown: not text of its own
  bool is_byte(int32_t id) const;     // one byte, spelled "<0xHH>"
  std::vector<int32_t> eog_ids() const;

  int32_t bos() const { return bos_; }  // -1: none
  int32_t eos() const { return eos_; }
  int32_t eot() const { return eot_; }
  int32_t unk() const { return unk_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  bool add_space_prefix() const { return add_space_prefix_; }
  int size() const { return static_cast<int>(vocabulary_.tokens.size()); }

  // By the text as the vocabulary spells it: "<|im_end|>", "\u0120the" (BPE, a space), "\u2581the"
  // (SPM, too).
  std::optional<int32_t> find(std::string_view token_text) const;
  // As given, but: merges are gone, types are filled and corrected, ids out of range are absent.
  const Vocabulary& vocabulary() const { return vocabulary_; }

  // What was odd in the file and how it was read; for the log, once per load.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Tokenizer();
  bool spm() const { return pre_ == nullptr; }
  TokenType type(int32_t id) const { return TokenType(vocabulary_.types[size_t(id)]); }
  Result<void> check_types();
  Result<void> check();  // sizes and types, which are filled where absent
  void take_ids();       // bos, eos, ... and the add_* switches, with their defaults
  void find_eog();       // eog.cc
  Result<void> build();  // special tokens and the algorithm

  Vocabulary vocabulary_;
  std::unordered_map<std::string_view, int32_t> ids_;  // token text -> lowest id
  const PreTokenizer* pre_ = nullptr;                  // of BPE
  std::vector<bool> eog_;                              // (n_vocab)
  std::vector<bool> always_render_;  // (n_vocab) control tokens that are text in the output
  int32_t bos_ = -1, eos_ = -1, eot_ = -1, unk_ = -1;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
  std::vector<std::string> warnings_;
  std::unique_ptr<SpecialTokens> special_;
  std::unique_ptr<Algorithm> algorithm_;
};

}  // namespace pn::tok
