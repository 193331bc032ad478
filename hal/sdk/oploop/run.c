/* SPDX-License-Identifier: MIT
 *
 * The op-loop: one run. Lanes and pages are edited, entries are admitted, what the kernels need to
 * know of them goes to the die in one copy, and the ops follow.
 *
 * Nothing here allocates. What the host can still have wrong is a page that it never gave: that
 * fails the queue before any op runs.
 */
#include <math.h>
#include <string.h>

#include "loop.h"

static void edit_lane(struct loop_program* p, const struct loop_step* step, uint32_t i) {
  const pn_lane* from = &step->lanes[i];
  struct loop_lane* lane = &p->lane[from->lane];
  if ((from->flags & PN_LANE_RESET) != 0) {
    lane->known = 0;
    for (uint32_t c = 0; c < p->cache_count; ++c) {
      struct loop_cache* cache = &p->caches[c];
      if (cache->tables == NULL) continue;
      uint64_t width = cache->info.units_per_lane;
      memset(cache->tables + from->lane * width, 0xff, width * 4); /* PN_NONE */
    }
  }
  lane->setup = *from;
  lane->bias = step->biases[i];
  if (from->history_count == 0) return;
  int32_t* at = p->history + (uint64_t)from->lane * p->context;
  for (uint32_t k = lane->known; k < from->history_position; ++k) at[k] = -1;
  memcpy(at + from->history_position, step->tokens + from->history_token,
         from->history_count * sizeof(int32_t));
  lane->known = from->history_position + from->history_count;
}

static void edit_pages(struct loop_program* p, const pn_pages* from) {
  struct loop_cache* cache = &p->caches[from->cache];
  uint32_t* row = cache->tables + (uint64_t)from->lane * cache->info.units_per_lane + from->index;
  for (uint32_t k = 0; k < from->count; ++k) row[k] = from->page + k;
}

/* ---- admission ------------------------------------------------------------------------------- */

static pn_status check_pages(const struct loop_program* p, const pn_entry* entry, pn_error* err) {
  for (uint32_t c = 0; c < p->cache_count; ++c) {
    const struct loop_cache* cache = &p->caches[c];
    if (cache->tables == NULL) continue;
    const uint32_t* row = cache->tables + (uint64_t)entry->lane * cache->info.units_per_lane;
    uint32_t window = cache->window, from = 0;
    if (window != 0 && entry->position + 1 > window) from = entry->position + 1 - window;
    uint32_t last = (entry->position + entry->count - 1) / cache->info.unit_tokens;
    for (uint32_t page = from / cache->info.unit_tokens; page <= last; ++page)
      if (page >= cache->info.units_per_lane || row[page] == PN_NONE)
        return pn_loop_fail(err, PN_INVALID,
                            "lane %u at position %u needs entry %u of its table of cache %u, which "
                            "was never given a page",
                            entry->lane, entry->position, page, c);
  }
  return PN_OK;
}

/* Ids of one entry into the history and the stage. A fed id that the table has not spoils its own
 * lane and nothing else. */
static pn_status admit(struct loop_program* p, const struct loop_step* step, uint32_t e,
                       uint32_t next) {
  const pn_entry* entry = &step->entries[e];
  int32_t* past = p->history + (uint64_t)entry->lane * p->context;
  struct loop_lane* lane = &p->lane[entry->lane];
  uint32_t* positions = (void*)(p->stage + p->positions_at);
  uint32_t* table = (void*)(p->stage + p->table_at);
  int32_t* ids = (void*)(p->stage + p->ids_at);
  for (uint32_t k = lane->known; k < entry->position; ++k) past[k] = -1;
  int fed = (entry->flags & PN_ENTRY_FEED) != 0;
  p->spoiled[e] = 0;
  if (fed) {
    const char* from = p->ids + ((uint64_t)entry->lane * p->ids_depth + entry->token) * 4;
    pn_status status = loop_read(p->device, past + entry->position, from, entry->count * 4ull);
    if (status != PN_OK) return status;
  } else {
    memcpy(past + entry->position, step->tokens + entry->token, entry->count * sizeof(int32_t));
  }
  for (uint32_t i = 0; i < entry->count; ++i) {
    int32_t id = past[entry->position + i];
    if ((fed && id < 0) || (p->embeds && (uint32_t)id >= p->table_rows)) {
      p->spoiled[e] = 1;
      id = 0;
    }
    ids[next + i] = id;
    positions[next + i] = entry->position + i;
    table[next + i] = e;
  }
  lane->known = entry->position + entry->count;
  return PN_OK;
}

static void stage_tables(struct loop_program* p, const struct loop_step* step) {
  for (uint32_t c = 0; c < p->cache_count; ++c) {
    const struct loop_cache* cache = &p->caches[c];
    if (cache->tables == NULL) continue;
    uint64_t width = cache->info.units_per_lane;
    for (uint32_t e = 0; e < step->entry_count; ++e)
      memcpy(p->stage + cache->pages_at + e * width * 4,
             cache->tables + step->entries[e].lane * width, width * 4);
  }
}

static void stage_rows(struct loop_program* p, const struct loop_step* step) {
  uint32_t* index = (void*)(p->stage + p->index_at);
  for (uint32_t r = 0; r < step->row_count; ++r) {
    uint32_t first = 0;
    for (uint32_t e = 0; e < step->rows[r].entry; ++e) first += step->entries[e].count;
    index[r] = first + step->rows[r].token;
  }
}

/* q *= 1 + b ln(1 + floor(p / span)) */
static void stage_factors(struct loop_program* p, uint32_t tokens) {
  const uint32_t* positions = (const void*)(p->stage + p->positions_at);
  for (uint32_t i = 0; i < p->op_count; ++i) {
    if (p->ops[i].factors_at == 0) continue;
    const pn_op_qkv* q = &p->ops[i].params.qkv;
    float* to = (void*)(p->stage + p->ops[i].factors_at);
    for (uint32_t t = 0; t < tokens; ++t)
      to[t] = 1 + q->q_temperature * log1pf(floorf((float)positions[t] / q->q_span));
  }
}

/* ---- the run --------------------------------------------------------------------------------- */

pn_status loop_run(struct loop_program* p, const struct loop_step* step, pn_error* err) {
  for (uint32_t i = 0; i < step->lane_count; ++i) edit_lane(p, step, i);
  for (uint32_t i = 0; i < step->page_count; ++i) edit_pages(p, &step->pages[i]);
  if (step->entry_count == 0) return PN_OK;
  struct loop_run run = {p, step, p->device->die, 0, p->scratch + p->work_at};
  pn_status status = PN_OK;
  for (uint32_t e = 0; status == PN_OK && e < step->entry_count; ++e) {
    status = check_pages(p, &step->entries[e], err);
    if (status == PN_OK) status = admit(p, step, e, run.tokens);
    run.tokens += step->entries[e].count;
  }
  if (status != PN_OK) return status;
  stage_tables(p, step);
  stage_rows(p, step);
  stage_factors(p, run.tokens);
  p->held_count = 0;
  status = loop_write(p->device, p->scratch, p->stage, p->batch_bytes);
  for (uint32_t i = 0; status == PN_OK && i < p->op_count; ++i)
    status = loop_do_op(&run, &p->ops[i]);
  return status;
}
