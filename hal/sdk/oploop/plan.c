/* SPDX-License-Identifier: MIT
 *
 * The op-loop: a pn_plan read by the growth rules, copied into a program's block, and checked.
 *
 * Knows what a plan may say, not what ops mean. The one idea: loop_lay_out runs twice, once on an
 * endless arena that only counts and once on the block, so the count cannot be wrong.
 */
#include <math.h>
#include <string.h>

#include "loop.h"

static const struct {
  uint16_t op;
  const char* name;
  uint32_t params_bytes; /* frozen first size; 0: the op has none */
} facts[] = {
    {PN_OP_EMBED, "EMBED", sizeof(pn_op_embed)},
    {PN_OP_NORM, "NORM", sizeof(pn_op_norm)},
    {PN_OP_LINEAR, "LINEAR", sizeof(pn_op_linear)},
    {PN_OP_QKV, "QKV", sizeof(pn_op_qkv)},
    {PN_OP_ATTENTION, "ATTENTION", sizeof(pn_op_attention)},
    {PN_OP_MLP, "MLP", sizeof(pn_op_mlp)},
    {PN_OP_ROUTER, "ROUTER", sizeof(pn_op_router)},
    {PN_OP_EXPERTS, "EXPERTS", sizeof(pn_op_mlp)},
    {PN_OP_DELTA_NET, "DELTA_NET", sizeof(pn_op_delta_net)},
    {PN_OP_ROWS, "ROWS", 0},
    {PN_OP_EMIT, "EMIT", sizeof(pn_op_emit)},
    {PN_OP_BINARY, "BINARY", sizeof(pn_op_elementwise)},
    {PN_OP_UNARY, "UNARY", sizeof(pn_op_elementwise)},
    {PN_OP_GLU, "GLU", sizeof(pn_op_elementwise)},
    {PN_OP_COLUMNS, "COLUMNS", sizeof(pn_op_columns)},
    {PN_OP_CONCAT, "CONCAT", 0},
    {PN_OP_ROPE, "ROPE", sizeof(pn_op_heads)},
    {PN_OP_APPEND, "APPEND", sizeof(pn_op_heads)},
    {PN_OP_CONV, "CONV", sizeof(pn_op_heads)},
};

const char* loop_op_name(uint16_t op) {
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; ++i)
    if (facts[i].op == op) return facts[i].name;
  return "an unknown op";
}
uint32_t loop_params_bytes(uint16_t op) {
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; ++i)
    if (facts[i].op == op) return facts[i].params_bytes;
  return 0;
}

/* ---- the head: counts that the block's size depends on --------------------------------------- */

#define READ(T, to, base, i) pn_read(to, sizeof(T), PN_AT_CONST(T, base, i), sizeof(T))

pn_status loop_read_plan(const pn_plan* plan, pn_plan* head, pn_error* err) {
  if (plan == NULL) return pn_loop_fail(err, PN_INVALID, "the plan is NULL");
  if (!pn_read(head, sizeof *head, plan, sizeof *head))
    return pn_loop_fail(err, PN_UNSUPPORTED, "pn_plan says something newer than this plugin knows");
  if (head->lanes == 0 || head->ids_depth == 0 || head->shape_count == 0 || head->op_count == 0)
    return pn_loop_fail(err, PN_INVALID,
                        "plan: %u lanes, ids_depth %u, %u shapes, %u ops: at least 1 of each",
                        head->lanes, head->ids_depth, head->shape_count, head->op_count);
  if (head->ops == NULL || head->shapes == NULL || (head->slot_count != 0 && head->slots == NULL) ||
      (head->weight_count != 0 && head->weights == NULL) ||
      (head->cache_count != 0 && head->caches == NULL))
    return pn_loop_fail(err, PN_INVALID, "plan: a list is NULL though its count is not 0");
  if (head->slot_count >= PN_NO16 || head->weight_count >= PN_NO16)
    return pn_loop_fail(err, PN_INVALID, "plan: %u slots and %u weights; %u at most of each",
                        head->slot_count, head->weight_count, PN_NO16 - 1);
  for (uint32_t i = 0; i < head->cache_count; ++i) {
    pn_cache cache;
    if (!READ(pn_cache, &cache, head->caches, i))
      return pn_loop_fail(err, PN_UNSUPPORTED, "pn_cache %u says something newer", i);
    if (cache.kind > PN_CACHE_STATE || cache.layers == 0 || cache.units_per_lane == 0 ||
        (cache.kind == PN_CACHE_PAGED && cache.unit_tokens == 0) || cache.reserved != 0)
      return pn_loop_fail(err, PN_INVALID,
                          "plan: cache %u has kind %u, %u layers, %u tokens, %u "
                          "units, reserved %u",
                          i, cache.kind, cache.layers, cache.unit_tokens, cache.units_per_lane,
                          cache.reserved);
    if (cache.layers > 65536 || cache.units_per_lane > 1u << 24)
      return pn_loop_fail(err, PN_UNSUPPORTED, "cache %u: %u layers, %u units", i, cache.layers,
                          cache.units_per_lane);
  }
  for (uint32_t i = 0; i < head->shape_count; ++i) {
    const pn_shape* shape = &head->shapes[i];
    if (shape->tokens == 0 || shape->entries == 0 || shape->context == 0)
      return pn_loop_fail(err, PN_INVALID, "plan: shape %u has %u tokens, %u entries, context %u",
                          i, shape->tokens, shape->entries, shape->context);
  }
  for (uint32_t i = 0; i < head->op_count; ++i) {
    pn_op op;
    if (!READ(pn_op, &op, head->ops, i))
      return pn_loop_fail(err, PN_UNSUPPORTED, "pn_op %u says something newer", i);
  }
  return PN_OK;
}

