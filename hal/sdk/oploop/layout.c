/* SPDX-License-Identifier: MIT
 *
 * The op-loop: pantheon.layout/1. One layout, the file's own bytes: a tile is a row, converting is
 * copying, decoding is the format's formula. So a mapped file can be used in place.
 */
#include <stdio.h>
#include <string.h>

#include "loop.h"

#define LAYOUT_SOURCE 0u

int loop_reads(uint32_t type) {
  for (uint32_t i = 0; i < loop_backend->type_count; ++i)
    if (loop_backend->types[i] == type) return pn_loop_row_bytes(type, 256) != 0;
  return 0;
}

static const char* type_name(uint32_t type) {
  switch (type) {
    case 0:
      return "f32";
    case 1:
      return "f16";
    case 2:
      return "q4_0";
    case 8:
      return "q8_0";
    case 12:
      return "q4_K";
    case 13:
      return "q5_K";
    case 14:
      return "q6_K";
    default:
      return "bf16";
  }
}

static pn_status describe(const pn_weight* from, pn_layout_choice* out, pn_error* err) {
  pn_weight w;
  if (from == NULL) return pn_loop_fail(err, PN_INVALID, "layout: the weight is NULL");
  if (!pn_read(&w, sizeof w, from, sizeof w))
    return pn_loop_fail(err, PN_UNSUPPORTED, "pn_weight says something newer");
  for (uint32_t k = 0; k < 4; ++k)
    if (w.shape[k] < 1 || w.shape[k] > (int64_t)1 << 32)
      return pn_loop_fail(err, PN_INVALID, "layout: a dimension of %lld", (long long)w.shape[k]);
  if (w.role > PN_ROLE_ADAPTER_B)
    return pn_loop_fail(err, PN_INVALID, "layout: role %u is unknown", w.role);
  int matrix = w.role <= PN_ROLE_EXPERTS;
  if (matrix ? !loop_reads(w.source_type) : w.source_type != PN_TYPE_F32)
    return pn_loop_fail(err, PN_UNSUPPORTED,
                        matrix ? "layout: type %u is not read by the %s plugin"
                               : "layout: type %u; vectors are F32 for the %s plugin",
                        w.source_type, loop_backend->name);
  uint64_t bytes = pn_loop_row_bytes(w.source_type, (uint64_t)w.shape[0]);
  if (bytes == 0)
    return pn_loop_fail(err, PN_UNSUPPORTED, "layout: rows of %lld are no whole blocks of type %u",
                        (long long)w.shape[0], w.source_type);
  *out = (pn_layout_choice){.struct_size = sizeof *out,
                            .loss = PN_LOSS_NONE,
                            .layout = LAYOUT_SOURCE,
                            .tile_count = (uint64_t)(w.shape[1] * w.shape[2] * w.shape[3]),
                            .tile_bytes = bytes,
                            .alignment = 64,
                            .flags = 1,
                            .speed = 1};
  snprintf(out->name, sizeof out->name, "gguf.%s/1", type_name(w.source_type));
  snprintf((char*)out->fingerprint, sizeof out->fingerprint, "gguf.%s/1", type_name(w.source_type));
  return PN_OK;
}

static pn_status rank(const pn_weight* weight, uint64_t target, uint32_t* count,
                      pn_layout_choice* choices, pn_error* err) {
  pn_layout_choice choice;
  (void)target; /* the bytes depend on no chip */
  if (count == NULL) return pn_loop_fail(err, PN_INVALID, "layout.rank: count is NULL");
  pn_status status = describe(weight, &choice, err);
  if (status != PN_OK) return status;
  uint32_t room = *count;
  *count = 1;
  if (room != 0 && choices != NULL) pn_write(choices, &choice, sizeof choice);
  return PN_OK;
}

static pn_status range(const pn_weight* weight, uint64_t layout, uint64_t first, uint64_t count,
                       pn_layout_choice* choice, pn_error* err) {
  pn_status status = describe(weight, choice, err);
  if (status != PN_OK) return status;
  if (layout != LAYOUT_SOURCE)
    return pn_loop_fail(err, PN_INVALID, "layout %#llx is unknown: 0 is offered",
                        (unsigned long long)layout);
  if (first > choice->tile_count || count > choice->tile_count - first)
    return pn_loop_fail(err, PN_INVALID, "layout: tiles %llu + %llu of %llu",
                        (unsigned long long)first, (unsigned long long)count,
                        (unsigned long long)choice->tile_count);
  return PN_OK;
}

static pn_status convert(const pn_weight* weight, uint64_t target, uint64_t layout,
                         const void* source, void* out, uint64_t first, uint64_t count,
                         pn_error* err) {
  pn_layout_choice choice;
  (void)target;
  pn_status status = range(weight, layout, first, count, &choice, err);
  if (status != PN_OK) return status;
  if (source == NULL || out == NULL)
    return pn_loop_fail(err, PN_INVALID, "layout.convert: source or out is NULL");
  memcpy(out, (const char*)source + first * choice.tile_bytes, count * choice.tile_bytes);
  return PN_OK;
}

static pn_status decode(const pn_weight* weight, uint64_t target, uint64_t layout, const void* in,
                        float* out, uint64_t first, uint64_t count, pn_error* err) {
  pn_layout_choice choice;
  (void)target;
  pn_status status = range(weight, layout, first, count, &choice, err);
  if (status != PN_OK) return status;
  if (in == NULL || out == NULL)
    return pn_loop_fail(err, PN_INVALID, "layout.decode: in or out is NULL");
  uint64_t width = (uint64_t)weight->shape[0];
  for (uint64_t row = 0; row < count; ++row)
    pn_loop_decode(weight->source_type, (const char*)in + row * choice.tile_bytes, width,
                   out + row * width);
  return PN_OK;
}

static pn_status targets(uint32_t* count, pn_pair* pairs, pn_error* err) {
  if (count == NULL) return pn_loop_fail(err, PN_INVALID, "layout.targets: count is NULL");
  uint32_t room = *count;
  *count = 1;
  if (room != 0 && pairs != NULL) pairs[0] = (pn_pair){"any", "0"};
  return PN_OK;
}

const pn_layout_api loop_layout = {sizeof loop_layout, 0, rank, convert, decode, targets};
