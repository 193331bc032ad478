// SPDX-License-Identifier: Apache-2.0
//
// See sizes.h. Block sizes are those of GGUF, whose numbers the element types carry.
#include "hal/proxy/sizes.h"

#include <algorithm>
#include <iterator>

namespace pn::proxy {

namespace {

struct Block {
  uint32_t elements, bytes;
};
constexpr Block kBlocks[] = {
    {1, 4},    {1, 2},    {32, 18},  {32, 20},   {0, 0},     {0, 0},     {32, 22},   {32, 24},
    {32, 34},  {32, 36},  {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}, {256, 292},
    {256, 66}, {256, 74}, {256, 98}, {256, 50},  {32, 18},   {256, 110}, {256, 82},  {256, 136},
    {1, 1},    {1, 2},    {1, 4},    {1, 8},     {1, 8},     {256, 56},  {1, 2},     {0, 0},
    {0, 0},    {0, 0},    {256, 54}, {256, 66},  {0, 0},     {0, 0},     {0, 0},     {32, 17},
    {64, 36},  {128, 18}, {64, 18}};

}  // namespace

uint64_t source_bytes(const pn_weight& w) {
  if (w.source_type >= std::size(kBlocks) || kBlocks[w.source_type].elements == 0) return 0;
  const Block& block = kBlocks[w.source_type];
  uint64_t elements = 1;
  for (const int64_t n : w.shape) elements *= static_cast<uint64_t>(std::max<int64_t>(n, 0));
  return elements / block.elements * block.bytes;
}

uint64_t decoded_floats(const pn_weight& w, uint64_t tile_count, uint64_t first, uint64_t count) {
  const auto size = [&w](int i) { return static_cast<uint64_t>(std::max<int64_t>(w.shape[i], 1)); };
  const uint64_t rows = size(1), parts = size(2) * size(3);
  const uint64_t part_tiles = std::max<uint64_t>(tile_count / parts, 1);
  const uint64_t tile_rows = (rows + part_tiles - 1) / part_tiles;
  uint64_t sum = 0;
  for (uint64_t tile = first; tile < first + count; ++tile) {
    const uint64_t begin = std::min(rows, tile % part_tiles * tile_rows);
    sum += std::min(tile_rows, rows - begin);
  }
  return sum * size(0);
}

}  // namespace pn::proxy
