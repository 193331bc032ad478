// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer keys of a GGUF file as a tok::Vocabulary.
//
// Owns the key names and their checks. Knows no tokenizer rule: absent keys stay absent. The one
// idea: lists that must be as long as the token list are, and ids that a file gets wrong are
// dropped with a warning, never used.
#pragma once

#include <string>
#include <vector>

#include "hal/host/result.h"
#include "models/gguf/file.h"
#include "models/tokenizer/vocabulary.h"

namespace pn::gguf {

// Unsupported when the file has no tokenizer (model "none", or no key). *warnings, when given,
// grows by one line for each special id outside the vocabulary.
Result<tok::Vocabulary> read_vocabulary(const File& file,
                                        std::vector<std::string>* warnings = nullptr);

}  // namespace pn::gguf
