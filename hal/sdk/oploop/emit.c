/* SPDX-License-Identifier: MIT
 *
 * The op-loop: rows that come out. What a row asked for goes to its target, in the contract's
 * order, and the id to where it is fed from. Logits come to the host one row at a time.
 */
#include <math.h>
#include <string.h>

#include "loop.h"

struct serving {
  struct loop_program* p;
  const pn_row* row;
  const char* mask;
  char* target;
  uint32_t lane, position, spoiled;
  int draw;            /* 0: held */
  const float* logits; /* host memory, or NULL */
  const char* hidden;  /* of the die, or NULL */
};

uint64_t loop_target_bytes(const struct loop_program* p, const pn_row* row) {
  uint64_t bytes = (uint64_t)row->top * sizeof(pn_candidate);
  if ((row->flags & PN_ROW_SAMPLE) != 0 || row->top != 0) bytes += sizeof(pn_result);
  if ((row->flags & PN_ROW_LOGITS) != 0) bytes += (uint64_t)p->vocab * sizeof(float);
  if ((row->flags & PN_ROW_HIDDEN) != 0) bytes += (uint64_t)p->hidden * sizeof(float);
  return bytes;
}

static pn_status put(const struct serving* s, uint64_t* at, const void* from, uint64_t bytes) {
  pn_status status = loop_write(s->p->device, s->target + *at, from, bytes);
  *at += bytes;
  return status;
}

static pn_status draw(const struct serving* s, const struct loop_logits* facts, pn_result* result) {
  struct loop_draw d = {.p = s->p,
                        .lane = &s->p->lane[s->lane],
                        .row = s->row,
                        .mask = s->mask,
                        .history = s->p->history + (uint64_t)s->lane * s->p->context,
                        .position = s->position};
  pn_status status = loop_draw_row(&d, facts, &result->id);
  if (result->id >= 0) result->logprob = s->logits[result->id] - result->log_sum;
  return status;
}

static pn_status keep_id(const struct serving* s, int32_t id) {
  if (s->row->id_slot == PN_NONE) return PN_OK;
  uint64_t index = (uint64_t)s->lane * s->p->ids_depth + s->row->id_slot;
  return loop_write(s->p->device, s->p->ids + index * sizeof id, &id, sizeof id);
}

static pn_status serve(const struct serving* s) {
  const pn_row* row = s->row;
  struct loop_program* p = s->p;
  pn_status status = PN_OK;
  uint64_t at = 0;
  if ((row->flags & PN_ROW_SAMPLE) != 0 || row->top != 0) {
    struct loop_logits facts = loop_scan(s->logits, p->vocab);
    pn_result result = {-1, NAN, NAN, row->top};
    if (!s->spoiled && facts.finite) result.log_sum = facts.log_sum;
    if ((row->flags & PN_ROW_SAMPLE) != 0 && s->draw && !s->spoiled && facts.finite)
      status = draw(s, &facts, &result);
    if (status == PN_OK) status = put(s, &at, &result, sizeof result);
    if (status == PN_OK && (row->flags & PN_ROW_SAMPLE) != 0 && s->draw)
      status = keep_id(s, result.id);
  }
  if (status == PN_OK && row->top != 0) {
    pn_candidate best[LOOP_TOP_MAX];
    loop_best(s->logits, p->vocab, row->top, p->candidates);
    for (uint32_t i = 0; i < row->top; ++i) best[i] = p->candidates[p->vocab - 1 - i];
    status = put(s, &at, best, row->top * sizeof best[0]);
  }
  if (status == PN_OK && (row->flags & PN_ROW_LOGITS) != 0)
    status = put(s, &at, s->logits, p->vocab * sizeof(float));
  if (status == PN_OK && (row->flags & PN_ROW_HIDDEN) != 0) {
    pn_k_copy copy = {s->target + at, s->hidden, p->hidden * sizeof(float), PN_K_WITHIN};
    status = loop_backend->copy(p->device->die, &copy);
  }
  return status;
}

