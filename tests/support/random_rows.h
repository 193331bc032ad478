// SPDX-License-Identifier: Apache-2.0
//
// Random weight rows at memory speed.
//
// Owns a pool of encoded random blocks. Knows types and widths, no tensor. The one idea: a row is
// copied together from random places of the pool, so millions of distinct rows (equal ones would
// tie in the logits) cost no arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace pn::test {

// SplitMix64: equal on every machine.
struct Random {
  uint64_t state = 0;
  uint64_t next();
  float uniform();  // [0, 1)
  float normal();   // sum of four uniforms, variance 1
};

// Rows of `width` elements of `type`, deviation `sigma`; any width that is a multiple of the block.
// The function may outlive everything but needs no lock: use it from one thread.
GgufWriter::Rows random_rows(uint32_t type, uint64_t width, float sigma, uint64_t seed);

// F32 values mean + sigma * normal.
std::vector<float> random_values(size_t count, float mean, float sigma, uint64_t seed);

}  // namespace pn::test
