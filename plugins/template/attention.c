/* SPDX-License-Identifier: MIT
 *
 * backend_template: rope, and the paged cache of keys and values: append and attention.
 */
#include <math.h>
#include <string.h>

#include "die.h"

static float* row_of(const pn_k_rows* rows, uint64_t r) { return rows->at + r * rows->stride; }

/* ---- yours from here ------------------------------------------------------------------------- */

/* Angles in F64: at position 100,000 an F32 angle is off by 0.004 rad. */
static void turn_head(const pn_k_rope* k, uint32_t position, float* head) {
  for (uint32_t i = 0; i < k->pairs; ++i) {
    double angle = (double)position * (double)k->radians[i];
    float c = (float)(cos(angle) * (double)k->magnitude);
    float s = (float)(sin(angle) * (double)k->magnitude);
    uint32_t first = k->kind == PN_ROPE_NORM ? 2 * i : i;
    uint32_t second = k->kind == PN_ROPE_NORM ? 2 * i + 1 : i + k->pairs;
    float a = head[first], b = head[second];
    head[first] = a * c - b * s;
    head[second] = a * s + b * c;
  }
}

pn_status die_rope(void* die, const pn_k_rope* k) {
  (void)die;
  for (uint32_t t = 0; t < k->rows.count; ++t)
    for (uint32_t h = 0; h < k->heads; ++h)
      turn_head(k, k->positions[t], row_of(&k->rows, t) + (uint64_t)h * k->dim);
  return PN_OK;
}

/* Element 0 of what token t stored, or will store, at `position` for a head. */
static char* element(const pn_k_cache* c, const pn_k_batch* b, uint32_t t, uint32_t position) {
  uint32_t page = b->pages[(uint64_t)b->table[t] * b->table_width + position / c->unit_tokens];
  return (char*)c->base + page * c->unit_bytes;
}
static uint64_t offset(const pn_k_cache* c, uint32_t head, uint32_t position, uint32_t dim) {
  uint64_t row = (uint64_t)head * c->unit_tokens + position % c->unit_tokens;
  return row * dim * (c->type == PN_TYPE_F16 ? 2 : 4);
}

static void store(uint32_t type, const float* from, uint32_t n, char* to) {
  if (type == PN_TYPE_F32) memcpy(to, from, n * sizeof(float));
  for (uint32_t i = 0; type == PN_TYPE_F16 && i < n; ++i) {
    uint16_t bits = pn_loop_to_f16(from[i]);
    memcpy(to + 2 * i, &bits, 2);
  }
}

pn_status die_append(void* die, const pn_k_append* k) {
  const pn_k_cache* c = k->cache;
  (void)die;
  for (uint32_t t = 0; t < k->batch->tokens; ++t) {
    uint32_t position = k->batch->positions[t];
    char* page = element(c, k->batch, t, position);
    for (uint32_t h = 0; h < c->heads; ++h) {
      store(c->type, row_of(&k->keys, t) + (uint64_t)h * c->key_dim, c->key_dim,
            page + c->keys + offset(c, h, position, c->key_dim));
      store(c->type, row_of(&k->values, t) + (uint64_t)h * c->value_dim, c->value_dim,
            page + c->values + offset(c, h, position, c->value_dim));
    }
  }
  return PN_OK;
}

static float at(uint32_t type, const char* row, uint32_t i) {
  float value;
  uint16_t bits;
  if (type == PN_TYPE_F32) {
    memcpy(&value, row + 4ull * i, 4);
    return value;
  }
  memcpy(&bits, row + 2ull * i, 2);
  return pn_loop_from_f16(bits);
}

static float score(const pn_k_attention* k, const float* query, const char* key) {
  float sum = 0;
  for (uint32_t i = 0; i < k->cache->key_dim; ++i) sum += query[i] * at(k->cache->type, key, i);
  sum *= k->scale;
  return k->softcap == 0 ? sum : k->softcap * tanhf(sum / k->softcap);
}

/* One query head of one token, position after position with a running maximum: so how many are
 * seen at once, or beside which others, changes no bit. */
static void attend(const pn_k_attention* k, uint32_t t, uint32_t h, float* out) {
  const pn_k_cache* c = k->cache;
  uint32_t last = k->batch->positions[t], first = 0, group = h / (k->query_heads / c->heads);
  const float* query = row_of(&k->query, t) + (uint64_t)h * c->key_dim;
  float max = k->sinks == NULL ? -INFINITY : k->sinks[h], sum = k->sinks == NULL ? 0 : 1;
  if (k->window != 0 && last + 1 > k->window) first = last + 1 - k->window;
  memset(out, 0, c->value_dim * sizeof(float));
  for (uint32_t p = first; p <= last; ++p) {
    const char* page = element(c, k->batch, t, p);
    float s = score(k, query, page + c->keys + offset(c, group, p, c->key_dim));
    const char* value = page + c->values + offset(c, group, p, c->value_dim);
    if (s > max) {
      float keep = expf(max - s);
      sum *= keep;
      for (uint32_t i = 0; i < c->value_dim; ++i) out[i] *= keep;
      max = s;
    }
    float weight = expf(s - max);
    sum += weight;
    for (uint32_t i = 0; i < c->value_dim; ++i) out[i] += weight * at(c->type, value, i);
  }
  for (uint32_t i = 0; i < c->value_dim; ++i) out[i] /= sum;
}

pn_status die_attention(void* die, const pn_k_attention* k) {
  (void)die;
  for (uint32_t t = 0; t < k->batch->tokens; ++t)
    for (uint32_t h = 0; h < k->query_heads; ++h)
      attend(k, t, h, row_of(&k->out, t) + (uint64_t)h * k->cache->value_dim);
  return PN_OK;
}

/* ---- to here --------------------------------------------------------------------------------- */
