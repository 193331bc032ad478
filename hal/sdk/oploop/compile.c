/* SPDX-License-Identifier: MIT
 *
 * The op-loop: from ops to a place for every row. Never fails: what cannot be done is in the spans.
 *
 * Slots that live at different times share bytes, so the scratch of a deep model is that of one
 * layer. In scratch: the batch block, the slots, then the working rows of the op that runs.
 */
#include <stdio.h>
#include <string.h>

#include "loop.h"

static uint64_t round64(uint64_t n) { return (n + 63) / 64 * 64; }

static uint64_t slot_bytes(const struct loop_program* p, const struct loop_slot* s) {
  uint32_t rows = s->info.rows == PN_ROWS_TOKENS ? p->tokens : p->rows;
  return s->stride * sizeof(float) * (rows == 0 ? 1 : rows);
}

static int in_scratch(const struct loop_slot* s) {
  return s->info.kind == PN_SLOT_INTERNAL && s->first != LOOP_ANY;
}

/* The lowest place where slot i meets no earlier one that lives at the same time. */
static void place(struct loop_program* p, uint32_t i, uint64_t base) {
  struct loop_slot* s = &p->slots[i];
  uint64_t size = slot_bytes(p, s), at = base;
  for (int moved = 1; moved;) {
    moved = 0;
    for (uint32_t k = 0; k < i; ++k) {
      const struct loop_slot* other = &p->slots[k];
      if (!in_scratch(other) || other->first > s->last || s->first > other->last) continue;
      uint64_t end = other->offset + slot_bytes(p, other);
      if (at + size <= other->offset || end <= at) continue;
      at = end;
      moved = 1;
    }
  }
  s->offset = at;
}

static uint32_t element_bytes(uint32_t type) { return type == PN_TYPE_F16 ? 2 : 4; }

static void close_caches(struct loop_program* p) {
  for (uint32_t i = 0; i < p->cache_count; ++i) {
    struct loop_cache* c = &p->caches[i];
    uint32_t bytes = element_bytes(c->info.key_type);
    uint64_t at = 0;
    for (uint32_t l = 0; l < c->info.layers; ++l) {
      struct loop_layer* layer = &c->layers[l];
      uint64_t rows = (uint64_t)layer->heads * c->info.unit_tokens;
      layer->keys = at;
      at += round64(rows * layer->key_dim * bytes);
      layer->values = at;
      at += round64(rows * layer->value_dim * bytes);
    }
    c->unit_bytes = at == 0 ? 64 : at;
  }
}

/* What the arrays of one step may take together: a full step, and room beside it for one lane's
 * whole table and history, which a prefix that is used again needs. */
static uint64_t step_bytes(const struct loop_program* p) {
  uint64_t bytes = (uint64_t)p->tokens * 4 + (uint64_t)p->entries * sizeof(pn_entry) +
                   (uint64_t)p->rows * sizeof(pn_row) + (uint64_t)p->lanes * sizeof(pn_lane) +
                   (uint64_t)p->context * 4;
  for (uint32_t i = 0; i < p->cache_count; ++i)
    bytes += (uint64_t)p->caches[i].info.units_per_lane * sizeof(pn_pages) * 2;
  bytes = (bytes + (64 << 10)) / 4096 * 4096;
  return bytes < LOOP_STEP_BYTES ? bytes : LOOP_STEP_BYTES;
}

void loop_compile(struct loop_program* p) {
  uint64_t work = 0;
  p->unsupported = LOOP_ANY;
  for (uint32_t i = 0; i < p->op_count; ++i) {
    pn_span* span = &p->spans[i];
    char reason[104] = {0};
    uint64_t bytes = loop_check_op(p, i, reason);
    *span = (pn_span){.struct_size = sizeof *span,
                      .granularity = PN_SPAN_OP,
                      .first_op = i,
                      .op_count = 1,
                      .accumulate_type = PN_TYPE_F32,
                      .numerics = loop_backend->numerics};
    if (bytes != LOOP_UNSUPPORTED) {
      if (bytes > work) work = bytes;
      continue;
    }
    span->granularity = PN_SPAN_UNSUPPORTED;
    span->numerics = 0;
    snprintf(span->reason, sizeof span->reason, "%s: %.88s", loop_op_name(p->ops[i].op.op), reason);
    if (p->unsupported == LOOP_ANY) p->unsupported = i;
  }
  close_caches(p);
  uint64_t base = round64(p->batch_bytes), end = base;
  for (uint32_t i = 0; i < p->slot_count; ++i) {
    struct loop_slot* s = &p->slots[i];
    s->stride = s->info.kind == PN_SLOT_INTERNAL ? (s->floats + 15u) / 16 * 16 : s->info.width;
    if (!in_scratch(s)) continue;
    place(p, i, base);
    if (s->offset + slot_bytes(p, s) > end) end = s->offset + slot_bytes(p, s);
  }
  p->work_at = round64(end);
  p->scratch_bytes = p->work_at + work + 64;
  p->step_bytes_max = step_bytes(p);
}
