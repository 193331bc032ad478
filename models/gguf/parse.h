// SPDX-License-Identifier: Apache-2.0
//
// One GGUF image in memory -> its metadata and tensor directory.
//
// Owns every check of a single file. Knows neither mappings nor split sets (reader.h). The one
// idea: nothing is read, allocated or multiplied before it is bounded by the bytes that are there.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/gguf/file.h"

namespace pn::gguf {

struct Parsed {
  uint32_t version = 0;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<Tensor> tensors;  // data points into the image
  std::vector<std::string> warnings;
};

// `name` opens each message. *incomplete tells a file that ends too early from a broken one.
Result<Parsed> parse(std::span<const std::byte> image, const std::string& name, bool* incomplete);

}  // namespace pn::gguf