/* ---- laying out ------------------------------------------------------------------------------ */

static void* take(struct loop_arena* arena, uint64_t count, uint64_t bytes) {
  char* at = arena->at;
  /* As a number: counting begins at NULL, to which nothing may be added. */
  arena->at = (char*)((uintptr_t)at + (count * bytes + 63) / 64 * 64);
  return at;
}

static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The width of EMIT's logits, of its hidden rows, and its vocab, before anything is checked. */
static void find_emit(struct loop_program* p, const pn_plan* head) {
  p->vocab = p->logits_width = p->hidden = 0;
  for (uint32_t i = 0; i < head->op_count; ++i) {
    const pn_op* op = PN_AT_CONST(pn_op, head->ops, i);
    if (op->op != PN_OP_EMIT || op->rev != 0 || op->params == NULL) continue;
    p->emits = 1;
    if (op->in[0] < head->slot_count) {
      p->logits_width = PN_AT_CONST(pn_slot, head->slots, op->in[0])->width;
      p->vocab = ((const pn_op_emit*)op->params)->vocab;
      if (p->vocab > p->logits_width) p->vocab = p->logits_width; /* refused later, by name */
    }
    if (op->in[1] < head->slot_count)
      p->hidden = PN_AT_CONST(pn_slot, head->slots, op->in[1])->width;
  }
}

/* Queries that are scaled by how far on they stand. */
static int warms(const pn_op* op) {
  return op->op == PN_OP_QKV && op->rev == 0 && op->params != NULL &&
         ((const pn_op_qkv*)op->params)->q_temperature != 0;
}

/* The block staged for the die: ids, positions, entry of each token, token of each row, factors of
 * queries, tables. */
static void lay_out_batch(struct loop_program* p, const pn_plan* head) {
  uint64_t at = 0;
  p->ids_at = at;
  at += (uint64_t)p->tokens * 4;
  p->positions_at = at;
  at += (uint64_t)p->tokens * 4;
  p->table_at = at;
  at += (uint64_t)p->tokens * 4;
  p->index_at = at;
  at += (uint64_t)p->rows * 4;
  p->factors_at = at;
  for (uint32_t i = 0; i < head->op_count; ++i)
    if (warms(PN_AT_CONST(pn_op, head->ops, i))) at += (uint64_t)p->tokens * 4;
  p->batch_bytes = (at + 63) / 64 * 64;
}

