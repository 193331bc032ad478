// SPDX-License-Identifier: Apache-2.0
//
// The buckets that a copy's program is compiled for.
#pragma once

#include <pantheon/plan.h>

#include <cstdint>
#include <vector>

namespace pn::engine {

// Smallest first: decode steps of 1, 2, 4 ... lanes tokens; a mixed step of a chunk beside
// decoders; a prompt chunk of 512. The last two shrink with a tiny context.
std::vector<pn_shape> step_shapes(uint32_t lanes, uint32_t context);

}  // namespace pn::engine
