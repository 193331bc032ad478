// SPDX-License-Identifier: Apache-2.0
//
// Reads `tokenizer.ggml.*`.
//
// Owns the table of special-id keys, with the format's own spelling. Knows no tokenizer rule.
#include "models/gguf/vocabulary.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/gguf/text.h"

namespace pn::gguf {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

using Id = std::optional<int32_t> tok::Vocabulary::*;
using Flag = std::optional<bool> tok::Vocabulary::*;

constexpr std::pair<const char*, Id> kIds[] = {
    {"bos_token_id", &tok::Vocabulary::bos},
    {"eos_token_id", &tok::Vocabulary::eos},
    {"eot_token_id", &tok::Vocabulary::eot},
    {"eom_token_id", &tok::Vocabulary::eom},
    {"unknown_token_id", &tok::Vocabulary::unk},
    {"seperator_token_id", &tok::Vocabulary::sep},  // the format's spelling
    {"padding_token_id", &tok::Vocabulary::pad},
    {"mask_token_id", &tok::Vocabulary::mask},
    {"fim_pre_token_id", &tok::Vocabulary::fim_pre},
    {"fim_suf_token_id", &tok::Vocabulary::fim_suf},
    {"fim_mid_token_id", &tok::Vocabulary::fim_mid},
    {"fim_pad_token_id", &tok::Vocabulary::fim_pad},
    {"fim_rep_token_id", &tok::Vocabulary::fim_rep},
    {"fim_sep_token_id", &tok::Vocabulary::fim_sep},
};

constexpr std::pair<const char*, Flag> kFlags[] = {
    {"add_bos_token", &tok::Vocabulary::add_bos},
    {"add_eos_token", &tok::Vocabulary::add_eos},
    {"add_sep_token", &tok::Vocabulary::add_sep},
    {"add_space_prefix", &tok::Vocabulary::add_space_prefix},
    {"remove_extra_whitespaces", &tok::Vocabulary::remove_extra_whitespaces},
};

class VocabularyReader {
 public:
  VocabularyReader(const File& file, std::vector<std::string>* warnings)
      : file_(file), warnings_(warnings) {}

  Result<tok::Vocabulary> run() {
    tok::Vocabulary v;
    PN_TRY(v.model, file_.text(key("model"), "none"));
    if (v.model == "none" || v.model == "no_vocab")
      return fail(Code::unsupported,
                  path() +
                      ": has no tokenizer ('tokenizer.ggml.model' is absent or says none): "
                      "only token ids can be given",
                  key("model"));
    PN_TRY(v.pre, file_.text(key("pre"), ""));
    PN_TRY(v.tokens, strings("tokens"));
    if (v.tokens.empty())
      return bad("tokens", "is missing or empty: the model cannot read text; convert it again");
    PN_TRY(v.merges, strings("merges"));
    PN_TRY(v.scores, numbers<float>("scores"));
    PN_TRY(v.types, numbers<int32_t>("token_type"));
    PN_TRY(same_length("scores", v.scores.size(), v.tokens.size()));
    PN_TRY(same_length("token_type", v.types.size(), v.tokens.size()));
    for (auto [name, member] : kIds) {
      PN_TRY(v.*member, id(name, v.tokens.size()));
    }
    for (auto [name, member] : kFlags) {
      if (file_.find(key(name)) == nullptr) continue;
      PN_TRY(v.*member, file_.boolean(key(name), false));
    }
    PN_TRY(auto suppress, numbers<int32_t>("suppress_tokens"));
    for (int32_t token : suppress) {
      if (token >= 0 && static_cast<size_t>(token) < v.tokens.size())
        v.suppress.push_back(token);
      else
        warn("suppress_tokens", token, v.tokens.size());
    }
    return v;
  }

 private:
  static std::string key(const char* name) { return std::string(kPrefix) + name; }
  const std::string& path() const { return file_.shards()[0].path; }

  tl::unexpected<Error> bad(const char* name, const std::string& what) const {
    return fail(Code::invalid, fmt::format("{}: key '{}' {}", path(), key(name), what), key(name));
  }

  void warn(const char* name, int64_t found, size_t tokens) const {
    if (warnings_ == nullptr) return;
    warnings_->push_back(fmt::format("{}: key '{}' names token {}, the vocabulary has {}: ignored",
                                     path(), key(name), found, tokens));
  }

  // Absent: empty. An empty array of any type is an empty list.
  Result<std::vector<std::string>> strings(const char* name) const {
    const Value* value = file_.find(key(name));
    if (value == nullptr) return std::vector<std::string>{};
    const auto* array = std::get_if<Array>(value);
    const auto* items = array ? std::get_if<std::vector<std::string>>(array) : nullptr;
    if (items == nullptr) return bad(name, "must be an array of texts and is not");
    return *items;
  }

  template <typename T>
  Result<std::vector<T>> numbers(const char* name) const {
    std::vector<T> out;
    const Value* value = file_.find(key(name));
    if (value == nullptr) return out;
    const auto* array = std::get_if<Array>(value);
    if (array == nullptr || std::holds_alternative<std::vector<std::string>>(*array))
      return bad(name, "must be an array of numbers and is not");
    bool fits = std::visit(
        [&](const auto& items) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(items)>, std::vector<std::string>>) {
            out.reserve(items.size());
            for (auto x : items) {
              if (!in_range<T>(x)) return false;
              out.push_back(static_cast<T>(x));
            }
          }
          return true;
        },
        *array);
    if (!fits) return bad(name, "holds a number that is not possible there");
    return out;
  }

  template <typename T, typename From>
  static bool in_range(From x) {
    if constexpr (std::is_floating_point_v<T>)
      return !std::isnan(static_cast<double>(x));
    else if constexpr (std::is_floating_point_v<From>)
      return false;  // ids and types are whole numbers
    else
      return std::in_range<T>(x);
  }

  Result<void> same_length(const char* name, size_t found, size_t tokens) const {
    if (found == 0 || found == tokens) return {};
    return bad(name, fmt::format("has {} elements for {} tokens: the file is damaged, download or "
                                 "convert it again",
                                 found, tokens));
  }

  Result<std::optional<int32_t>> id(const char* name, size_t tokens) const {
    const Value* value = file_.find(key(name));
    if (value == nullptr) return std::optional<int32_t>{};
    int64_t found = -1;
    if (const auto* u = std::get_if<uint64_t>(value))
      found = std::in_range<int64_t>(*u) ? static_cast<int64_t>(*u) : -1;
    else if (const auto* i = std::get_if<int64_t>(value))
      found = *i;
    else
      return bad(name, "must be a whole number and is not");
    if (found >= 0 && static_cast<uint64_t>(found) < tokens)
      return std::optional<int32_t>(static_cast<int32_t>(found));
    // -1, in either width, is how writers say "none".
    if (found != -1 && found != 0xffffffff) warn(name, found, tokens);
    return std::optional<int32_t>{};
  }

  const File& file_;
  std::vector<std::string>* warnings_;
};

}  // namespace

Result<tok::Vocabulary> read_vocabulary(const File& file, std::vector<std::string>* warnings) {
  return VocabularyReader(file, warnings).run();
}

}  // namespace pn::gguf
