// SPDX-License-Identifier: Apache-2.0
//
// Builds SPM and byte-level BPE vocabularies of any size.
//
// Owns the letters, their order, and the two chat templates. Knows no weights.
#include "tests/support/vocabularies.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>
#include <vector>

namespace pn::test {
namespace {

// By falling frequency in English, so that short tokens are useful ones.
constexpr std::string_view kLetters = "etaoinshrdlcumwfgypbvkjxqz";
constexpr const char* kSpm = "\u2581";  // what SPM writes for a space
constexpr const char* kBpe = "\u0120";  // what byte-level BPE writes for a space

struct Grown {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
};

// `count` tokens of two and more pieces: each is an earlier token (or a start) and one letter.
Grown grow(const std::string& space, uint32_t count) {
  std::vector<std::string> level = {space};
  for (char c : kLetters) level.emplace_back(1, c);
  Grown g;
  while (g.tokens.size() < count) {
    std::vector<std::string> next;
    for (const std::string& left : level)
      for (char c : kLetters) {
        if (g.tokens.size() == count) return g;
        g.merges.push_back(left + " " + c);
        g.tokens.push_back(left + c);
        next.push_back(left + c);
      }
    level = std::move(next);
  }
  return g;
}

// The alphabet of byte-level BPE: printable bytes stand for themselves, the rest for U+0100 up.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> out;
  uint32_t other = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    uint32_t c = plain ? b : other++;
    std::string text;
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += static_cast<char>(0xc0 | c >> 6);
      text += static_cast<char>(0x80 | (c & 63));
    }
    out.push_back(text);
  }
  return out;
}

void spm(GgufWriter& w, uint32_t size) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(fmt::format("<0x{:02X}>", b));
    types.push_back(6);
  }
  size_t singles = tokens.size();
  tokens.emplace_back(kSpm);
  for (char c = 0x21; c < 0x7f; ++c) tokens.emplace_back(1, c);
  for (std::string& t : grow(kSpm, size - static_cast<uint32_t>(tokens.size())).tokens)
    tokens.push_back(std::move(t));
  types.resize(tokens.size(), 1);
  std::vector<float> scores(tokens.size(), 0);
  for (size_t i = singles; i < scores.size(); ++i) scores[i] = -static_cast<float>(i - singles);
  w.text("tokenizer.ggml.model", "llama").text("tokenizer.ggml.pre", "default");
  w.texts("tokenizer.ggml.tokens", tokens).f32s("tokenizer.ggml.scores", scores);
  w.i32s("tokenizer.ggml.token_type", types);
  w.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
  w.u32("tokenizer.ggml.unknown_token_id", 0);
  w.boolean("tokenizer.ggml.add_bos_token", true);
}

void bpe(GgufWriter& w, uint32_t size, const std::string& pre) {
  const std::vector<std::string> special = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<std::string> tokens = byte_alphabet();
  Grown grown = grow(kBpe, size - static_cast<uint32_t>(tokens.size() + special.size()));
  for (std::string& t : grown.tokens) tokens.push_back(std::move(t));
  std::vector<int32_t> types(tokens.size(), 1);
  for (const std::string& s : special) {
    tokens.push_back(s);
    types.push_back(3);
  }
  w.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  w.texts("tokenizer.ggml.tokens", tokens).i32s("tokenizer.ggml.token_type", types);
  w.texts("tokenizer.ggml.merges", grown.merges);
  w.u32("tokenizer.ggml.bos_token_id", size - 3).u32("tokenizer.ggml.eos_token_id", size - 1);
  w.boolean("tokenizer.ggml.add_bos_token", false);
}

constexpr const char* kSpmTemplate =
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}] "
    "{{ message['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

constexpr const char* kBpeTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

}  // namespace

void add_vocabulary(GgufWriter& writer, VocabularyKind kind, uint32_t size, const std::string& pre,
                    bool chat_template) {
  if (kind == VocabularyKind::none) return;
  if (kind == VocabularyKind::spm) spm(writer, size);
  if (kind == VocabularyKind::bpe) bpe(writer, size, pre);
  if (chat_template)
    writer.text("tokenizer.chat_template",
                kind == VocabularyKind::spm ? kSpmTemplate : kBpeTemplate);
}

}  // namespace pn::test
