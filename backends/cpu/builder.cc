// SPDX-License-Identifier: Apache-2.0
//
// The checks that ops share while they are built: slots, weights, caches, rope tables. See ops.h.
#include <cstdio>

#include "backends/cpu/layout.h"
#include "backends/cpu/ops.h"

namespace pn::cpu {
namespace {

long long number(int64_t v) { return v; }

const char* rows_name(uint32_t rows) { return rows == PN_ROWS_TOKENS ? "T" : "R"; }

}  // namespace

bool Builder::refuse(const char* format, ...) {
  if (reason[0] != 0) return false;
  va_list args;
  va_start(args, format);
  vsnprintf(reason, sizeof(reason), format, args);
  va_end(args);
  return false;
}

bool Builder::input(uint32_t k, int64_t width, uint32_t rows_kind) {
  const uint16_t s = op().op.in[k];
  if (s == PN_NO16) return refuse("in[%u] is missing", k);
  if (width != 0 && slot(s).width != width)
    return refuse("in[%u] is slot %u of width %u; %lld is needed", k, s, slot(s).width,
                  number(width));
  if (rows_kind != kAnyRows && slot(s).rows != rows_kind)
    return refuse("in[%u] is slot %u with %s rows; %s are needed", k, s, rows_name(slot(s).rows),
                  rows_name(rows_kind));
  reads.push_back(norms[s].folded ? norms[s].source : s);
  return true;
}

bool Builder::output(uint32_t k, int64_t width, uint32_t rows_kind) {
  const uint16_t s = op().op.out[k];
  if (s == PN_NO16) return refuse("out[%u] is missing", k);
  if (slot(s).kind == PN_SLOT_INPUT) return refuse("out[%u] is slot %u, an input", k, s);
  if (width != 0 && slot(s).width != width)
    return refuse("out[%u] is slot %u of width %u; %lld comes out", k, s, slot(s).width,
                  number(width));
  if (rows_kind != kAnyRows && slot(s).rows != rows_kind)
    return refuse("out[%u] is slot %u with %s rows; %s come out", k, s, rows_name(slot(s).rows),
                  rows_name(rows_kind));
  writes.push_back(s);
  return true;
}

bool Builder::nothing_else(uint32_t inputs, uint32_t outputs, uint32_t weights) {
  for (uint32_t k = inputs; k < 6; ++k)
    if (op().op.in[k] != PN_NO16) return refuse("in[%u] has no meaning here", k);
  for (uint32_t k = outputs; k < 2; ++k)
    if (op().op.out[k] != PN_NO16) return refuse("out[%u] has no meaning here", k);
  for (uint32_t k = weights; k < 8; ++k)
    if (op().op.weight[k] != PN_NO16) return refuse("weight[%u] has no meaning here", k);
  return true;
}

bool Builder::matrix(uint32_t k, int64_t cols, int64_t rows, const char* what, int64_t experts) {
  const uint16_t index_of = op().op.weight[k];
  if (index_of == PN_NO16) return refuse("weight[%u] (%s) is missing", k, what);
  const pn_weight& w = weight(index_of);
  const uint32_t role = experts > 1 ? PN_ROLE_EXPERTS : w.role;
  const bool tiled = w.role == PN_ROLE_MATRIX || w.role == PN_ROLE_TIED ||
                     w.role == PN_ROLE_TABLE || w.role == PN_ROLE_EXPERTS;
  if (!tiled || w.role != role)
    return refuse("%s: weight %u has role %u, which is no matrix here", what, index_of, w.role);
  if (!type_supported(w.source_type) || tiled_layout(w.source_type) == 0)
    return refuse("%s: weight %u has type %u, which the cpu plugin has no kernel for", what,
                  index_of, w.source_type);
  if (w.shape[0] != cols || w.shape[1] != rows || w.shape[2] != experts || w.shape[3] != 1)
    return refuse("%s: weight %u is {%lld, %lld, %lld}; {%lld, %lld, %lld} is needed", what,
                  index_of, number(w.shape[0]), number(w.shape[1]), number(w.shape[2]),
                  number(cols), number(rows), number(experts));
  if (w.layout != tiled_layout(w.source_type))
    return refuse("%s: weight %u has layout %#llx; cpu.tile16.%s/1 (%#llx) is offered", what,
                  index_of, static_cast<unsigned long long>(w.layout), type_name(w.source_type),
                  static_cast<unsigned long long>(tiled_layout(w.source_type)));
  if (w.adapter_a != PN_NO16 || w.adapter_b != PN_NO16)
    return refuse("%s: weight %u has adapters, which the cpu plugin cannot apply yet", what,
                  index_of);
  if (w.bias != PN_NO16 && !vector(w.bias, rows * experts, "bias")) return false;
  if (w.scale != PN_NO16 && !vector(w.scale, experts, "scale")) return false;
  return true;
}

bool Builder::vector(uint16_t w, int64_t n, const char* what) {
  if (w == PN_NO16) return refuse("%s is missing", what);
  const pn_weight& info = weight(w);
  if (info.source_type != PN_TYPE_F32 || info.layout != 0)
    return refuse("%s: weight %u must be F32 in its source layout", what, w);
  const int64_t have = info.shape[0] * info.shape[1] * info.shape[2] * info.shape[3];
  if (have != n)
    return refuse("%s: weight %u has %lld values; %lld are needed", what, w, number(have),
                  number(n));
  return true;
}

bool Builder::rope(uint16_t w, uint32_t dims, float magnitude, uint32_t* table) {
  const uint32_t pairs = dims / 2;
  if (dims == 0 || dims % 2 != 0) return refuse("rope_dims %u is not a positive even number", dims);
  if (!vector(w, pairs, "rope")) return false;
  for (uint32_t i = 0; i < ropes.size(); ++i)
    if (ropes[i].weight == w && ropes[i].magnitude == magnitude) return *table = i, true;
  *table = static_cast<uint32_t>(ropes.size());
  const uint64_t bytes = uint64_t{plan.tokens} * pairs * 2 * sizeof(float);
  ropes.push_back({w, magnitude, pairs, fixed.take(bytes)});
  return true;
}

bool Builder::cache_layer(uint32_t cache, uint32_t layer, bool append, const CacheLayer& want) {
  if (cache >= caches->size()) return refuse("cache %u of %zu", cache, caches->size());
  Cache& c = (*caches)[cache];
  if (c.info.kind != PN_CACHE_PAGED) return refuse("cache %u holds states, not pages", cache);
  if (c.key_bytes == 0 || c.value_bytes == 0)
    return refuse("cache %u: key type %u, value type %u; F32 (0) and F16 (1), alike, are offered",
                  cache, c.info.key_type, c.info.value_type);
  if (c.info.unit_tokens > 64 && c.info.unit_tokens % 64 != 0)
    return refuse("cache %u: pages of %u tokens; up to 64, or a multiple of 64", cache,
                  c.info.unit_tokens);
  if (layer >= c.layers.size())
    return refuse("layer %u of cache %u, which has %zu", layer, cache, c.layers.size());
  CacheLayer& have = c.layers[layer];
  if (have.heads == 0 && !append)
    return refuse("layer %u of cache %u: nothing before this op appends to it", layer, cache);
  if (have.heads == 0) have = want;
  if (have.heads != want.heads || have.key_dim != want.key_dim || have.value_dim != want.value_dim)
    return refuse("layer %u of cache %u holds %u heads of %u and %u, not %u of %u and %u", layer,
                  cache, have.heads, have.key_dim, have.value_dim, want.heads, want.key_dim,
                  want.value_dim);
  return true;
}

}  // namespace pn::cpu
