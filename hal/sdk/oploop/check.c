/* SPDX-License-Identifier: MIT
 *
 * The op-loop: what each op needs of slots, weights, caches and kernels, and its working bytes.
 *
 * Owns every reason for "unsupported". The one idea: an op that passes here can be run without
 * another question; ops.c asks none.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "loop.h"

struct check {
  struct loop_program* p;
  const pn_op* op;
  const union loop_params* params;
  char* reason;
  uint64_t work; /* bytes */
};

static int refuse(struct check* c, const char* format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct check* c, const char* format, ...) {
  va_list args;
  if (c->reason[0] != 0) return 0;
  va_start(args, format);
  vsnprintf(c->reason, 104, format, args);
  va_end(args);
  return 0;
}

#define NEEDS(c, kernel) \
  (loop_backend->kernel != NULL || refuse(c, "the backend has no kernel `%s`", #kernel))

static const pn_slot* in_slot(const struct check* c, uint32_t k) {
  return c->op->in[k] == PN_NO16 ? NULL : &c->p->slots[c->op->in[k]].info;
}
static const pn_slot* out_slot(const struct check* c, uint32_t k) {
  return c->op->out[k] == PN_NO16 ? NULL : &c->p->slots[c->op->out[k]].info;
}
static uint64_t most_rows(const struct check* c, uint32_t rows) {
  uint32_t count = rows == PN_ROWS_TOKENS ? c->p->tokens : c->p->rows;
  return count == 0 ? 1 : count;
}
static void work_rows(struct check* c, uint32_t rows, uint64_t width) {
  c->work += most_rows(c, rows) * ((width + 15) / 16 * 16) * sizeof(float);
}

static int slot_fits(struct check* c, const pn_slot* s, const char* which, uint64_t width,
                     uint32_t rows) {
  if (s == NULL) return refuse(c, "%s is missing", which);
  if (s->kind != PN_SLOT_INTERNAL && s->type != PN_TYPE_F32)
    return refuse(c, "%s is bound with type %u; F32 (0) is offered", which, s->type);
  if (width != 0 && s->width != width)
    return refuse(c, "%s has width %u; %llu is needed", which, s->width, (unsigned long long)width);
  if (rows != LOOP_ANY && s->rows != rows)
    return refuse(c, "%s has %s rows", which, s->rows == PN_ROWS_TOKENS ? "T" : "R");
  return 1;
}
/* Routing rows are no numbers: only the op that chooses and the one that follows know them. */
static int input(struct check* c, uint32_t k, uint64_t width, uint32_t rows) {
  static const char* const names[] = {"in[0]", "in[1]", "in[2]", "in[3]", "in[4]", "in[5]"};
  if (!slot_fits(c, in_slot(c, k), names[k], width, rows)) return 0;
  const struct loop_slot* s = &c->p->slots[c->op->in[k]];
  int routing = s->floats != s->info.width, wanted = c->op->op == PN_OP_EXPERTS && k == 1;
  if (routing != wanted) return refuse(c, "%s: only EXPERTS can read a routing slot", names[k]);
  return 1;
}
static int output(struct check* c, uint32_t k, uint64_t width, uint32_t rows) {
  return slot_fits(c, out_slot(c, k), k == 0 ? "out[0]" : "out[1]", width, rows);
}
static int nothing_else(struct check* c, uint32_t inputs, uint32_t outputs, uint32_t weights) {
  for (uint32_t k = inputs; k < 6; ++k)
    if (c->op->in[k] != PN_NO16) return refuse(c, "in[%u] has no meaning here", k);
  for (uint32_t k = outputs; k < 2; ++k)
    if (c->op->out[k] != PN_NO16) return refuse(c, "out[%u] has no meaning here", k);
  for (uint32_t k = weights; k < 8; ++k)
    if (c->op->weight[k] != PN_NO16) return refuse(c, "weight[%u] has no meaning here", k);
  return 1;
}

static int vector(struct check* c, uint16_t w, uint64_t values, const char* what) {
  if (w == PN_NO16) return refuse(c, "%s is missing", what);
  const pn_weight* info = &c->p->weights[w].info;
  const int64_t* n = info->shape;
  if (info->source_type != PN_TYPE_F32 || info->layout != 0)
    return refuse(c, "%s: weight %u must be F32 in its source layout", what, w);
  if ((uint64_t)(n[0] * n[1] * n[2] * n[3]) != values)
    return refuse(c, "%s: weight %u has %lld values; %llu are needed", what, w,
                  (long long)(n[0] * n[1] * n[2] * n[3]), (unsigned long long)values);
  return 1;
}

static int matrix(struct check* c, uint32_t k, uint64_t cols, uint64_t rows, uint32_t experts) {
  uint16_t w = c->op->weight[k];
  if (w == PN_NO16) return refuse(c, "weight[%u] is missing", k);
  const pn_weight* info = &c->p->weights[w].info;
  if (info->role > PN_ROLE_EXPERTS || (experts > 1 && info->role != PN_ROLE_EXPERTS))
    return refuse(c, "weight %u has role %u, which is no matrix here", w, info->role);
  if (!loop_reads(info->source_type))
    return refuse(c, "weight %u has type %u, which no kernel reads", w, info->source_type);
  if (info->layout != 0)
    return refuse(c, "weight %u has layout %#llx; the source's own (0) is offered", w,
                  (unsigned long long)info->layout);
  if ((uint64_t)info->shape[0] != cols || (uint64_t)info->shape[1] != rows ||
      (uint64_t)info->shape[2] != experts || info->shape[3] != 1)
    return refuse(c, "weight %u is {%lld, %lld, %lld}; {%llu, %llu, %u} is needed", w,
                  (long long)info->shape[0], (long long)info->shape[1], (long long)info->shape[2],
                  (unsigned long long)cols, (unsigned long long)rows, experts);
  if (c->p->weights[w].matrix.row_bytes == 0)
    return refuse(c, "weight %u: rows of %llu are no whole blocks", w, (unsigned long long)cols);
  if (info->adapter_a != PN_NO16 || info->adapter_b != PN_NO16)
    return refuse(c, "weight %u has adapters, which the op-loop cannot apply", w);
  if (info->bias != PN_NO16 && !vector(c, info->bias, rows * experts, "bias")) return 0;
  return info->scale == PN_NO16 || vector(c, info->scale, experts, "scale");
}

static int cache_layer(struct check* c, uint32_t cache, uint32_t layer, int append,
                       const struct loop_layer* want) {
  if (cache >= c->p->cache_count) return refuse(c, "cache %u of %u", cache, c->p->cache_count);
  struct loop_cache* have = &c->p->caches[cache];
  const pn_cache* info = &have->info;
  if (info->kind != PN_CACHE_PAGED) return refuse(c, "cache %u holds states, not pages", cache);
  if (info->key_type != info->value_type || info->key_type > PN_TYPE_F16)
    return refuse(c, "cache %u: types %u and %u; F32 (0) and F16 (1), alike, are offered", cache,
                  info->key_type, info->value_type);
  if (layer >= info->layers)
    return refuse(c, "layer %u of cache %u, which has %u", layer, cache, info->layers);
  struct loop_layer* l = &have->layers[layer];
  if (l->heads == 0 && !append)
    return refuse(c, "layer %u of cache %u: nothing before appends to it", layer, cache);
  if (l->heads == 0) *l = *want;
  if (l->heads != want->heads || l->key_dim != want->key_dim || l->value_dim != want->value_dim)
    return refuse(c, "layer %u of cache %u holds %u heads of %u and %u", layer, cache, l->heads,
                  l->key_dim, l->value_dim);
  return 1;
}

static int rope(struct check* c, uint16_t weight, uint32_t kind, uint32_t dims, uint32_t dim) {
  if (kind == PN_ROPE_NONE) return 1;
  if (kind > PN_ROPE_NEOX) return refuse(c, "rope kind %u", kind);
  if (dims == 0 || dims % 2 != 0 || dims > dim)
    return refuse(c, "rope_dims %u of a head of %u", dims, dim);
  return NEEDS(c, rope) && vector(c, weight, dims / 2, "rope");
}

/* ---- one function an op, or a family --------------------------------------------------------- */

static int check_embed(struct check* c) {
  if (!output(c, 0, 0, PN_ROWS_TOKENS) || !nothing_else(c, 0, 1, 1) || !NEEDS(c, embed)) return 0;
  if (c->op->weight[0] == PN_NO16) return refuse(c, "weight[0] is missing");
  const pn_weight* w = &c->p->weights[c->op->weight[0]].info;
  if (!matrix(c, 0, out_slot(c, 0)->width, (uint64_t)w->shape[1], 1)) return 0;
  if (w->bias != PN_NO16) return refuse(c, "a table with a bias");
  if (w->scale != PN_NO16 && !NEEDS(c, binary)) return 0;
  if (!c->p->embeds || w->shape[1] < (int64_t)c->p->table_rows)
    c->p->table_rows = (uint32_t)w->shape[1];
  c->p->embeds = 1;
  return 1;
}

static int check_norm(struct check* c) {
  const pn_op_norm* p = &c->params->norm;
  if (!input(c, 0, 0, LOOP_ANY) || !output(c, 0, in_slot(c, 0)->width, in_slot(c, 0)->rows) ||
      !nothing_else(c, 1, 1, 1) || !NEEDS(c, norm))
    return 0;
  uint32_t group = p->group == 0 ? in_slot(c, 0)->width : p->group;
  if (p->kind > PN_NORM_L2 || in_slot(c, 0)->width % group != 0)
    return refuse(c, "kind %u, groups of %u in rows of %u", p->kind, group, in_slot(c, 0)->width);
  return c->op->weight[0] == PN_NO16 || vector(c, c->op->weight[0], group, "norm");
}

static int check_linear(struct check* c) {
  if (!input(c, 0, 0, LOOP_ANY) || !output(c, 0, 0, in_slot(c, 0)->rows) ||
      !nothing_else(c, 2, 1, 1) || !NEEDS(c, matmul) || !NEEDS(c, glu) || !NEEDS(c, binary))
    return 0;
  if (in_slot(c, 1) != NULL && !input(c, 1, out_slot(c, 0)->width, in_slot(c, 0)->rows)) return 0;
  return matrix(c, 0, in_slot(c, 0)->width, out_slot(c, 0)->width, 1);
}

static int check_qkv_shape(struct check* c) {
  const pn_op_qkv* p = &c->params->qkv;
  const uint32_t known =
      PN_QKV_FUSED | PN_QKV_GATED | PN_QKV_V_NORM | PN_QKV_V_IS_K | PN_QKV_NO_APPEND;
  if ((p->flags & ~known) != 0) return refuse(c, "flags %#x", p->flags);
  if (p->query_heads == 0 || p->kv_heads == 0 || p->query_heads % p->kv_heads != 0 ||
      p->key_dim == 0 || p->value_dim == 0)
    return refuse(c, "%u query heads, %u kv heads of %u and %u", p->query_heads, p->kv_heads,
                  p->key_dim, p->value_dim);
  if ((p->flags & PN_QKV_V_IS_K) != 0 && p->key_dim != p->value_dim)
    return refuse(c, "v is k, yet heads are of %u and %u", p->key_dim, p->value_dim);
  if (p->q_temperature != 0 && !(p->q_span > 0)) return refuse(c, "q_span %g", (double)p->q_span);
  return p->q_temperature == 0 || NEEDS(c, binary);
}

static int check_qkv(struct check* c) {
  const pn_op_qkv* p = &c->params->qkv;
  if (!check_qkv_shape(c) || !input(c, 0, 0, PN_ROWS_TOKENS) || !nothing_else(c, 1, 2, 6)) return 0;
  int gated = (p->flags & PN_QKV_GATED) != 0, keys = (p->flags & PN_QKV_NO_APPEND) == 0;
  int values = keys && (p->flags & PN_QKV_V_IS_K) == 0;
  uint64_t width = in_slot(c, 0)->width, wide = (uint64_t)p->query_heads * p->key_dim;
  uint64_t q = wide * (gated ? 2 : 1), k = keys ? (uint64_t)p->kv_heads * p->key_dim : 0;
  uint64_t v = values ? (uint64_t)p->kv_heads * p->value_dim : 0;
  if (!output(c, 0, wide, PN_ROWS_TOKENS)) return 0;
  if (gated && !output(c, 1, wide, PN_ROWS_TOKENS)) return 0;
  if (!gated && out_slot(c, 1) != NULL) return refuse(c, "out[1] without GATED");
  if (!NEEDS(c, matmul) || !NEEDS(c, norm) || !NEEDS(c, columns) || !NEEDS(c, append)) return 0;
  if ((p->flags & PN_QKV_FUSED) != 0) {
    if (!matrix(c, 0, width, q + k + v, 1)) return 0;
  } else if (!matrix(c, 0, width, q, 1) || (keys && !matrix(c, 1, width, k, 1)) ||
             (values && !matrix(c, 2, width, v, 1))) {
    return 0;
  }
  if (c->op->weight[3] != PN_NO16 && !vector(c, c->op->weight[3], p->key_dim, "query norm"))
    return 0;
  if (c->op->weight[4] != PN_NO16 && !vector(c, c->op->weight[4], p->key_dim, "key norm")) return 0;
  if (!rope(c, c->op->weight[5], p->rope_kind, p->rope_dims, p->key_dim)) return 0;
  work_rows(c, PN_ROWS_TOKENS, q);
  work_rows(c, PN_ROWS_TOKENS, (uint64_t)p->kv_heads * p->key_dim);
  work_rows(c, PN_ROWS_TOKENS, (uint64_t)p->kv_heads * p->value_dim);
  const struct loop_layer layer = {p->kv_heads, p->key_dim, p->value_dim, 0, 0};
  return !keys || cache_layer(c, p->cache, p->cache_layer, 1, &layer);
}

static int check_attention(struct check* c) {
  const pn_op_attention* p = &c->params->attention;
  if (p->flags != 0 || p->reserved != 0) return refuse(c, "flags %#x", p->flags);
  if (p->query_heads == 0 || p->kv_heads == 0 || p->query_heads % p->kv_heads != 0)
    return refuse(c, "%u query heads, %u kv heads", p->query_heads, p->kv_heads);
  uint64_t values = (uint64_t)p->query_heads * p->value_dim;
  if (!input(c, 0, (uint64_t)p->query_heads * p->key_dim, PN_ROWS_TOKENS) ||
      !output(c, 0, values, PN_ROWS_TOKENS) || !nothing_else(c, 2, 1, 1) || !NEEDS(c, attention))
    return 0;
  if (in_slot(c, 1) != NULL && (!input(c, 1, values, PN_ROWS_TOKENS) || !NEEDS(c, glu))) return 0;
  if (c->op->weight[0] != PN_NO16 && !vector(c, c->op->weight[0], p->query_heads, "sinks"))
    return 0;
  const struct loop_layer layer = {p->kv_heads, p->key_dim, p->value_dim, 0, 0};
  if (!cache_layer(c, p->cache, p->cache_layer, 0, &layer)) return 0;
  struct loop_cache* cache = &c->p->caches[p->cache];
  if (!cache->read)
    cache->window = p->window;
  else if (cache->window != 0)
    cache->window = p->window == 0 ? 0 : p->window > cache->window ? p->window : cache->window;
  cache->read = 1;
  return 1;
}

/* MLP, and with routing EXPERTS: gate, up, activation, down. */
static int check_mlp(struct check* c) {
  const pn_op_mlp* p = &c->params->mlp;
  int routed = c->op->op == PN_OP_EXPERTS, fused = (p->flags & PN_MLP_FUSED) != 0;
  uint32_t residual = routed ? 2 : 1, experts = 1;
  if ((p->flags & ~PN_MLP_FUSED) != 0) return refuse(c, "flags %#x", p->flags);
  if (p->activation > PN_ACT_SWIGLU_OAI) return refuse(c, "activation %u", p->activation);
  if (!input(c, 0, 0, LOOP_ANY) || !output(c, 0, 0, in_slot(c, 0)->rows) ||
      !nothing_else(c, residual + 1, 1, routed ? 3 : 4))
    return 0;
  uint32_t rows = in_slot(c, 0)->rows;
  uint64_t width = in_slot(c, 0)->width, wide = out_slot(c, 0)->width;
  if (c->op->weight[2] == PN_NO16) return refuse(c, "weight[2] (down) is missing");
  if (routed && !input(c, 1, 0, rows)) return 0;
  if (routed) experts = c->p->slots[c->op->in[1]].experts;
  uint64_t ff = (uint64_t)c->p->weights[c->op->weight[2]].info.shape[0];
  if (fused && c->op->weight[1] != PN_NO16) return refuse(c, "weight[1] beside a fused weight[0]");
  if (p->activation == PN_ACT_SWIGLU_OAI && !fused && c->op->weight[1] == PN_NO16)
    return refuse(c, "SWIGLU_OAI needs up rows");
  if (!matrix(c, 0, width, fused ? 2 * ff : ff, experts) || !matrix(c, 2, ff, wide, experts) ||
      (c->op->weight[1] != PN_NO16 && !matrix(c, 1, width, ff, experts)))
    return 0;
  if (!routed && c->op->weight[3] != PN_NO16 && !vector(c, c->op->weight[3], width, "branch gate"))
    return 0;
  if (in_slot(c, residual) != NULL && !input(c, residual, wide, rows)) return 0;
  if (!NEEDS(c, matmul) || !NEEDS(c, glu) || !NEEDS(c, binary)) return 0;
  work_rows(c, rows, ff);
  work_rows(c, rows, ff);
  work_rows(c, rows, wide);
  work_rows(c, rows, 16);
  return 1;
}

static int check_router(struct check* c) {
  const pn_op_router* p = &c->params->router;
  if (p->gating < PN_GATE_SOFTMAX || p->gating > PN_GATE_SOFTMAX_SELECTED || p->reserved != 0)
    return refuse(c, "gating %u", p->gating);
  if (p->used == 0 || p->used > p->experts) return refuse(c, "%u of %u", p->used, p->experts);
  if (!input(c, 0, 0, LOOP_ANY) || !output(c, 0, p->used, in_slot(c, 0)->rows) ||
      !nothing_else(c, 1, 1, 1) || !NEEDS(c, matmul) || !NEEDS(c, choose) ||
      !matrix(c, 0, in_slot(c, 0)->width, p->experts, 1))
    return 0;
  if (out_slot(c, 0)->kind != PN_SLOT_INTERNAL)
    return refuse(c, "a routing slot cannot leave the program");
  c->p->slots[c->op->out[0]].floats = 2 * p->used; /* experts, then weights */
  c->p->slots[c->op->out[0]].experts = p->experts;
  work_rows(c, in_slot(c, 0)->rows, p->experts);
  return 1;
}

static int check_rows(struct check* c) {
  return input(c, 0, 0, PN_ROWS_TOKENS) && output(c, 0, in_slot(c, 0)->width, PN_ROWS_OUT) &&
         nothing_else(c, 1, 1, 0) && NEEDS(c, gather);
}

static int check_emit(struct check* c) {
  if (!nothing_else(c, 2, 0, 0)) return 0;
  for (uint32_t i = 0; &c->p->ops[i].op != c->op; ++i)
    if (c->p->ops[i].op.op == PN_OP_EMIT) return refuse(c, "a second EMIT");
  if (in_slot(c, 0) == NULL && in_slot(c, 1) == NULL) return refuse(c, "no logits, no hidden rows");
  for (uint32_t k = 0; k < 2; ++k)
    if (in_slot(c, k) != NULL && !input(c, k, 0, PN_ROWS_OUT)) return 0;
  uint32_t vocab = c->params->emit.vocab;
  if (in_slot(c, 0) != NULL &&
      (vocab == 0 || vocab > in_slot(c, 0)->width || vocab > INT32_MAX / 2))
    return refuse(c, "vocab %u of logits of width %u", vocab, in_slot(c, 0)->width);
  return 1;
}

/* BINARY, UNARY, GLU, COLUMNS, CONCAT */
static int check_rowwise(struct check* c) {
  const pn_op_elementwise* p = &c->params->elementwise;
  if (!input(c, 0, 0, LOOP_ANY)) return 0;
  uint32_t rows = in_slot(c, 0)->rows, width = in_slot(c, 0)->width;
  switch (c->op->op) {
    case PN_OP_BINARY: {
      if (!input(c, 1, 0, rows) || !nothing_else(c, 2, 1, 0) || !NEEDS(c, binary)) return 0;
      uint32_t other = in_slot(c, 1)->width;
      if (width != other && width != 1 && other != 1)
        return refuse(c, "widths %u and %u", width, other);
      if (p->kind > PN_BINARY_MUL) return refuse(c, "kind %u", p->kind);
      return output(c, 0, width > other ? width : other, rows);
    }
    case PN_OP_UNARY:
    case PN_OP_GLU:
      if (c->op->op == PN_OP_GLU && !input(c, 1, width, rows)) return 0;
      if (!nothing_else(c, c->op->op == PN_OP_GLU ? 2 : 1, 1, 0) || !NEEDS(c, glu)) return 0;
      if (p->kind > PN_ACT_TANH) return refuse(c, "activation %u", p->kind);
      return output(c, 0, width, rows);
    case PN_OP_COLUMNS:
      if (!nothing_else(c, 1, 1, 0) || !NEEDS(c, columns) || !output(c, 0, 0, rows)) return 0;
      if ((uint64_t)c->params->columns.first + out_slot(c, 0)->width > width)
        return refuse(c, "columns from %u on of %u", c->params->columns.first, width);
      return 1;
    default: {
      uint64_t sum = width;
      for (uint32_t k = 1; k < 6; ++k) {
        if (in_slot(c, k) == NULL) continue;
        if (!input(c, k, 0, rows)) return 0;
        sum += in_slot(c, k)->width;
      }
      return nothing_else(c, 6, 1, 0) && NEEDS(c, columns) && output(c, 0, sum, rows);
    }
  }
}

static int check_heads(struct check* c) {
  const pn_op_heads* p = &c->params->heads;
  if (p->heads == 0 || p->dim == 0) return refuse(c, "%u heads of %u", p->heads, p->dim);
  uint64_t width = (uint64_t)p->heads * p->dim;
  if (!input(c, 0, width, PN_ROWS_TOKENS)) return 0;
  if (c->op->op == PN_OP_ROPE)
    return output(c, 0, width, PN_ROWS_TOKENS) && nothing_else(c, 1, 1, 1) && NEEDS(c, columns) &&
           rope(c, c->op->weight[0], p->rope_kind, p->rope_dims, p->dim);
  if (!input(c, 1, 0, PN_ROWS_TOKENS) || !nothing_else(c, 2, 0, 0) || !NEEDS(c, append)) return 0;
  uint32_t values = in_slot(c, 1)->width;
  if (values % p->heads != 0) return refuse(c, "%u heads in %u values", p->heads, values);
  const struct loop_layer layer = {p->heads, p->dim, values / p->heads, 0, 0};
  return cache_layer(c, p->cache, p->cache_layer, 1, &layer);
}

static int check_one(struct check* c) {
  if (c->op->rev != 0) return refuse(c, "revision %u; 0 is known", c->op->rev);
  switch (c->op->op) {
    case PN_OP_EMBED:
      return check_embed(c);
    case PN_OP_NORM:
      return check_norm(c);
    case PN_OP_LINEAR:
      return check_linear(c);
    case PN_OP_QKV:
      return check_qkv(c);
    case PN_OP_ATTENTION:
      return check_attention(c);
    case PN_OP_MLP:
    case PN_OP_EXPERTS:
      return check_mlp(c);
    case PN_OP_ROUTER:
      return check_router(c);
    case PN_OP_ROWS:
      return check_rows(c);
    case PN_OP_EMIT:
      return check_emit(c);
    case PN_OP_BINARY:
    case PN_OP_UNARY:
    case PN_OP_GLU:
    case PN_OP_COLUMNS:
    case PN_OP_CONCAT:
      return check_rowwise(c);
    case PN_OP_ROPE:
    case PN_OP_APPEND:
      return check_heads(c);
    default:
      return refuse(c, "op %u is not in the op-loop", c->op->op);
  }
}

uint64_t loop_check_op(struct loop_program* p, uint32_t index, char reason[104]) {
  struct check c = {p, &p->ops[index].op, &p->ops[index].params, reason, 0};
  return check_one(&c) ? c.work : LOOP_UNSUPPORTED;
}
