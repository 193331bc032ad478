// SPDX-License-Identifier: Apache-2.0
//
// The types whose insides this build knows, to and from F32.
//
// Owns the reference decoding that verification, evaluation and every backend's tests compare with,
// and an encoding that is good enough for test files. Knows no tensor and no device. The one idea:
// scalar code that follows the format's formula element by element; speed is the kernels' business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "hal/host/result.h"

namespace pn::quant {

// GGUF numbers of the types below.
enum Type : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

std::span<const uint32_t> decodable_types();
bool decodable(uint32_t type);

// "type MXFP4 of tensor 'x' is known to the format, but this build cannot run it: ...": the words
// for a type that a file may hold and nothing here can decode.
Error undecodable(uint32_t type, const std::string& tensor);

// Decodes `count` elements, a multiple of the type's block, from `row` (any alignment).
Result<void> dequantise(uint32_t type, const std::byte* row, std::span<float> out);

// Encodes a row by least and greatest value of each block; no error search.
Result<void> quantise(uint32_t type, std::span<const float> in, std::byte* row);

}  // namespace pn::quant