/* ---- EMIT, and what was held ----------------------------------------------------------------- */

static void hold(const struct serving* s, uint32_t token) {
  struct loop_program* p = s->p;
  uint32_t h = p->held_count++; /* no more than held_max: checked at submit */
  p->held[h] = (struct loop_held){s->row->entry, token, s->lane, s->position, s->spoiled};
  memcpy(p->held_logits + (uint64_t)h * p->vocab, s->logits, p->vocab * sizeof(float));
}

pn_status loop_emit(struct loop_run* run, const struct loop_op* op) {
  struct loop_program* p = run->p;
  const struct loop_step* step = run->step;
  for (uint32_t r = 0; r < step->row_count; ++r) {
    const pn_row* row = &step->rows[r];
    const pn_entry* entry = &step->entries[row->entry];
    struct serving s = {.p = p,
                        .row = row,
                        .mask = step->masks[r],
                        .target = step->targets[r],
                        .lane = entry->lane,
                        .position = entry->position + row->token,
                        .spoiled = p->spoiled[row->entry],
                        .draw = (row->flags & PN_ROW_HOLD) == 0};
    if (op->op.in[0] != PN_NO16) {
      pn_k_rows logits = loop_rows(run, op->op.in[0]);
      const char* from = (const char*)(logits.at + r * logits.stride);
      pn_status status = loop_read(p->device, p->raw, from, p->vocab * sizeof(float));
      if (status != PN_OK) return status;
      s.logits = p->raw;
    }
    if (op->op.in[1] != PN_NO16) {
      pn_k_rows hidden = loop_rows(run, op->op.in[1]);
      s.hidden = (const char*)(hidden.at + r * hidden.stride);
    }
    pn_status status = serve(&s);
    if (status != PN_OK) return status;
    if (!s.draw) hold(&s, row->token);
  }
  return PN_OK;
}

pn_status loop_sample(struct loop_program* p, const struct loop_step* step, pn_error* err) {
  for (uint32_t r = 0; r < step->row_count; ++r) {
    const pn_row* row = &step->rows[r];
    uint32_t h = 0;
    while (h < p->held_count && (p->held[h].entry != row->entry || p->held[h].token != row->token))
      ++h;
    if (h == p->held_count)
      return pn_loop_fail(err, PN_INVALID, "token %u of entry %u is not held by the last run",
                          row->token, row->entry);
    struct serving s = {.p = p,
                        .row = row,
                        .mask = step->masks[r],
                        .target = step->targets[r],
                        .lane = p->held[h].lane,
                        .position = p->held[h].position,
                        .spoiled = p->held[h].spoiled,
                        .draw = 1,
                        .logits = p->held_logits + (uint64_t)h * p->vocab};
    memcpy(p->raw, s.logits, p->vocab * sizeof(float)); /* where the draw looks */
    pn_status status = serve(&s);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

/* ---- pantheon.sampler/1 ---------------------------------------------------------------------- */

static pn_status describe(pn_device device, pn_sampler_info* out, pn_error* err) {
  pn_status status;
  if (loop_device_of(device, "sampler.describe", &status, err) == NULL) return status;
  if (out == NULL) return pn_loop_fail(err, PN_INVALID, "sampler.describe: out is NULL");
  const pn_sampler_info info = {
      .struct_size = sizeof info,
      .features = PN_SAMPLES_GREEDY | PN_SAMPLES_TEMPERATURE | PN_SAMPLES_PENALTIES |
                  PN_SAMPLES_BIAS | PN_SAMPLES_MASK_BITS | PN_SAMPLES_MASK_LIST | PN_SAMPLES_HOLD,
      .top_max = LOOP_TOP_MAX,
      .history_max = UINT32_MAX}; /* the whole context of a lane */
  pn_write(out, &info, sizeof info);
  return PN_OK;
}
const pn_sampler_api loop_sampler = {sizeof loop_sampler, 0, describe};
