// SPDX-License-Identifier: Apache-2.0
//
// From a tensor table to bytes in the image.
//
// Owns sizes, bounds, gaps and overlaps. Knows nothing of how the table was read. The one idea: a
// table that fits a longer file is a cut download, one that fits no file is damage.
#pragma once

#include "models/gguf/parse.h"

namespace pn::gguf {

struct Placement {
  std::span<const std::byte> image;
  const std::string& name;
  uint64_t table_end = 0;  // first byte behind the tensor table
  uint32_t alignment = 0;
};

// Fills Tensor::bytes; every type is known by now.
Result<void> measure(const std::string& name, std::vector<Tensor>& tensors);

// Turns offsets into places in the image; *incomplete when more bytes would help.
Result<void> place(const Placement& at, Parsed* parsed, bool* incomplete);

}  // namespace pn::gguf
