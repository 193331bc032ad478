// SPDX-License-Identifier: Apache-2.0
//
// Reads a vocabulary with suspicion, then wires special tokens and the algorithm together.
//
// Model files are untrusted and often sloppy: what contradicts itself is refused, what is merely
// missing gets the default that its family has, and what is odd is a warning.
#include "models/tokenizer/tokenizer.h"

#include <cmath>

#include "models/tokenizer/bpe.h"
#include "models/tokenizer/pretokenize.h"
#include "models/tokenizer/special.h"
#include "models/tokenizer/spm.h"
#include "models/tokenizer/utf8.h"

namespace pn::tok {
namespace {

// The text of all parts, repaired, and where control tokens may be cut.
struct Joined {
  std::string text;
  std::vector<SpecialTokens::Range> allowed;
};

Joined join(std::span<const Tokenizer::Part> parts) {
  Joined out;
  std::vector<size_t> borders;  // begin, end, begin, end ... of the allowed ranges
  for (const Tokenizer::Part& part : parts) {
    size_t begin = out.text.size();
    out.text += part.text;
    if (!part.parse_special || part.text.empty()) continue;
    if (!borders.empty() && borders.back() == begin) {
      borders.back() = out.text.size();  // neighbours are one range
    } else {
      borders.insert(borders.end(), {begin, out.text.size()});
    }
  }
  if (!is_utf8(out.text)) out.text = repair_utf8(out.text, borders);
  for (size_t i = 0; i < borders.size(); i += 2)
    out.allowed.push_back({borders[i], borders[i + 1]});
  return out;
}

// Whether BPE has anything to merge: a normal token of more than one character.
bool has_words(const Vocabulary& v) {
  for (size_t i = 0; i < v.tokens.size(); i++) {
    if (i < v.types.size() && TokenType(v.types[i]) != TokenType::normal) continue;
    if (!v.tokens[i].empty() && utf8_step(v.tokens[i]).bytes < v.tokens[i].size()) return true;
  }
  return false;
}

std::string count_of(size_t n, const char* what) { return std::to_string(n) + " " + what; }

}  // namespace

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocabulary vocabulary) {
  std::unique_ptr<Tokenizer> out(new Tokenizer);
  out->vocabulary_ = std::move(vocabulary);
  PN_TRY(out->check());
  for (size_t id = 0; id < out->vocabulary_.tokens.size(); id++) {
    out->ids_.emplace(out->vocabulary_.tokens[id], int32_t(id));
  }
  out->take_ids();
  out->find_eog();
  PN_TRY(out->build());
  return out;
}

std::vector<int32_t> Tokenizer::encode(std::span<const Part> parts, bool add_special) const {
  Joined joined = join(parts);
  std::vector<int32_t> out;
  if (add_special && add_bos_ && bos_ >= 0) out.push_back(bos_);
  for (const SpecialTokens::Fragment& fragment : special_->cut(joined.text, joined.allowed)) {
    if (fragment.id >= 0) {
      out.push_back(fragment.id);
    } else {
      algorithm_->encode(fragment.text, out);
    }
  }
  if (add_special && add_eos_ && eos_ >= 0) out.push_back(eos_);
  return out;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special,
                                       bool add_special) const {
  Part part{text, parse_special};
  return encode(std::span<const Part>(&part, 1), add_special);
}

std::string Tokenizer::piece(int32_t id, bool render_special) const {
  std::string out;
  if (id < 0 || id >= size()) return out;
  const std::string& token = vocabulary_.tokens[size_t(id)];
  bool hidden = is_control(id) || is_eog(id);
  if (hidden) return render_special || always_render_[size_t(id)] ? token : out;
  if (type(id) == TokenType::user_defined) return token;
  if (is_byte(id)) return std::string(1, char(byte_token_value(token)));
  algorithm_->append_piece(token, out);
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool render_special) const {
  std::string out;
  bool at_start = add_space_prefix_;
  for (int32_t id : ids) {
    std::string bytes = piece(id, render_special);
    // What encode() put there is a space before the first plain text; special tokens may precede
    // it.
    bool special = is_control(id) || is_eog(id);
    if (at_start && !special && !bytes.empty()) {
      if (bytes[0] == ' ') bytes.erase(0, 1);
      at_start = false;
    }
    out += bytes;
  }
  return out;
}

