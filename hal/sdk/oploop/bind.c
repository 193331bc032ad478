/* SPDX-License-Identifier: MIT
 *
 * The op-loop: bindings become addresses. Each is checked for its size, heap and alignment, and
 * nothing that the plan needs may be missing.
 */
#include <stdio.h>

#include "loop.h"

static uint64_t weight_bytes(const struct loop_weight* w) {
  if (w->info.source_type == PN_TYPE_F32)
    return w->matrix.cols * w->matrix.rows * w->matrix.experts * sizeof(float);
  return w->matrix.row_bytes * w->matrix.rows * w->matrix.experts;
}

static char* slice_of(struct loop_program* p, const pn_binding* b, struct loop_need* need,
                      pn_error* err) {
  char what[32];
  snprintf(what, sizeof what, "%s %u", need->what, b->index);
  need->what = what;
  need->device = p->device;
  return loop_slice(b->slice, need, err);
}

static pn_status take_weight(struct loop_program* p, const pn_binding* b, pn_error* err) {
  if (b->index >= p->weight_count)
    return pn_loop_fail(err, PN_INVALID, "binding of weight %u of %u", b->index, p->weight_count);
  struct loop_weight* w = &p->weights[b->index];
  uint32_t parts = w->matrix.experts;
  if (b->first_part != 0 || (b->part_count != 0 && b->part_count != parts))
    return pn_loop_fail(err, b->first_part + b->part_count > parts ? PN_INVALID : PN_UNSUPPORTED,
                        "weight %u: parts %u + %u; all %u in one slice are offered", b->index,
                        b->first_part, b->part_count, parts);
  struct loop_need need = {.what = "weight", .bytes = weight_bytes(w), .flags = PN_HEAP_BINDS};
  w->matrix.at = slice_of(p, b, &need, err);
  return w->matrix.at == NULL ? PN_INVALID : PN_OK;
}

static pn_status take_slot(struct loop_program* p, const pn_binding* b, pn_error* err) {
  if (b->index >= p->slot_count || p->slots[b->index].info.kind == PN_SLOT_INTERNAL)
    return pn_loop_fail(err, PN_INVALID, "binding of slot %u, which is no input or output",
                        b->index);
  struct loop_slot* s = &p->slots[b->index];
  uint64_t rows = s->info.rows == PN_ROWS_TOKENS ? p->tokens : p->rows;
  struct loop_need need = {.what = "slot", .bytes = rows * s->info.width * sizeof(float)};
  s->bound = slice_of(p, b, &need, err);
  return s->bound == NULL ? PN_INVALID : PN_OK;
}

static pn_status take_cache(struct loop_program* p, const pn_binding* b, pn_error* err) {
  if (b->index >= p->cache_count)
    return pn_loop_fail(err, PN_INVALID, "binding of cache %u of %u", b->index, p->cache_count);
  struct loop_cache* c = &p->caches[b->index];
  struct loop_need need = {.what = "cache", .bytes = c->unit_bytes};
  c->base = slice_of(p, b, &need, err);
  c->units = b->slice.bytes / c->unit_bytes;
  return c->base == NULL ? PN_INVALID : PN_OK;
}

static pn_status take_plain(struct loop_program* p, const pn_binding* b, pn_error* err) {
  int ids = b->kind == PN_BIND_IDS;
  struct loop_need need = {
      .what = ids ? "ids" : "scratch",
      .bytes = ids ? (uint64_t)p->lanes * p->ids_depth * sizeof(int32_t) : p->scratch_bytes};
  char* at = slice_of(p, b, &need, err);
  *(ids ? &p->ids : &p->scratch) = at;
  return at == NULL ? PN_INVALID : PN_OK;
}

static pn_status missing(const struct loop_program* p, pn_error* err) {
  for (uint32_t i = 0; i < p->weight_count; ++i)
    if (p->weights[i].matrix.at == NULL)
      return pn_loop_fail(err, PN_INVALID, "weight %u (role %u, layer %u) is not bound", i,
                          p->weights[i].info.role, p->weights[i].info.layer);
  for (uint32_t i = 0; i < p->slot_count; ++i)
    if (p->slots[i].info.kind != PN_SLOT_INTERNAL && p->slots[i].bound == NULL)
      return pn_loop_fail(err, PN_INVALID, "slot %u is not bound", i);
  for (uint32_t i = 0; i < p->cache_count; ++i)
    if (p->caches[i].base == NULL) return pn_loop_fail(err, PN_INVALID, "cache %u is not bound", i);
  if (p->scratch == NULL) return pn_loop_fail(err, PN_INVALID, "scratch is not bound");
  if ((p->embeds || p->emits) && p->ids == NULL)
    return pn_loop_fail(err, PN_INVALID, "ids are not bound");
  return PN_OK;
}

pn_status loop_bind(struct loop_program* p, uint32_t count, const pn_binding* list, pn_error* err) {
  if (count != 0 && list == NULL)
    return pn_loop_fail(err, PN_INVALID, "program_create: the bindings are NULL");
  for (uint32_t i = 0; i < count; ++i) {
    const pn_binding* b = &list[i];
    pn_status status;
    switch (b->kind) {
      case PN_BIND_WEIGHT:
        status = take_weight(p, b, err);
        break;
      case PN_BIND_SLOT:
        status = take_slot(p, b, err);
        break;
      case PN_BIND_CACHE:
        status = take_cache(p, b, err);
        break;
      case PN_BIND_SCRATCH:
      case PN_BIND_IDS:
        status = take_plain(p, b, err);
        break;
      default:
        status = pn_loop_fail(err, PN_INVALID, "binding kind %u is unknown", b->kind);
    }
    if (status != PN_OK) return status;
  }
  return missing(p, err);
}
