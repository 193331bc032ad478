/* SPDX-License-Identifier: MIT
 *
 * The op-loop: a step copied into a ring slot, with slices resolved to addresses.
 *
 * Everything that a step can have wrong by itself is refused here, by name, on the host's thread,
 * before anything of it runs. What depends on earlier steps (a page that was never given) is found
 * when it runs, in run.c.
 */
#include <math.h>
#include <string.h>

#include "loop.h"

void* loop_take(struct loop_arena* arena, uint64_t bytes) {
  uint64_t size = (bytes + 7) / 8 * 8;
  if (arena->at == NULL || size > (uint64_t)(arena->end - arena->at)) {
    arena->at = NULL; /* so that the last of several takes tells of all */
    return NULL;
  }
  char* at = arena->at;
  arena->at += size;
  return at;
}

struct resolver {
  struct loop_program* p;
  struct loop_step* out;
  const pn_shape* shape;
  const pn_step* from;
  int held; /* PN_CMD_SAMPLE: rows only, of entries of the last run */
  pn_error* err;
};

static void* copied(struct loop_arena* arena, const void* from, uint64_t bytes) {
  void* to = loop_take(arena, bytes);
  if (to != NULL && bytes != 0) memcpy(to, from, bytes);
  return to;
}

static pn_status copy_lists(struct resolver* r, struct loop_arena* arena) {
  const pn_step* s = r->from;
  struct loop_step* o = r->out;
  if ((s->token_count != 0 && s->tokens == NULL) || (s->lane_count != 0 && s->lanes == NULL) ||
      (s->page_count != 0 && s->pages == NULL) || (s->entry_count != 0 && s->entries == NULL) ||
      (s->row_count != 0 && s->rows == NULL))
    return pn_loop_fail(r->err, PN_INVALID, "a list of the step is NULL though it is not empty");
  uint64_t bytes = (uint64_t)s->token_count * 4 + (uint64_t)s->lane_count * sizeof(pn_lane) +
                   (uint64_t)s->page_count * sizeof(pn_pages) +
                   (uint64_t)s->entry_count * sizeof(pn_entry) +
                   (uint64_t)s->row_count * sizeof(pn_row);
  if (bytes > r->p->step_bytes_max)
    return pn_loop_fail(r->err, PN_INVALID,
                        "a step of %llu bytes; this program takes %llu: send more edits in runs "
                        "without entries",
                        (unsigned long long)bytes, (unsigned long long)r->p->step_bytes_max);
  o->token_count = s->token_count;
  o->lane_count = s->lane_count;
  o->page_count = s->page_count;
  o->entry_count = s->entry_count;
  o->row_count = s->row_count;
  o->tokens = copied(arena, s->tokens, (uint64_t)s->token_count * 4);
  o->pages = copied(arena, s->pages, s->page_count * sizeof(pn_pages));
  o->entries = copied(arena, s->entries, s->entry_count * sizeof(pn_entry));
  o->rows = copied(arena, s->rows, s->row_count * sizeof(pn_row));
  o->lanes = loop_take(arena, s->lane_count * sizeof(pn_lane));
  o->biases = loop_take(arena, s->lane_count * sizeof(char*));
  o->masks = loop_take(arena, s->row_count * sizeof(char*));
  o->targets = loop_take(arena, s->row_count * sizeof(char*));
  if (o->targets == NULL)
    return pn_loop_fail(r->err, PN_INVALID, "the steps of the submit are too long together");
  return PN_OK;
}

static int finite_and_fine(const pn_lane* l) {
  return l->temperature >= 0 && isfinite(l->temperature) && l->top_p >= 0 && l->min_p >= 0 &&
         l->repeat_penalty > 0 && isfinite(l->repeat_penalty) && isfinite(l->presence_penalty) &&
         isfinite(l->frequency_penalty);
}

static pn_status check_lane(struct resolver* r, uint32_t i) {
  pn_lane* l = &r->out->lanes[i];
  if (!pn_read(l, sizeof *l, PN_AT_CONST(pn_lane, r->from->lanes, i), sizeof *l))
    return pn_loop_fail(r->err, PN_UNSUPPORTED, "pn_lane %u says something newer", i);
  if (l->lane >= r->p->lanes)
    return pn_loop_fail(r->err, PN_INVALID, "lane edit %u: lane %u of %u", i, l->lane, r->p->lanes);
  if ((l->flags & ~PN_LANE_RESET) != 0 || l->reserved != 0)
    return pn_loop_fail(r->err, PN_INVALID, "lane edit %u: flags %#x, reserved %u", i, l->flags,
                        l->reserved);
  if (l->adapter != PN_NONE)
    return pn_loop_fail(r->err, PN_INVALID, "lane edit %u: adapter %u, the plan has none (PN_NONE)",
                        i, l->adapter);
  if (!finite_and_fine(l))
    return pn_loop_fail(r->err, PN_INVALID,
                        "lane edit %u: temperature %g, top_p %g, min_p %g, repeat_penalty %g: not "
                        "negative, repeat_penalty above 0, all finite",
                        i, (double)l->temperature, (double)l->top_p, (double)l->min_p,
                        (double)l->repeat_penalty);
  if ((uint64_t)l->history_token + l->history_count > r->from->token_count ||
      (uint64_t)l->history_position + l->history_count > r->p->context)
    return pn_loop_fail(r->err, PN_INVALID,
                        "lane edit %u: history of %u tokens from token %u of %u on, at position %u "
                        "of a context of %u",
                        i, l->history_count, l->history_token, r->from->token_count,
                        l->history_position, r->p->context);
  r->out->biases[i] = NULL;
  if (l->bias_count == 0) return PN_OK;
  struct loop_need need = {"bias", r->p->device, (uint64_t)l->bias_count * 8, PN_HEAP_BINDS, 4};
  r->out->biases[i] = loop_slice(l->bias, &need, r->err);
  return r->out->biases[i] == NULL ? PN_INVALID : PN_OK;
}