void loop_lay_out(struct loop_program* p, const pn_plan* head, struct loop_arena* arena) {
  p->lanes = head->lanes;
  p->ids_depth = head->ids_depth;
  p->op_count = head->op_count;
  p->slot_count = head->slot_count;
  p->weight_count = head->weight_count;
  p->cache_count = head->cache_count;
  p->shape_count = head->shape_count;
  for (uint32_t i = 0; i < head->shape_count; ++i) {
    p->tokens = most(p->tokens, head->shapes[i].tokens);
    p->entries = most(p->entries, head->shapes[i].entries);
    p->rows = most(p->rows, head->shapes[i].rows);
    p->context = most(p->context, head->shapes[i].context);
  }
  find_emit(p, head);
  lay_out_batch(p, head);
  p->ops = take(arena, p->op_count, sizeof *p->ops);
  p->spans = take(arena, p->op_count, sizeof *p->spans);
  p->slots = take(arena, p->slot_count, sizeof *p->slots);
  p->weights = take(arena, p->weight_count, sizeof *p->weights);
  p->caches = take(arena, p->cache_count, sizeof *p->caches);
  p->shapes = take(arena, p->shape_count, sizeof *p->shapes);
  int counting = arena->end == NULL;
  for (uint32_t i = 0; i < p->cache_count; ++i) {
    const pn_cache* info = PN_AT_CONST(pn_cache, head->caches, i);
    struct loop_cache unused, *c = counting ? &unused : &p->caches[i];
    c->layers = take(arena, info->layers, sizeof *c->layers);
    c->tables = NULL;
    if (info->kind != PN_CACHE_PAGED) continue;
    c->tables = take(arena, (uint64_t)p->lanes * info->units_per_lane, 4);
    c->pages_at = p->batch_bytes;
    p->batch_bytes += ((uint64_t)p->entries * info->units_per_lane * 4 + 63) / 64 * 64;
  }
  uint64_t held = (uint64_t)p->lanes * p->ids_depth;
  p->held_max = p->vocab == 0 ? 0 : held < p->rows ? (uint32_t)held : p->rows;
  p->lane = take(arena, p->lanes, sizeof *p->lane);
  p->history = take(arena, (uint64_t)p->lanes * p->context, 4);
  p->spoiled = take(arena, p->entries, 4);
  p->stage = take(arena, p->batch_bytes, 1);
  p->raw = take(arena, most(p->logits_width, p->hidden), 4);
  p->adjusted = take(arena, p->vocab, 4);
  p->counts = take(arena, p->vocab, 4);
  p->candidates = take(arena, p->vocab, sizeof *p->candidates);
  p->held = take(arena, p->held_max, sizeof *p->held);
  p->held_logits = take(arena, (uint64_t)p->held_max * p->vocab, 4);
}

/* ---- filling --------------------------------------------------------------------------------- */

static pn_status fill_ops(struct loop_program* p, const pn_plan* head, pn_error* err) {
  uint64_t factors = p->factors_at;
  for (uint32_t i = 0; i < p->op_count; ++i) {
    struct loop_op* to = &p->ops[i];
    READ(pn_op, &to->op, head->ops, i);
    if (warms(&to->op)) {
      to->factors_at = factors;
      factors += (uint64_t)p->tokens * 4;
    }
    const void* params = to->op.params;
    to->op.params = NULL;
    uint32_t bytes = to->op.rev == 0 ? loop_params_bytes(to->op.op) : 0;
    const char* name = loop_op_name(to->op.op);
    if (to->op.reserved != 0)
      return pn_loop_fail(err, PN_INVALID, "plan: op %u (%s): reserved is not 0", i, name);
    if (bytes == 0) continue;
    if (params == NULL)
      return pn_loop_fail(err, PN_INVALID, "plan: op %u (%s) has no params", i, name);
    if (!pn_read(&to->params, bytes, params, bytes))
      return pn_loop_fail(err, PN_UNSUPPORTED, "plan: the params of op %u (%s) say something newer",
                          i, name);
  }
  return PN_OK;
}

static pn_status fill_weights(struct loop_program* p, const pn_plan* head, pn_error* err) {
  for (uint32_t i = 0; i < p->weight_count; ++i) {
    struct loop_weight* to = &p->weights[i];
    pn_weight* w = &to->info;
    if (!READ(pn_weight, w, head->weights, i))
      return pn_loop_fail(err, PN_UNSUPPORTED, "pn_weight %u says something newer", i);
    for (uint32_t k = 0; k < 4; ++k)
      if (w->shape[k] < 1 || w->shape[k] > (int64_t)1 << 32)
        return pn_loop_fail(err, PN_INVALID, "plan: weight %u has a dimension of %lld", i,
                            (long long)w->shape[k]);
    const uint16_t hangs[4] = {w->bias, w->scale, w->adapter_a, w->adapter_b};
    for (uint32_t k = 0; k < 4; ++k)
      if (hangs[k] != PN_NO16 && hangs[k] >= p->weight_count)
        return pn_loop_fail(err, PN_INVALID, "plan: weight %u hangs on weight %u of %u", i,
                            hangs[k], p->weight_count);
    if (w->reserved != 0 || w->role > PN_ROLE_ADAPTER_B)
      return pn_loop_fail(err, PN_INVALID, "plan: weight %u has role %u, reserved %u", i, w->role,
                          w->reserved);
    to->matrix = (pn_k_weight){NULL,
                               w->source_type,
                               (uint32_t)(w->shape[2] * w->shape[3]),
                               (uint64_t)w->shape[0],
                               (uint64_t)w->shape[1],
                               pn_loop_row_bytes(w->source_type, (uint64_t)w->shape[0]),
                               0};
    to->matrix.expert_bytes = to->matrix.row_bytes * to->matrix.rows;
  }
  return PN_OK;
}

