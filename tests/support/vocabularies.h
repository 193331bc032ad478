// SPDX-License-Identifier: Apache-2.0
//
// Made-up vocabularies that really tokenise.
//
// Owns the `tokenizer.*` keys of test models. Knows no weights. The one idea: every longer token is
// a shorter token and one more letter, so merges lead to it and any size can be filled.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/gguf_writer.h"

namespace pn::test {

enum class VocabularyKind { none, spm, bpe };

// Least sizes: 512 for spm and for bpe. The chat template uses the kind's own markers.
void add_vocabulary(GgufWriter& writer, VocabularyKind kind, uint32_t size, const std::string& pre,
                    bool chat_template);

}  // namespace pn::test