static pn_status check_page(struct resolver* r, uint32_t i) {
  const pn_pages* e = &r->out->pages[i];
  if (e->cache >= r->p->cache_count || r->p->caches[e->cache].tables == NULL)
    return pn_loop_fail(r->err, PN_INVALID, "page edit %u: cache %u is no paged cache of the plan",
                        i, e->cache);
  const struct loop_cache* c = &r->p->caches[e->cache];
  if (e->lane >= r->p->lanes || (uint64_t)e->index + e->count > c->info.units_per_lane ||
      (uint64_t)e->page + e->count > c->units || e->reserved != 0)
    return pn_loop_fail(r->err, PN_INVALID,
                        "page edit %u: lane %u of %u, entries %u + %u of a table of %u, pages %u + "
                        "%u of %llu, reserved %u",
                        i, e->lane, r->p->lanes, e->index, e->count, c->info.units_per_lane,
                        e->page, e->count, (unsigned long long)c->units, e->reserved);
  return PN_OK;
}

static pn_status check_tokens(struct resolver* r, uint32_t i) {
  const pn_entry* e = &r->out->entries[i];
  uint64_t end = (uint64_t)e->token + e->count;
  if ((e->flags & PN_ENTRY_FEED) != 0) {
    if (r->p->ids == NULL || end > r->p->ids_depth)
      return pn_loop_fail(r->err, PN_INVALID, "entry %u: feeds ids %u + %u of %u", i, e->token,
                          e->count, r->p->ids == NULL ? 0 : r->p->ids_depth);
    return PN_OK;
  }
  if (end > r->from->token_count)
    return pn_loop_fail(r->err, PN_INVALID, "entry %u: tokens %u + %u of %u", i, e->token, e->count,
                        r->from->token_count);
  for (uint64_t k = e->token; r->p->embeds && k < end; ++k)
    if ((uint32_t)r->out->tokens[k] >= r->p->table_rows)
      return pn_loop_fail(r->err, PN_INVALID, "entry %u: token %d, the table has %u rows", i,
                          r->out->tokens[k], r->p->table_rows);
  return PN_OK;
}

static pn_status check_entries(struct resolver* r) {
  uint64_t total = 0;
  if (r->out->entry_count > r->shape->entries || r->out->row_count > r->shape->rows)
    return pn_loop_fail(r->err, PN_INVALID, "%u entries and %u rows in a shape of %u and %u",
                        r->out->entry_count, r->out->row_count, r->shape->entries, r->shape->rows);
  for (uint32_t i = 0; i < r->out->entry_count; ++i) {
    const pn_entry* e = &r->out->entries[i];
    if (e->lane >= r->p->lanes)
      return pn_loop_fail(r->err, PN_INVALID, "entry %u: lane %u of %u", i, e->lane, r->p->lanes);
    if ((e->flags & ~PN_ENTRY_FEED) != 0)
      return pn_loop_fail(r->err, PN_INVALID, "entry %u: flags %#x", i, e->flags);
    for (uint32_t k = 0; k < i; ++k)
      if (r->out->entries[k].lane == e->lane)
        return pn_loop_fail(r->err, PN_INVALID, "entries %u and %u both advance lane %u", k, i,
                            e->lane);
    if (e->count == 0 || (uint64_t)e->position + e->count > r->shape->context)
      return pn_loop_fail(r->err, PN_INVALID,
                          "entry %u: %u tokens at position %u in a context of %u", i, e->count,
                          e->position, r->shape->context);
    total += e->count;
    pn_status status = check_tokens(r, i);
    if (status != PN_OK) return status;
  }
  if (total > r->shape->tokens)
    return pn_loop_fail(r->err, PN_INVALID, "%llu tokens in a shape of %u",
                        (unsigned long long)total, r->shape->tokens);
  return PN_OK;
}

