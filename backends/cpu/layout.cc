// SPDX-License-Identifier: Apache-2.0
//
// Ranks, converts and decodes weights. See layout.h.
//
// Matrices, tables and expert stacks have one layout a type, the tiles of kernels/matmul.h; vectors
// and rope tables stay as they are. Nothing here depends on the instruction set, so an offline file
// made on one machine serves another.
#include "backends/cpu/layout.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backends/cpu/error.h"
#include "backends/cpu/kernels/matmul.h"

namespace pn::cpu {
namespace {

constexpr uint64_t kTarget = 1;
constexpr uint64_t kLayoutBase = 0x63'70'75'01'00ull;  // "cpu", revision 1, then the type

struct TypeFacts {
  uint32_t type;
  const char* name;
  int64_t block;
};
constexpr TypeFacts kTypes[] = {{0, "f32", 1},     {1, "f16", 1},    {30, "bf16", 1},
                                {2, "q4_0", 32},   {3, "q4_1", 32},  {6, "q5_0", 32},
                                {7, "q5_1", 32},   {8, "q8_0", 32},  {12, "q4_K", 256},
                                {13, "q5_K", 256}, {14, "q6_K", 256}};

const TypeFacts* facts_of(uint32_t type) {
  for (const TypeFacts& facts : kTypes)
    if (facts.type == type) return &facts;
  return nullptr;
}

unsigned long long number(uint64_t v) { return v; }

bool is_tiled(uint32_t role) {
  return role == PN_ROLE_MATRIX || role == PN_ROLE_TABLE || role == PN_ROLE_TIED ||
         role == PN_ROLE_EXPERTS;
}

pn_status read_weight(const pn_weight* from, uint64_t target, pn_weight* out, pn_error* err) {
  if (from == nullptr) return fail(err, PN_INVALID, "layout: the weight is NULL");
  if (!pn_read(out, sizeof(*out), from, sizeof(*out)))
    return fail(err, PN_UNSUPPORTED, "pn_weight says something newer than this plugin knows");
  if (target != kTarget)
    return fail(err, PN_INVALID, "layout target %llu: the cpu plugin's is %llu", number(target),
                number(kTarget));
  for (int64_t n : out->shape)
    if (n < 1 || n > (int64_t{1} << 40))
      return fail(err, PN_INVALID, "layout: a dimension of %lld", static_cast<long long>(n));
  if (!is_tiled(out->role)) {
    if (out->role > PN_ROLE_ADAPTER_B)
      return fail(err, PN_UNSUPPORTED, "weight role %u is not known to the cpu plugin", out->role);
    if (out->source_type != PN_TYPE_F32)
      return fail(err, PN_UNSUPPORTED,
                  "a weight of role %u has type %u: vectors, rope tables and adapters must be F32",
                  out->role, out->source_type);
    return PN_OK;
  }
  const TypeFacts* facts = facts_of(out->source_type);
  if (facts == nullptr)
    return fail(err, PN_UNSUPPORTED,
                "type %u is not supported; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, "
                "Q5_K, Q6_K are",
                out->source_type);
  if (out->shape[0] % facts->block != 0)
    return fail(err, PN_INVALID, "a %s row of %lld columns: it must be a multiple of %lld",
                facts->name, static_cast<long long>(out->shape[0]),
                static_cast<long long>(facts->block));
  return PN_OK;
}

// Tiles of one expert (or of the whole matrix) and how many such parts there are.
struct Tiling {
  Matrix part;
  int64_t part_tiles = 0;
  int64_t parts = 0;
  uint64_t bytes = 0;         // of a tile
  uint64_t source_bytes = 0;  // of a part
};
Tiling tiling_of(const pn_weight& w) {
  Tiling t;
  t.part.type = w.source_type;
  t.part.cols = w.shape[0];
  t.part.rows = w.shape[1];
  t.part_tiles = tile_count(t.part.rows);
  t.parts = w.shape[2] * w.shape[3];
  t.bytes = tile_bytes(w.source_type, w.shape[0]);
  t.source_bytes = source_row_bytes(w.source_type, w.shape[0]) * static_cast<uint64_t>(w.shape[1]);
  return t;
}

void set_name(pn_layout_choice* choice, const char* name) {
  snprintf(choice->name, sizeof(choice->name), "%s", name);
  // The name says everything that decides the bytes, and fits.
  memcpy(choice->fingerprint, choice->name, sizeof(choice->fingerprint));
}

pn_status rank(const pn_weight* weight, uint64_t target, uint32_t* count, pn_layout_choice* out,
               pn_error* err) {
  pn_weight w = {};
  const pn_status status = read_weight(weight, target, &w, err);
  if (status != PN_OK) return status;
  if (count == nullptr) return fail(err, PN_INVALID, "layout.rank: count is NULL");
  const uint32_t room = *count;
  *count = 1;
  if (room == 0) return PN_OK;
  if (out == nullptr) return fail(err, PN_INVALID, "layout.rank: choices are NULL");
  pn_layout_choice choice = {};
  choice.struct_size = sizeof(choice);
  choice.loss = PN_LOSS_NONE;
  choice.alignment = 64;
  choice.speed = 1;
  if (is_tiled(w.role)) {
    const Tiling t = tiling_of(w);
    char name[64];
    snprintf(name, sizeof(name), "cpu.tile16.%s/1", type_name(w.source_type));
    set_name(&choice, name);
    choice.layout = tiled_layout(w.source_type);
    choice.tile_count = static_cast<uint64_t>(t.part_tiles * t.parts);
    choice.tile_bytes = t.bytes;
  } else {
    set_name(&choice, "gguf.f32/1");
    choice.alignment = 4;
    choice.flags = 1;
    choice.tile_bytes = static_cast<uint64_t>(w.shape[0]) * 4;
    choice.tile_count = static_cast<uint64_t>(w.shape[1] * w.shape[2] * w.shape[3]);
  }
  pn_write(out, &choice, sizeof(choice));
  return PN_OK;
}

pn_status check_range(const pn_weight& w, uint64_t layout, uint64_t first, uint64_t count,
                      pn_error* err) {
  const uint64_t want = is_tiled(w.role) ? tiled_layout(w.source_type) : 0;
  if (layout != want)
    return fail(err, PN_INVALID, "layout %#llx was asked for, this weight's is %#llx",
                number(layout), number(want));
  const uint64_t tiles =
      is_tiled(w.role) ? static_cast<uint64_t>(tile_count(w.shape[1]) * w.shape[2] * w.shape[3])
                       : static_cast<uint64_t>(w.shape[1] * w.shape[2] * w.shape[3]);
  if (first > tiles || count > tiles - first)
    return fail(err, PN_INVALID, "tiles %llu + %llu of %llu", number(first), number(count),
                number(tiles));
  return PN_OK;
}

pn_status convert(const pn_weight* weight, uint64_t target, uint64_t layout, const void* source,
                  void* out, uint64_t first, uint64_t count, pn_error* err) {
  pn_weight w = {};
  pn_status status = read_weight(weight, target, &w, err);
  if (status == PN_OK) status = check_range(w, layout, first, count, err);
  if (status != PN_OK) return status;
  if (source == nullptr || out == nullptr)
    return fail(err, PN_INVALID, "layout.convert: source or out is NULL");
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(out);
  if (!is_tiled(w.role)) {
    const uint64_t bytes = static_cast<uint64_t>(w.shape[0]) * 4;
    memcpy(to, from + first * bytes, count * bytes);
    return PN_OK;
  }
  const Tiling t = tiling_of(w);
  for (uint64_t done = 0; done < count;) {
    const auto tile = static_cast<int64_t>(first + done);
    const int64_t part = tile / t.part_tiles, inside = tile % t.part_tiles;
    const int64_t n = std::min<int64_t>(t.part_tiles - inside, static_cast<int64_t>(count - done));
    convert_tiles(t.part, from + static_cast<uint64_t>(part) * t.source_bytes, to + done * t.bytes,
                  inside, n);
    done += static_cast<uint64_t>(n);
  }
  return PN_OK;
}

pn_status decode(const pn_weight* weight, uint64_t target, uint64_t layout, const void* in,
                 float* out, uint64_t first, uint64_t count, pn_error* err) {
  pn_weight w = {};
  pn_status status = read_weight(weight, target, &w, err);
  if (status == PN_OK) status = check_range(w, layout, first, count, err);
  if (status != PN_OK) return status;
  if (in == nullptr || out == nullptr)
    return fail(err, PN_INVALID, "layout.decode: in or out is NULL");
  if (!is_tiled(w.role)) {
    memcpy(out, in, count * static_cast<uint64_t>(w.shape[0]) * 4);
    return PN_OK;
  }
  const Tiling t = tiling_of(w);
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t inside = static_cast<int64_t>(first + i) % t.part_tiles;
    Matrix tile = t.part;
    tile.tiles = static_cast<const std::byte*>(in) + i * t.bytes;
    tile.rows = std::min<int64_t>(kTileRows, t.part.rows - inside * kTileRows);
    for (int64_t r = 0; r < tile.rows; ++r, out += w.shape[0]) decode_row(tile, r, out);
  }
  return PN_OK;
}

pn_status targets(uint32_t* count, pn_pair* out, pn_error* err) {
  if (count == nullptr) return fail(err, PN_INVALID, "layout.targets: count is NULL");
  const uint32_t room = *count;
  *count = 1;
  if (room == 0) return PN_OK;
  if (out == nullptr) return fail(err, PN_INVALID, "layout.targets: pairs are NULL");
  out[0] = {"x86-64", "1"};
  return PN_OK;
}

}  // namespace

uint64_t tiled_layout(uint32_t type) {
  return facts_of(type) == nullptr ? 0 : kLayoutBase << 8 | type;
}

const char* type_name(uint32_t type) {
  const TypeFacts* facts = facts_of(type);
  return facts == nullptr ? nullptr : facts->name;
}

int64_t block_columns(uint32_t type) {
  const TypeFacts* facts = facts_of(type);
  return facts == nullptr ? 1 : facts->block;
}

const pn_layout_api* layout_api() {
  static const pn_layout_api api = {sizeof(pn_layout_api), 0, rank, convert, decode, targets};
  return &api;
}

}  // namespace pn::cpu