bool Tokenizer::is_eog(int32_t id) const { return id >= 0 && id < size() && eog_[size_t(id)]; }

bool Tokenizer::is_control(int32_t id) const {
  if (id < 0 || id >= size()) return false;
  return type(id) == TokenType::control || type(id) == TokenType::unknown;
}

bool Tokenizer::is_byte(int32_t id) const {
  return id >= 0 && id < size() && type(id) == TokenType::byte;
}

std::vector<int32_t> Tokenizer::eog_ids() const {
  std::vector<int32_t> out;
  for (int32_t id = 0; id < size(); id++) {
    if (eog_[size_t(id)]) out.push_back(id);
  }
  return out;
}

std::optional<int32_t> Tokenizer::find(std::string_view token_text) const {
  auto it = ids_.find(token_text);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

Result<void> Tokenizer::check() {
  Vocabulary& v = vocabulary_;
  if (v.model != "llama" && v.model != "gpt2") {
    return fail(
        Code::unsupported,
        "tokenizer.ggml.model is \"" + v.model +
            "\"; this build has \"llama\" (SentencePiece) and \"gpt2\" (byte-pair encoding)",
        "tokenizer.ggml.model");
  }
  if (v.model == "gpt2") {
    pre_ = PreTokenizer::find(v.pre);
    if (pre_ == nullptr) {
      return fail(Code::unsupported,
                  "tokenizer.ggml.pre is \"" + v.pre +
                      "\", whose rules are not known, and others would cut words wrongly; known: " +
                      PreTokenizer::known_names(),
                  "tokenizer.ggml.pre");
    }
    if (pre_->degraded) {
      warnings_.push_back("tokenizer.ggml.pre is \"" + v.pre +
                          "\": the file does not say how words are split, quality may be degraded");
    }
  }
  size_t n = v.tokens.size();
  if (n == 0 || n > INT32_MAX) {
    return fail(Code::invalid, "tokenizer.ggml.tokens has " + count_of(n, "tokens"),
                "tokenizer.ggml.tokens");
  }
  if (!spm() && v.merges.empty() && has_words(v)) {
    return fail(Code::invalid,
                "tokenizer.ggml.merges is missing or empty: without it every text would fall apart "
                "into bytes; convert the model again",
                "tokenizer.ggml.merges");
  }
  if ((spm() || !v.scores.empty()) && v.scores.size() < n) {
    return fail(Code::invalid,
                "tokenizer.ggml.scores has " + count_of(v.scores.size(), "entries for ") +
                    count_of(n, "tokens"),
                "tokenizer.ggml.scores");
  }
  for (size_t i = 0; i < n && spm(); i++) {
    if (std::isnan(v.scores[i])) {
      return fail(Code::invalid, "tokenizer.ggml.scores[" + std::to_string(i) + "] is no number",
                  "tokenizer.ggml.scores");
    }
  }
  return check_types();
}

Result<void> Tokenizer::check_types() {
  Vocabulary& v = vocabulary_;
  size_t n = v.tokens.size();
  if (v.types.empty()) {
    v.types.assign(n, int32_t(TokenType::normal));
    for (size_t i = 0; i < n && spm(); i++) {
      if (byte_token_value(v.tokens[i]) >= 0) v.types[i] = int32_t(TokenType::byte);
    }
  }
  if (v.types.size() < n) {
    return fail(Code::invalid,
                "tokenizer.ggml.token_type has " + count_of(v.types.size(), "entries for ") +
                    count_of(n, "tokens"),
                "tokenizer.ggml.token_type");
  }
  for (size_t i = 0; i < n; i++) {
    std::string at = "[" + std::to_string(i) + "]";
    if (v.types[i] == 0) v.types[i] = int32_t(TokenType::normal);  // "undefined" of old converters
    if (v.types[i] < 1 || v.types[i] > 6) {
      return fail(Code::invalid,
                  "tokenizer.ggml.token_type" + at + " is " + std::to_string(v.types[i]) +
                      "; 1 (normal) to 6 (byte) are known",
                  "tokenizer.ggml.token_type");
    }
    if (TokenType(v.types[i]) == TokenType::byte && byte_token_value(v.tokens[i]) < 0) {
      return fail(Code::invalid,
                  "tokenizer.ggml.tokens" + at + " is a byte token, but \"" + v.tokens[i] +
                      "\" is not spelled <0xHH>",
                  "tokenizer.ggml.tokens");
    }
  }
  return {};
}

void Tokenizer::take_ids() {
  Vocabulary& v = vocabulary_;
  auto keep = [&](std::optional<int32_t>& id, const char* key) {
    if (id && *id >= size()) {
      warnings_.push_back(std::string("tokenizer.ggml.") + key + " is " + std::to_string(*id) +
                          " of " + count_of(v.tokens.size(), "tokens") + ": ignored");
      id.reset();
    }
    if (id && *id < 0) id.reset();  // -1 is how files say "none"
  };
  // A default stands only where the key is absent: "none" and nonsense mean none.
  if (spm()) {
    if (!v.bos && size() > 1) v.bos = 1;
    if (!v.eos && size() > 2) v.eos = 2;
    if (!v.unk) v.unk = 0;
  } else if (size() > 11 && (type(11) == TokenType::control || v.tokens[11] == "<|endoftext|>")) {
    // 11 is Falcon's <|endoftext|>; elsewhere it is a comma, which must not end an answer.
    if (!v.bos) v.bos = 11;
    if (!v.eos) v.eos = 11;
  }
  keep(v.bos, "bos_token_id");
  keep(v.eos, "eos_token_id");
  keep(v.eot, "eot_token_id");
  keep(v.eom, "eom_token_id");
  keep(v.unk, "unknown_token_id");
  keep(v.sep, "seperator_token_id");
  keep(v.pad, "padding_token_id");
  keep(v.mask, "mask_token_id");
  keep(v.fim_pre, "fim_pre_token_id");
  keep(v.fim_suf, "fim_suf_token_id");
  keep(v.fim_mid, "fim_mid_token_id");
  keep(v.fim_pad, "fim_pad_token_id");
  keep(v.fim_rep, "fim_rep_token_id");
  keep(v.fim_sep, "fim_sep_token_id");
  size_t dropped = std::erase_if(v.suppress, [&](int32_t id) { return id < 0 || id >= size(); });
  if (dropped > 0) {
    warnings_.push_back("tokenizer.ggml.suppress_tokens names " +
                        count_of(dropped, "ids outside the vocabulary: ignored"));
  }
  bos_ = v.bos.value_or(-1);
  eos_ = v.eos.value_or(-1);
  unk_ = v.unk.value_or(-1);
  add_bos_ = v.add_bos.value_or(spm() || pre_->add_bos);
  add_eos_ = v.add_eos.value_or(false);
  add_space_prefix_ = spm() && v.add_space_prefix.value_or(true);
  if (add_bos_ && bos_ < 0) warnings_.push_back("a BOS token is wanted, but the file names none");
}

Result<void> Tokenizer::build() {
  Vocabulary& v = vocabulary_;
  special_ = std::make_unique<SpecialTokens>();
  for (int32_t id = 0; id < size(); id++) {
    bool anywhere = type(id) == TokenType::user_defined;
    if (anywhere || is_control(id)) special_->add(v.tokens[size_t(id)], id, anywhere);
  }
  special_->seal();
  if (spm()) {
    algorithm_ = std::make_unique<Spm>(v, ids_, Spm::Options{add_space_prefix_, unk_});
  } else {
    PN_TRY(algorithm_, Bpe::create(v, ids_, *pre_));
  }
  v.merges.clear();
  v.merges.shrink_to_fit();
  return {};
}

}  // namespace pn::tok