static pn_status check_wishes(struct resolver* r, uint32_t i) {
  const struct loop_program* p = r->p;
  const pn_row* w = &r->out->rows[i];
  const uint32_t known = PN_ROW_SAMPLE | PN_ROW_HOLD | PN_ROW_LOGITS | PN_ROW_HIDDEN;
  if ((w->flags & ~known) != 0 || w->reserved != 0)
    return pn_loop_fail(r->err, PN_INVALID, "row %u: flags %#x, reserved %u", i, w->flags,
                        w->reserved);
  if ((w->flags & PN_ROW_HOLD) != 0 && (r->held || (w->flags & PN_ROW_SAMPLE) == 0))
    return pn_loop_fail(r->err, PN_INVALID, "row %u: HOLD goes with SAMPLE in a run", i);
  int logits = (w->flags & (PN_ROW_SAMPLE | PN_ROW_LOGITS)) != 0 || w->top != 0;
  if (logits && p->vocab == 0)
    return pn_loop_fail(r->err, PN_INVALID, "row %u asks for logits, which the plan does not emit",
                        i);
  if ((w->flags & PN_ROW_HIDDEN) != 0 && (p->hidden == 0 || r->held))
    return pn_loop_fail(r->err, PN_INVALID, "row %u asks for a hidden row, which is not emitted",
                        i);
  if (w->top > LOOP_TOP_MAX || w->top > p->vocab)
    return pn_loop_fail(r->err, PN_INVALID, "row %u: %u candidates; %u at most", i, w->top,
                        LOOP_TOP_MAX < p->vocab ? LOOP_TOP_MAX : p->vocab);
  if ((w->flags & PN_ROW_SAMPLE) != 0 && w->id_slot != PN_NONE && w->id_slot >= p->ids_depth)
    return pn_loop_fail(r->err, PN_INVALID, "row %u: id slot %u of %u", i, w->id_slot,
                        p->ids_depth);
  if (w->mask_form > PN_MASK_DENY || (w->mask_form == PN_MASK_NONE && w->mask_count != 0))
    return pn_loop_fail(r->err, PN_INVALID, "row %u: mask form %u of %u", i, w->mask_form,
                        w->mask_count);
  return PN_OK;
}

static pn_status check_row(struct resolver* r, uint32_t i) {
  const pn_row* w = &r->out->rows[i];
  if (!r->held && (w->entry >= r->out->entry_count || w->token >= r->out->entries[w->entry].count))
    return pn_loop_fail(r->err, PN_INVALID, "row %u: token %u of entry %u, of %u entries", i,
                        w->token, w->entry, r->out->entry_count);
  pn_status status = check_wishes(r, i);
  if (status != PN_OK) return status;
  r->out->masks[i] = NULL;
  r->out->targets[i] = NULL;
  if (w->mask_count != 0) {
    struct loop_need need = {"mask", r->p->device, (uint64_t)w->mask_count * 4, PN_HEAP_BINDS, 4};
    r->out->masks[i] = loop_slice(w->mask, &need, r->err);
    if (r->out->masks[i] == NULL) return PN_INVALID;
  }
  uint64_t bytes = loop_target_bytes(r->p, w);
  if (bytes == 0) return PN_OK;
  struct loop_need need = {"row target", r->p->device, bytes, PN_HEAP_RESULTS, 4};
  r->out->targets[i] = loop_slice(w->target, &need, r->err);
  return r->out->targets[i] == NULL ? PN_INVALID : PN_OK;
}

static pn_status check_rows(struct resolver* r) {
  uint32_t holds = 0;
  for (uint32_t i = 0; i < r->out->row_count; ++i) {
    if ((r->out->rows[i].flags & PN_ROW_HOLD) != 0 && ++holds > r->p->held_max)
      return pn_loop_fail(r->err, PN_INVALID, "row %u: %u rows can be held, lanes times ids_depth",
                          i, r->p->held_max);
    pn_status status = check_row(r, i);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

pn_status loop_resolve_step(struct loop_program* p, const pn_step* given, struct loop_work* work,
                            struct loop_arena* arena, pn_error* err) {
  pn_step from;
  if (!pn_read(&from, sizeof from, given, sizeof from))
    return pn_loop_fail(err, PN_UNSUPPORTED, "pn_step says something newer");
  int held = work->kind == PN_CMD_SAMPLE;
  if (work->step.shape >= p->shape_count)
    return pn_loop_fail(err, PN_INVALID, "shape %u of a plan that has %u", work->step.shape,
                        p->shape_count);
  if (held && from.token_count + from.lane_count + from.page_count + from.entry_count != 0)
    return pn_loop_fail(err, PN_INVALID, "the step of a sampling command has rows only");
  struct resolver r = {p, &work->step, &p->shapes[work->step.shape], &from, held, err};
  pn_status status = copy_lists(&r, arena);
  for (uint32_t i = 0; status == PN_OK && i < from.lane_count; ++i) status = check_lane(&r, i);
  for (uint32_t i = 0; status == PN_OK && i < from.page_count; ++i) status = check_page(&r, i);
  if (status == PN_OK && !held) status = check_entries(&r);
  if (status == PN_OK) status = check_rows(&r);
  return status;
}
