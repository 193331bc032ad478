// SPDX-License-Identifier: Apache-2.0
//
// Keys of the file -> tokenizer, template, defaults. Owns the fallbacks: ChatML where there is no
// template, our sampling defaults where the file's cannot be read.
#include "engine/service/words.h"

#include "models/gguf/vocabulary.h"

namespace pn::engine {
namespace {

Result<SamplingParams> sampling_defaults(const gguf::File& file) {
  SamplingParams p;
  PN_TRY(p.temperature, file.f32("general.sampling.temp", p.temperature));
  PN_TRY(p.top_p, file.f32("general.sampling.top_p", p.top_p));
  PN_TRY(p.min_p, file.f32("general.sampling.min_p", p.min_p));
  PN_TRY(p.top_k, file.u32("general.sampling.top_k", p.top_k));
  PN_TRY(p.repeat_penalty, file.f32("general.sampling.penalty_repeat", p.repeat_penalty));
  PN_TRY(p.penalty_tokens, file.u32("general.sampling.penalty_last_n", p.penalty_tokens));
  return p;
}

}  // namespace

Result<std::unique_ptr<Words>> read_words(const gguf::File& file) {
  auto words = std::make_unique<Words>();
  PN_TRY(tok::Vocabulary vocabulary, gguf::read_vocabulary(file, &words->warnings));
  PN_TRY(words->tokenizer, tok::Tokenizer::create(std::move(vocabulary)));
  for (const std::string& line : words->tokenizer->warnings()) words->warnings.push_back(line);
  PN_TRY(std::string source, file.text("tokenizer.chat_template", chat::chatml_template()));
  Result<chat::Template> parsed = chat::Template::parse(std::move(source));
  if (parsed) {
    words->chat = std::move(*parsed);
  } else {
    words->chat_error = parsed.error().message;
  }
  Result<SamplingParams> sampling = sampling_defaults(file);
  if (sampling) {
    words->sampling = std::move(*sampling);
  } else {
    words->warnings.push_back(sampling.error().message + "; our sampling defaults are used");
  }
  return words;
}

}  // namespace pn::engine
