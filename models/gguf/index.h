// SPDX-License-Identifier: Apache-2.0
//
// Lookup by name in a File.
//
// Owns two hash tables over strings that the File owns; built once, after its vectors have stopped
// growing. Knows nothing else.
#pragma once

#include <string_view>
#include <unordered_map>

#include "models/gguf/file.h"

namespace pn::gguf {

struct File::Index {
  std::unordered_map<std::string_view, uint32_t> keys;     // -> metadata()
  std::unordered_map<std::string_view, uint32_t> tensors;  // -> tensors()
};

}  // namespace pn::gguf
