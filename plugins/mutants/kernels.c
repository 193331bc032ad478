/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_mutants: kernels that are wrong. Each changes the arguments or the answer of the real
 * one; attention has a plain one of its own, since some mistakes sit inside its loop.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mutants.h"

static const pn_loop_backend* const right = &template_backend;

static float* row_of(const pn_k_rows* rows, uint64_t r) { return rows->at + r * rows->stride; }

/* By one part in a million: no tolerance sees it, every bit comparison does. */
static void nudge(const pn_k_rows* rows) {
  for (uint32_t r = 0; r < rows->count; ++r)
    for (uint32_t i = 0; i < rows->width; ++i) row_of(rows, r)[i] *= 1.000001f;
}

static uint32_t runs; /* calls of embed */

static pn_status embed(void* die, const pn_k_embed* given) {
  pn_k_embed k = *given;
  int32_t* ids = malloc((k.out.count + 1) * sizeof *ids);
  if (ids == NULL) return PN_FAILED;
  for (uint32_t t = 0; t < k.out.count; ++t)
    ids[t] = (int32_t)(((uint64_t)k.ids[t] + mutant("embed_next_row")) % k.table->rows);
  k.ids = ids;
  ++runs;
  if (mutant("embed_scale_dropped")) k.scale = 1;
  pn_status status = right->embed(die, &k);
  free(ids);
  return status;
}

static pn_status norm(void* die, const pn_k_norm* given) {
  pn_k_norm k = *given;
  int whole = k.group == k.in.width;
  if (mutant("norm_off_by_one_row") && k.in.count > 1 && whole && k.in.at != k.out.at) {
    k.in.at += k.in.stride; /* row r from row r + 1, the last one is left out */
    --k.in.count;
  }
  if (mutant("norm_layer_keeps_mean") && k.kind == PN_NORM_LAYER) k.kind = PN_NORM_RMS;
  if (mutant("head_norm_weight_dropped") && k.in.at == k.out.at) k.weight = NULL;
  return right->norm(die, &k);
}

static pn_status matmul(void* die, const pn_k_matmul* given) {
  pn_k_matmul k = *given;
  int32_t* pick = NULL;
  if (mutant("weight_bias_dropped")) k.bias = NULL;
  if (mutant("weight_scale_dropped")) k.scale = NULL;
  if (mutant("expert_next") && k.pick != NULL) {
    pick = malloc(k.in.count * sizeof *pick);
    if (pick == NULL) return PN_FAILED;
    for (uint32_t r = 0; r < k.in.count; ++r)
      pick[r] = (int32_t)(((uint32_t)k.pick[r * k.pick_stride] + 1) % k.weight->experts);
    k.pick = pick;
    k.pick_stride = 1;
  }
  pn_status status = right->matmul(die, &k);
  free(pick);
  if (mutant("batch_dependent") && k.in.count > 1 && k.out.width > 16) nudge(&k.out);
  if (mutant("run_dependent") && runs % 2 == 0) nudge(&k.out);
  return status;
}

static pn_status rope(void* die, const pn_k_rope* given) {
  pn_k_rope k = *given;
  if (mutant("rope_norm_as_neox") && k.kind == PN_ROPE_NORM)
    k.kind = PN_ROPE_NEOX;
  else if (mutant("rope_neox_as_norm") && k.kind == PN_ROPE_NEOX)
    k.kind = PN_ROPE_NORM;
  if (mutant("rope_magnitude_dropped")) k.magnitude = 1;
  return right->rope(die, &k);
}

/* Rows of pages that were written once are taken for written: a page that another lane had keeps
 * its old keys. */
static int written_before(const void* at) {
  static const void* seen[1u << 16];
  uint64_t slot = ((uintptr_t)at >> 4) * 0x9e3779b97f4a7c15u >> 48;
  for (uint32_t n = 0; n < 1u << 16; ++n) {
    const void** place = &seen[(slot + n) & 0xffff];
    if (*place == at) return 1;
    if (*place != NULL) continue;
    *place = at;
    return 0;
  }
  return 0;
}

