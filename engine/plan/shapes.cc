// SPDX-License-Identifier: Apache-2.0
//
// The bucket sizes and why. Knows no plugin: what a die would rather pad to is a constant here, and
// what it really does is in its report.
#include "engine/plan/shapes.h"

#include <algorithm>

#include "engine/schedule/copy.h"

namespace pn::engine {
namespace {

// Beyond this a step's time grows with its tokens on every die measured so far, and so would the
// scratch: 512 rows of a 1B model take 40 MiB.
constexpr uint32_t kPromptTokens = 512;
constexpr uint32_t kTile = 32;  // what tiled dies pad to

}  // namespace

std::vector<pn_shape> step_shapes(uint32_t lanes, uint32_t context) {
  std::vector<pn_shape> shapes;
  for (uint32_t n = 1; n < lanes; n *= 2) shapes.push_back({n, n, n, context});
  shapes.push_back({lanes, lanes, lanes, context});
  uint32_t most = std::max(std::min(kPromptTokens, context), lanes);
  uint32_t mixed = (kChunkBesideDecode + lanes + kTile - 1) / kTile * kTile;
  for (uint32_t tokens : {std::min(mixed, most), most}) {
    if (tokens > shapes.back().tokens) shapes.push_back({tokens, lanes, lanes, context});
  }
  return shapes;
}

}  // namespace pn::engine