static pn_status fill_slots(struct loop_program* p, const pn_plan* head, pn_error* err) {
  for (uint32_t i = 0; i < p->slot_count; ++i) {
    struct loop_slot* to = &p->slots[i];
    if (!READ(pn_slot, &to->info, head->slots, i))
      return pn_loop_fail(err, PN_UNSUPPORTED, "pn_slot %u says something newer", i);
    const pn_slot* s = &to->info;
    if (s->kind > PN_SLOT_OUTPUT || s->rows > PN_ROWS_OUT || s->width == 0 || s->reserved != 0)
      return pn_loop_fail(err, PN_INVALID,
                          "plan: slot %u has kind %u, rows %u, width %u, reserved "
                          "%u",
                          i, s->kind, s->rows, s->width, s->reserved);
    to->first = LOOP_ANY;
    to->floats = s->width;
  }
  return PN_OK;
}

/* Each slot is written once, before it is read; every number names something. */
static pn_status check_op(struct loop_program* p, uint32_t index, pn_error* err) {
  const pn_op* op = &p->ops[index].op;
  const char* name = loop_op_name(op->op);
  for (uint32_t k = 0; k < 6; ++k) {
    if (op->in[k] == PN_NO16) continue;
    if (op->in[k] >= p->slot_count)
      return pn_loop_fail(err, PN_INVALID, "plan: op %u (%s) reads slot %u of %u", index, name,
                          op->in[k], p->slot_count);
    struct loop_slot* s = &p->slots[op->in[k]];
    if (s->first == LOOP_ANY && s->info.kind != PN_SLOT_INPUT)
      return pn_loop_fail(err, PN_INVALID,
                          "plan: op %u (%s) reads slot %u, which nothing has "
                          "written",
                          index, name, op->in[k]);
    if (s->first == LOOP_ANY) s->first = index;
    s->last = index;
  }
  for (uint32_t k = 0; k < 2; ++k) {
    if (op->out[k] == PN_NO16) continue;
    if (op->out[k] >= p->slot_count)
      return pn_loop_fail(err, PN_INVALID, "plan: op %u (%s) writes slot %u of %u", index, name,
                          op->out[k], p->slot_count);
    struct loop_slot* s = &p->slots[op->out[k]];
    if (s->first != LOOP_ANY || s->info.kind == PN_SLOT_INPUT)
      return pn_loop_fail(err, PN_INVALID,
                          "plan: op %u (%s) writes slot %u, which is an input or "
                          "was written before",
                          index, name, op->out[k]);
    s->first = s->last = index;
  }
  for (uint32_t k = 0; k < 8; ++k)
    if (op->weight[k] != PN_NO16 && op->weight[k] >= p->weight_count)
      return pn_loop_fail(err, PN_INVALID, "plan: op %u (%s) names weight %u of %u", index, name,
                          op->weight[k], p->weight_count);
  return PN_OK;
}

pn_status loop_fill(struct loop_program* p, const pn_plan* head, pn_error* err) {
  memcpy(p->shapes, head->shapes, p->shape_count * sizeof *p->shapes);
  for (uint32_t i = 0; i < p->cache_count; ++i) {
    READ(pn_cache, &p->caches[i].info, head->caches, i);
    if (p->caches[i].tables == NULL) continue;
    uint64_t pages = (uint64_t)p->lanes * p->caches[i].info.units_per_lane;
    memset(p->caches[i].tables, 0xff, pages * 4); /* PN_NONE */
  }
  for (uint32_t i = 0; i < p->lanes; ++i)
    p->lane[i].setup.top_p = p->lane[i].setup.repeat_penalty = 1;
  pn_status status = fill_ops(p, head, err);
  if (status == PN_OK) status = fill_slots(p, head, err);
  if (status == PN_OK) status = fill_weights(p, head, err);
  for (uint32_t i = 0; status == PN_OK && i < p->op_count; ++i) status = check_op(p, i, err);
  return status;
}