static pn_status append(void* die, const pn_k_append* given) {
  pn_k_append k = *given;
  pn_k_batch one = *k.batch;
  if (!mutant("stale_page")) return right->append(die, &k);
  for (uint32_t t = 0; t < k.batch->tokens; ++t) {
    uint32_t position = k.batch->positions[t], unit = k.cache->unit_tokens;
    uint32_t page =
        k.batch->pages[(uint64_t)k.batch->table[t] * k.batch->table_width + position / unit];
    const char* at = (const char*)k.cache->base + page * k.cache->unit_bytes + k.cache->keys +
                     (uint64_t)(position % unit) * 16;
    if (written_before(at)) continue;
    one.tokens = 1;
    one.positions = k.batch->positions + t;
    one.table = k.batch->table + t;
    k.batch = &one;
    k.keys.at = given->keys.at + t * given->keys.stride;
    k.values.at = given->values.at + t * given->values.stride;
    pn_status status = right->append(die, &k);
    k.batch = given->batch;
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

/* ---- attention ------------------------------------------------------------------------------- */

static float at(uint32_t type, const char* row, uint64_t i) {
  uint16_t bits;
  float value;
  if (type == PN_TYPE_F16) {
    memcpy(&bits, row + 2 * i, 2);
    return pn_loop_from_f16(bits);
  }
  memcpy(&value, row + 4 * i, 4);
  return value;
}

static void attend(const pn_k_attention* k, uint32_t t, uint32_t h, float* out) {
  const pn_k_cache* c = k->cache;
  uint32_t last = k->batch->positions[t], bytes = c->type == PN_TYPE_F16 ? 2 : 4;
  uint32_t group =
      mutant("attention_heads_interleaved") ? h % c->heads : h / (k->query_heads / c->heads);
  const float* query = row_of(&k->query, t) + (uint64_t)h * c->key_dim;
  float sum = k->sinks == NULL ? 0 : expf(k->sinks[h]);
  uint32_t first = k->window != 0 && last + 1 > k->window ? last + 1 - k->window : 0;
  memset(out, 0, c->value_dim * sizeof(float));
  for (uint32_t p = first; p <= last; ++p) {
    uint32_t page =
        k->batch->pages[(uint64_t)k->batch->table[t] * k->batch->table_width + p / c->unit_tokens];
    const char* unit = (const char*)c->base + page * c->unit_bytes;
    uint64_t row = (uint64_t)group * c->unit_tokens + p % c->unit_tokens;
    float score = 0;
    for (uint32_t i = 0; i < c->key_dim; ++i)
      score += query[i] * at(c->type, unit + c->keys + row * c->key_dim * bytes, i);
    score *= k->scale;
    if (k->softcap != 0) score = k->softcap * tanhf(score / k->softcap);
    float weight = expf(score); /* the maximum is missing: large scores overflow */
    sum += weight;
    for (uint32_t i = 0; i < c->value_dim; ++i)
      out[i] += weight * at(c->type, unit + c->values + row * c->value_dim * bytes, i);
  }
  for (uint32_t i = 0; i < c->value_dim; ++i) out[i] /= sum;
}

static pn_status attention(void* die, const pn_k_attention* given) {
  pn_k_attention k = *given;
  if (mutant("attention_window_off_by_one") && k.window != 0) ++k.window;
  if (mutant("attention_sinks_dropped")) k.sinks = NULL;
  if (mutant("attention_softcap_dropped")) k.softcap = 0;
  if (mutant("attention_scale_dropped")) k.scale = 1;
  if (mutant("attention_long_forgets") && k.window == 0) k.window = 512;
  if (mutant("softmax_without_max") || mutant("attention_heads_interleaved")) {
    for (uint32_t t = 0; t < k.batch->tokens; ++t)
      for (uint32_t h = 0; h < k.query_heads; ++h)
        attend(&k, t, h, row_of(&k.out, t) + (uint64_t)h * k.cache->value_dim);
    return PN_OK;
  }
  pn_status status = right->attention(die, &k);
  int several = k.batch->tokens > 1 && k.batch->table[0] == k.batch->table[1];
  if (mutant("chunk_dependent") && several) nudge(&k.out);
  return status;
}

/* ---- the small ones -------------------------------------------------------------------------- */

static pn_status glu(void* die, const pn_k_glu* given) {
  pn_k_glu k = *given;
  if (mutant("silu_is_gelu") && k.activation == PN_ACT_SILU) k.activation = PN_ACT_GELU_TANH;
  if (mutant("unary_limit_dropped")) k.limit = 0;
  if (mutant("glu_sides_swapped") && k.up.at != NULL) {
    k.gate = given->up;
    k.up = given->gate;
  }
  return right->glu(die, &k);
}

static pn_status binary(void* die, const pn_k_binary* given) {
  pn_k_binary k = *given;
  if (mutant("binary_broadcast_first") && k.b.width == 1 && k.b.stride != 0) k.b.stride = 0;
  if (mutant("binary_scale_dropped")) k.scale = 1;
  return right->binary(die, &k);
}

static pn_status gather(void* die, const pn_k_gather* given) {
  pn_k_gather k = *given;
  if (!mutant("rows_off_by_one")) return right->gather(die, &k);
  for (uint32_t r = 0; r < k.out.count; ++r) {
    uint32_t from = k.index[r] == 0 ? k.in.count - 1 : k.index[r] - 1;
    memcpy(row_of(&k.out, r), row_of(&k.in, from), k.out.width * sizeof(float));
  }
  return PN_OK;
}

static pn_status choose(void* die, const pn_k_choose* given) {
  pn_k_choose k = *given;
  pn_op_router how = *k.how;
  if (mutant("router_not_renormalised")) how.renormalise = 0;
  for (uint32_t r = 0; mutant("router_tie_to_higher") && r < k.scores.count; ++r)
    for (uint32_t e = 0; e < how.experts; ++e) row_of(&k.scores, r)[e] += 1e-6f * (float)e;
  k.how = &how;
  return right->choose(die, &k);
}

static pn_status copy(void* die, const pn_k_copy* given) {
  pn_k_copy k = *given;
  if (mutant("copy_short") && k.direction == PN_K_WITHIN && k.bytes > 64) k.bytes /= 2;
  return right->copy(die, &k);
}

static void* take(void* die, uint32_t heap, uint64_t bytes, void** host) {
  static void* before;
  static uint64_t before_bytes;
  if (mutant("buffers_overlap") && before != NULL && bytes <= before_bytes) {
    *host = before;
    return before;
  }
  void* at_all = right->alloc(die, heap, bytes, host);
  before = at_all;
  before_bytes = bytes;
  return at_all;
}

static void give_back(void* die, uint32_t heap, void* where, uint64_t bytes) {
  if (mutant("buffer_leak") || mutant("buffers_overlap")) return;
  right->release(die, heap, where, bytes);
}

static void device_info(uint32_t index, pn_device_info* out) {
  right->device_info(index, out);
  if (mutant("uid_empty")) memset(out->uid, 0, sizeof out->uid);
  if (mutant("name_unterminated")) memset(out->name, 'm', sizeof out->name);
}

static pn_status device_open(uint32_t index, void** die, pn_error* err) {
  if (mutant("device_open_fails"))
    return pn_loop_fail(err, PN_FAILED, "device_open: the defect device_open_fails is on");
  return right->device_open(index, die, err);
}

void mutate_kernels(pn_loop_backend* b) {
  b->embed = embed;
  b->norm = norm;
  b->matmul = matmul;
  b->rope = rope;
  b->append = append;
  b->attention = attention;
  b->glu = glu;
  b->binary = binary;
  b->gather = gather;
  b->choose = choose;
  b->copy = copy;
  b->alloc = take;
  b->release = give_back;
  b->device_info = device_info;
  b->device_open = device_open;
}
