// SPDX-License-Identifier: Apache-2.0
//
// The table of names, and the splitting in turns: matches and the gaps between them are both
// pieces, and the next rule sees one piece at a time.
#include "models/tokenizer/pretokenize.h"

#include <algorithm>

#include "models/tokenizer/pretokenize_rules.h"
#include "models/tokenizer/utf8.h"

namespace pn::tok {
namespace {

constexpr Rule kGpt2[] = {rule_gpt2};
constexpr Rule kLlama3[] = {rule_llama3};
constexpr Rule kQwen2[] = {rule_qwen2};
constexpr Rule kQwen35[] = {rule_qwen35};
constexpr Rule kSmollm[] = {rule_digit, rule_gpt2};
constexpr Rule kMinicpm5[] = {rule_digits3, rule_minicpm5};
constexpr Rule kTekken[] = {rule_tekken};
constexpr Rule kGpt4o[] = {rule_gpt4o};
constexpr Rule kFalcon[] = {rule_punct_backtick, rule_gpt2, rule_ascii_digits3};
constexpr Rule kDefault[] = {rule_punct, rule_gpt2, rule_digits, rule_ascii_digits3};

constexpr PreTokenizer kKnown[] = {
    {.names = "llama-bpe llama3 llama-v3 falcon3 pixtral lfm2",
     .rules = kLlama3,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "qwen2 deepseek-r1-qwen", .rules = kQwen2},
    {.names = "qwen35", .rules = kQwen35},
    {.names = "gpt-2 mpt olmo phi-2 jais exaone4", .rules = kGpt2},
    {.names = "smollm starcoder refact command-r codeshell", .rules = kSmollm},
    {.names = "minicpm5", .rules = kMinicpm5, .ignore_merges = true},
    {.names = "tekken", .rules = kTekken, .ignore_merges = true, .add_bos = true},
    {.names = "gpt-4o llama4 kanana2", .rules = kGpt4o},
    {.names = "falcon", .rules = kFalcon},
    {.names = "default", .rules = kDefault, .degraded = true},
};

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    size_t space = std::min(list.find(' '), list.size());
    if (list.substr(0, space) == word) return true;
    list.remove_prefix(std::min(space + 1, list.size()));
  }
  return false;
}

// Splits the piece that ends at c.end and begins at `from`; appends the ends of what comes out.
void apply(Rule rule, const Chars& c, size_t from, std::vector<uint32_t>& ends) {
  size_t gap = from;
  for (size_t at = from; at < c.end;) {
    size_t to = rule(c, at);
    if (to == at) {
      at++;
      continue;
    }
    if (gap < at) ends.push_back(uint32_t(at));
    ends.push_back(uint32_t(to));
    gap = at = to;
  }
  if (gap < c.end) ends.push_back(uint32_t(c.end));
}

}  // namespace

const PreTokenizer* PreTokenizer::find(std::string_view name) {
  // A file without the key says nothing about its rules, which is what "default" means.
  if (name.empty()) name = "default";
  for (const PreTokenizer& p : kKnown) {
    if (has_word(p.names, name)) return &p;
  }
  return nullptr;
}

std::string PreTokenizer::known_names() {
  std::string out;
  for (const PreTokenizer& p : kKnown) {
    if (!out.empty()) out += ' ';
    out += p.names;
  }
  return out;
}

void PreTokenizer::split(std::string_view text, std::vector<uint32_t>& ends) const {
  std::vector<char32_t> points;
  std::vector<CharClass> classes;
  std::vector<uint32_t> offsets;  // (code points + 1) in bytes
  points.reserve(text.size());
  classes.reserve(text.size());
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    Utf8Step step = utf8_step(text.substr(at));
    offsets.push_back(uint32_t(at));
    points.push_back(step.point);
    classes.push_back(char_class(step.point));
    at += step.bytes;
  }
  offsets.push_back(uint32_t(text.size()));

  std::vector<uint32_t> pieces = {uint32_t(points.size())}, next;
  if (points.empty()) pieces.clear();
  for (Rule rule : rules) {
    next.clear();
    size_t from = 0;
    for (uint32_t end : pieces) {
      apply(rule, Chars{points.data(), classes.data(), end}, from, next);
      from = end;
    }
    pieces.swap(next);
  }
  for (uint32_t end : pieces) ends.push_back(offsets[end]);
}

}  // namespace pn::tok
