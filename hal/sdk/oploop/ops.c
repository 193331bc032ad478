/* SPDX-License-Identifier: MIT
 *
 * The op-loop: each op as calls of kernels. What an op may look like was checked when the plan was
 * compiled (check.c); nothing is asked again here.
 */
#include "loop.h"

/* Stops at the first kernel that fails. */
#define CALL(kernel, ...)                                                                   \
  do {                                                                                      \
    pn_status called = loop_backend->kernel(run->die, &(const pn_k_##kernel){__VA_ARGS__}); \
    if (called != PN_OK) return called;                                                     \
  } while (0)
#define TRY(call)                     \
  do {                                \
    pn_status tried = (call);         \
    if (tried != PN_OK) return tried; \
  } while (0)

/* ---- addresses ------------------------------------------------------------------------------- */

static uint32_t count_of(const struct loop_run* run, uint32_t rows) {
  return rows == PN_ROWS_TOKENS ? run->tokens : run->step->row_count;
}

pn_k_rows loop_rows(const struct loop_run* run, uint16_t slot) {
  const struct loop_slot* s = &run->p->slots[slot];
  char* at = s->info.kind == PN_SLOT_INTERNAL ? run->p->scratch + s->offset : s->bound;
  return (pn_k_rows){(float*)(void*)at, s->stride, count_of(run, s->info.rows), s->info.width};
}

/* Working rows, as many as the largest shape has: the next ones begin behind them. */
static pn_k_rows work_rows(const struct loop_run* run, char** at, uint32_t rows, uint64_t width) {
  uint64_t most = rows == PN_ROWS_TOKENS ? run->p->tokens : run->p->rows;
  uint64_t stride = (width + 15) / 16 * 16;
  pn_k_rows out = {(float*)(void*)*at, stride, count_of(run, rows), (uint32_t)width};
  *at += (most == 0 ? 1 : most) * stride * sizeof(float);
  return out;
}

static const float* values(const struct loop_run* run, uint16_t weight) {
  return weight == PN_NO16 ? NULL : run->p->weights[weight].matrix.at;
}

static pn_k_batch batch_of(const struct loop_run* run, uint32_t cache) {
  const char* at = run->p->scratch;
  const struct loop_cache* c = &run->p->caches[cache];
  return (pn_k_batch){run->tokens, c->info.units_per_lane,
                      (const uint32_t*)(const void*)(at + run->p->positions_at),
                      (const uint32_t*)(const void*)(at + run->p->table_at),
                      (const uint32_t*)(const void*)(at + c->pages_at)};
}

static pn_k_cache cache_of(const struct loop_run* run, uint32_t cache, uint32_t layer) {
  const struct loop_cache* c = &run->p->caches[cache];
  const struct loop_layer* l = &c->layers[layer];
  return (pn_k_cache){c->base,  c->unit_bytes, l->keys,      l->values,       c->info.unit_tokens,
                      l->heads, l->key_dim,    l->value_dim, c->info.key_type};
}

static const pn_k_rows none = {0};

/* ---- what many ops do ------------------------------------------------------------------------ */

struct part { /* rows of a matrix, and which expert's for each row of the input */
  uint64_t first, rows;
  const int32_t* pick;
  uint64_t pick_stride;
};

/* Wherever a weight meets a row: scale * (W x) + bias. */
static pn_status product(struct loop_run* run, uint16_t index, const struct part* part,
                         const pn_k_rows* in, const pn_k_rows* out) {
  const struct loop_weight* w = &run->p->weights[index];
  pn_k_weight matrix = w->matrix;
  matrix.at = (const char*)matrix.at + part->first * matrix.row_bytes;
  matrix.rows = part->rows;
  const float* bias = values(run, w->info.bias);
  if (bias != NULL) bias += part->first;
  CALL(matmul, *out, *in, &matrix, bias, values(run, w->info.scale), w->matrix.rows, part->pick,
       part->pick_stride);
  return PN_OK;
}

static pn_status whole(struct loop_run* run, uint16_t index, const pn_k_rows* in,
                       const pn_k_rows* out) {
  const struct part all = {0, run->p->weights[index].matrix.rows, NULL, 0};
  return product(run, index, &all, in, out);
}

static pn_status scale(struct loop_run* run, const pn_k_rows* rows, float factor) {
  if (factor == 1.0f) return PN_OK;
  CALL(glu, *rows, *rows, none, PN_ACT_NONE, 0, 0, 1, factor);
  return PN_OK;
}

static pn_status add(struct loop_run* run, uint16_t slot, const pn_k_rows* to) {
  if (slot == PN_NO16) return PN_OK;
  CALL(binary, *to, *to, loop_rows(run, slot), PN_BINARY_ADD, 1);
  return PN_OK;
}

struct turn {
  uint32_t heads, dim, kind, dims;
  float magnitude;
  uint16_t weight;
};
static pn_status turn(struct loop_run* run, const pn_k_rows* rows, const struct turn* how) {
  if (how->kind == PN_ROPE_NONE) return PN_OK;
  CALL(rope, *rows, (const uint32_t*)(const void*)(run->p->scratch + run->p->positions_at),
       values(run, how->weight), how->heads, how->dim, how->kind, how->dims / 2, how->magnitude);
  return PN_OK;
}

/* ---- the ops --------------------------------------------------------------------------------- */

static pn_status do_embed(struct loop_run* run, const struct loop_op* op) {
  pn_k_rows out = loop_rows(run, op->op.out[0]);
  const struct loop_weight* w = &run->p->weights[op->op.weight[0]];
  CALL(embed, out, &w->matrix, (const int32_t*)(const void*)(run->p->scratch + run->p->ids_at),
       op->params.embed.scale);
  if (w->info.scale == PN_NO16) return PN_OK;
  pn_k_rows one = {(float*)(void*)(uintptr_t)values(run, w->info.scale), 0, out.count, 1};
  CALL(binary, out, out, one, PN_BINARY_MUL, 1);
  return PN_OK;
}

static pn_status do_norm(struct loop_run* run, const struct loop_op* op) {
  const pn_op_norm* n = &op->params.norm;
  pn_k_rows in = loop_rows(run, op->op.in[0]);
  CALL(norm, loop_rows(run, op->op.out[0]), in, values(run, op->op.weight[0]), n->kind,
       n->group == 0 ? in.width : n->group, n->eps);
  return PN_OK;
}

static pn_status do_linear(struct loop_run* run, const struct loop_op* op) {
  const pn_op_linear* l = &op->params.linear;
  pn_k_rows in = loop_rows(run, op->op.in[0]), out = loop_rows(run, op->op.out[0]);
  TRY(whole(run, op->op.weight[0], &in, &out));
  if (l->softcap != 0)
    CALL(glu, out, out, none, PN_ACT_TANH, 0, 0, l->scale / l->softcap, l->softcap);
  else
    TRY(scale(run, &out, l->scale));
  return add(run, op->op.in[1], &out);
}

/* The k and v rows: normed, turned, appended. */
static pn_status keep_keys(struct loop_run* run, const struct loop_op* op, const pn_k_rows* k,
                           const pn_k_rows* v) {
  const pn_op_qkv* p = &op->params.qkv;
  const struct turn how = {p->kv_heads,  p->key_dim,        p->rope_kind,
                           p->rope_dims, p->rope_magnitude, op->op.weight[5]};
  if ((p->flags & PN_QKV_V_IS_K) != 0) CALL(columns, *v, *k);
  if ((p->flags & PN_QKV_V_NORM) != 0)
    CALL(norm, *v, *v, NULL, PN_NORM_RMS, p->value_dim, p->norm_eps);
  if (op->op.weight[4] != PN_NO16)
    CALL(norm, *k, *k, values(run, op->op.weight[4]), PN_NORM_RMS, p->key_dim, p->norm_eps);
  TRY(turn(run, k, &how));
  const pn_k_cache cache = cache_of(run, p->cache, p->cache_layer);
  const pn_k_batch batch = batch_of(run, p->cache);
  CALL(append, *k, *v, &cache, &batch);
  return PN_OK;
}

/* Per head q then g: two strided copies of half-heads. */
static pn_status split_gate(struct loop_run* run, const struct loop_op* op, const pn_k_rows* raw) {
  const pn_op_qkv* p = &op->params.qkv;
  for (uint32_t half = 0; half < 2; ++half) {
    pn_k_rows out = loop_rows(run, op->op.out[half]);
    for (uint32_t h = 0; h < p->query_heads; ++h) {
      pn_k_rows to = {out.at + (uint64_t)h * p->key_dim, out.stride, out.count, p->key_dim};
      pn_k_rows from = {raw->at + ((uint64_t)h * 2 + half) * p->key_dim, raw->stride, raw->count,
                        p->key_dim};
      CALL(columns, to, from);
    }
  }
  return PN_OK;
}

static pn_status do_qkv(struct loop_run* run, const struct loop_op* op) {
  const pn_op_qkv* p = &op->params.qkv;
  int fused = (p->flags & PN_QKV_FUSED) != 0, gated = (p->flags & PN_QKV_GATED) != 0;
  pn_k_rows in = loop_rows(run, op->op.in[0]), q = loop_rows(run, op->op.out[0]);
  uint64_t wide = (uint64_t)p->query_heads * p->key_dim * (gated ? 2 : 1);
  uint64_t keys = (uint64_t)p->kv_heads * p->key_dim, vals = (uint64_t)p->kv_heads * p->value_dim;
  char* at = run->work;
  pn_k_rows raw = work_rows(run, &at, PN_ROWS_TOKENS, wide);
  pn_k_rows k = work_rows(run, &at, PN_ROWS_TOKENS, keys);
  pn_k_rows v = work_rows(run, &at, PN_ROWS_TOKENS, vals);
  const struct part q_part = {0, wide, NULL, 0}, k_part = {fused ? wide : 0, keys, NULL, 0};
  const struct part v_part = {fused ? wide + keys : 0, vals, NULL, 0};
  TRY(product(run, op->op.weight[0], &q_part, &in, gated ? &raw : &q));
  if (gated) TRY(split_gate(run, op, &raw));
  if (op->op.weight[3] != PN_NO16)
    CALL(norm, q, q, values(run, op->op.weight[3]), PN_NORM_RMS, p->key_dim, p->norm_eps);
  const struct turn how = {p->query_heads, p->key_dim,        p->rope_kind,
                           p->rope_dims,   p->rope_magnitude, op->op.weight[5]};
  TRY(turn(run, &q, &how));
  if (op->factors_at != 0) {
    pn_k_rows factors = {(float*)(void*)(run->p->scratch + op->factors_at), 1, q.count, 1};
    CALL(binary, q, q, factors, PN_BINARY_MUL, 1);
  }
  if ((p->flags & PN_QKV_NO_APPEND) != 0) return PN_OK;
  TRY(product(run, op->op.weight[fused ? 0 : 1], &k_part, &in, &k));
  if ((p->flags & PN_QKV_V_IS_K) == 0)
    TRY(product(run, op->op.weight[fused ? 0 : 2], &v_part, &in, &v));
  return keep_keys(run, op, &k, &v);
}

static pn_status do_attention(struct loop_run* run, const struct loop_op* op) {
  const pn_op_attention* a = &op->params.attention;
  const pn_k_cache cache = cache_of(run, a->cache, a->cache_layer);
  const pn_k_batch batch = batch_of(run, a->cache);
  pn_k_rows out = loop_rows(run, op->op.out[0]);
  CALL(attention, out, loop_rows(run, op->op.in[0]), &cache, &batch, values(run, op->op.weight[0]),
       a->query_heads, a->window, a->scale, a->softcap);
  if (op->op.in[1] != PN_NO16)
    CALL(glu, out, loop_rows(run, op->op.in[1]), out, PN_ACT_SIGMOID, 0, 0, 1, 1);
  return PN_OK;
}

/* act(gate) * up, of the experts that pick names, into g. */
static pn_status open_mlp(struct loop_run* run, const struct loop_op* op, const struct part* picked,
                          const pn_k_rows* g, const pn_k_rows* u) {
  const pn_op_mlp* m = &op->params.mlp;
  pn_k_rows in = loop_rows(run, op->op.in[0]);
  struct part part = *picked;
  int fused = (m->flags & PN_MLP_FUSED) != 0, up = fused || op->op.weight[1] != PN_NO16;
  part.rows = g->width;
  TRY(product(run, op->op.weight[0], &part, &in, g));
  part.first = fused ? g->width : 0;
  if (up) TRY(product(run, op->op.weight[fused ? 0 : 1], &part, &in, u));
  int oai = m->activation == PN_ACT_SWIGLU_OAI;
  CALL(glu, *g, *g, up ? *u : none, m->activation, oai ? m->limit : 0, m->alpha, 1, 1);
  return PN_OK;
}

static pn_status do_mlp(struct loop_run* run, const struct loop_op* op) {
  const pn_op_mlp* m = &op->params.mlp;
  pn_k_rows in = loop_rows(run, op->op.in[0]), out = loop_rows(run, op->op.out[0]);
  uint32_t rows = run->p->slots[op->op.in[0]].info.rows;
  uint64_t ff = run->p->weights[op->op.weight[2]].matrix.cols;
  char* at = run->work;
  pn_k_rows g = work_rows(run, &at, rows, ff), u = work_rows(run, &at, rows, ff);
  const struct part all = {0};
  TRY(open_mlp(run, op, &all, &g, &u));
  TRY(whole(run, op->op.weight[2], &g, &out));
  TRY(scale(run, &out, m->scale));
  if (op->op.weight[3] != PN_NO16) { /* a vector is a matrix of one row */
    pn_k_rows branch = work_rows(run, &at, rows, 1);
    const pn_k_weight vector = {
        values(run, op->op.weight[3]), PN_TYPE_F32, 1, in.width, 1, in.width * sizeof(float), 0};
    CALL(matmul, branch, in, &vector, NULL, NULL, 0, NULL, 0);
    CALL(glu, branch, branch, none, PN_ACT_SIGMOID, 0, 0, 1, 1);
    CALL(binary, out, out, branch, PN_BINARY_MUL, 1);
  }
  return add(run, op->op.in[1], &out);
}

static pn_status do_router(struct loop_run* run, const struct loop_op* op) {
  const pn_op_router* r = &op->params.router;
  pn_k_rows in = loop_rows(run, op->op.in[0]), out = loop_rows(run, op->op.out[0]);
  char* at = run->work;
  pn_k_rows scores = work_rows(run, &at, run->p->slots[op->op.in[0]].info.rows, r->experts);
  TRY(whole(run, op->op.weight[0], &in, &scores));
  CALL(choose, scores, (int32_t*)(void*)out.at, out.at + r->used, out.stride, r);
  return PN_OK;
}

/* A token's answers are added in the order of its choices: the sum does not depend on who else
 * chose the expert. */
static pn_status do_experts(struct loop_run* run, const struct loop_op* op) {
  const pn_op_mlp* m = &op->params.mlp;
  pn_k_rows out = loop_rows(run, op->op.out[0]), routing = loop_rows(run, op->op.in[1]);
  uint32_t rows = run->p->slots[op->op.in[0]].info.rows;
  const pn_k_weight* down = &run->p->weights[op->op.weight[2]].matrix;
  char* at = run->work;
  pn_k_rows g = work_rows(run, &at, rows, down->cols), u = work_rows(run, &at, rows, down->cols);
  pn_k_rows y = work_rows(run, &at, rows, out.width);
  for (uint32_t k = 0; k < routing.width; ++k) {
    const int32_t* chosen = (const int32_t*)(const void*)routing.at + k;
    const struct part picked = {0, down->rows, chosen, routing.stride};
    pn_k_rows weight = {routing.at + routing.width + k, routing.stride, out.count, 1};
    TRY(open_mlp(run, op, &picked, &g, &u));
    TRY(product(run, op->op.weight[2], &picked, &g, &y));
    CALL(binary, k == 0 ? out : y, y, weight, PN_BINARY_MUL, m->scale);
    if (k != 0) CALL(binary, out, out, y, PN_BINARY_ADD, 1);
  }
  return add(run, op->op.in[2], &out);
}

static pn_status do_rowwise(struct loop_run* run, const struct loop_op* op) {
  const pn_op_elementwise* e = &op->params.elementwise;
  pn_k_rows in = loop_rows(run, op->op.in[0]), out = loop_rows(run, op->op.out[0]);
  switch (op->op.op) {
    case PN_OP_BINARY:
      CALL(binary, out, in, loop_rows(run, op->op.in[1]), e->kind, e->scale);
      return PN_OK;
    case PN_OP_COLUMNS:
      in.at += op->params.columns.first;
      CALL(columns, out, in);
      return PN_OK;
    case PN_OP_CONCAT:
      for (uint32_t k = 0; k < 6; ++k) {
        if (op->op.in[k] == PN_NO16) continue;
        in = loop_rows(run, op->op.in[k]);
        out.width = in.width;
        CALL(columns, out, in);
        out.at += in.width;
      }
      return PN_OK;
    default:
      CALL(glu, out, in, op->op.op == PN_OP_GLU ? loop_rows(run, op->op.in[1]) : none, e->kind,
           e->limit, 0, 1, e->scale);
      return PN_OK;
  }
}

static pn_status do_heads(struct loop_run* run, const struct loop_op* op) {
  const pn_op_heads* h = &op->params.heads;
  pn_k_rows in = loop_rows(run, op->op.in[0]);
  if (op->op.op == PN_OP_ROPE) {
    pn_k_rows out = loop_rows(run, op->op.out[0]);
    const struct turn how = {h->heads,          h->dim,          h->rope_kind, h->rope_dims,
                             h->rope_magnitude, op->op.weight[0]};
    CALL(columns, out, in);
    return turn(run, &out, &how);
  }
  const pn_k_cache cache = cache_of(run, h->cache, h->cache_layer);
  const pn_k_batch batch = batch_of(run, h->cache);
  CALL(append, in, loop_rows(run, op->op.in[1]), &cache, &batch);
  return PN_OK;
}

static pn_status do_rows(struct loop_run* run, const struct loop_op* op) {
  CALL(gather, loop_rows(run, op->op.out[0]), loop_rows(run, op->op.in[0]),
       (const uint32_t*)(const void*)(run->p->scratch + run->p->index_at));
  return PN_OK;
}

/* An op whose rows are the step's rows has nothing to do in a step without rows. */
static int has_rows(const struct loop_run* run, const struct loop_op* op) {
  uint16_t slot = op->op.out[0] != PN_NO16 ? op->op.out[0] : op->op.in[0];
  if (slot == PN_NO16) slot = op->op.in[1];
  return slot == PN_NO16 || count_of(run, run->p->slots[slot].info.rows) != 0;
}

pn_status loop_do_op(struct loop_run* run, const struct loop_op* op) {
  if (!has_rows(run, op)) return PN_OK;
  switch (op->op.op) {
    case PN_OP_EMBED:
      return do_embed(run, op);
    case PN_OP_NORM:
      return do_norm(run, op);
    case PN_OP_LINEAR:
      return do_linear(run, op);
    case PN_OP_QKV:
      return do_qkv(run, op);
    case PN_OP_ATTENTION:
      return do_attention(run, op);
    case PN_OP_MLP:
      return do_mlp(run, op);
    case PN_OP_ROUTER:
      return do_router(run, op);
    case PN_OP_EXPERTS:
      return do_experts(run, op);
    case PN_OP_ROWS:
      return do_rows(run, op);
    case PN_OP_EMIT:
      return loop_emit(run, op);
    case PN_OP_ROPE:
    case PN_OP_APPEND:
      return do_heads(run, op);
    default:
      return do_rowwise(run, op);
  }
}
