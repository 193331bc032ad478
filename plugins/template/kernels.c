/* SPDX-License-Identifier: MIT
 *
 * backend_template: kernels on rows, in plain C. Each row is computed the same whatever stands
 * beside it, which is what the numerics in plugin.c promise.
 */
#include <math.h>
#include <string.h>

#include "die.h"

static float* row_of(const pn_k_rows* rows, uint64_t r) { return rows->at + r * rows->stride; }

static pn_status failed(void* die, const char* why) {
  ((struct die*)die)->error = why;
  return PN_FAILED;
}

/* ---- yours from here ------------------------------------------------------------------------- */

pn_status die_copy(void* die, const pn_k_copy* k) {
  (void)die; /* k->direction says which end is yours: here both are */
  memmove(k->to, k->from, k->bytes);
  return PN_OK;
}

pn_status die_embed(void* die, const pn_k_embed* k) {
  (void)die;
  for (uint32_t t = 0; t < k->out.count; ++t) {
    const char* from = (const char*)k->table->at + (uint64_t)k->ids[t] * k->table->row_bytes;
    float* to = row_of(&k->out, t);
    pn_loop_decode(k->table->type, from, k->out.width, to);
    for (uint32_t i = 0; i < k->out.width; ++i) to[i] *= k->scale;
  }
  return PN_OK;
}

static void norm_group(const pn_k_norm* k, const float* x, float* y) {
  double sum = 0, squares = 0;
  uint32_t n = k->group;
  for (uint32_t i = 0; i < n; ++i) {
    sum += x[i];
    squares += (double)x[i] * x[i];
  }
  double mean = k->kind == PN_NORM_LAYER ? sum / n : 0;
  double divisor = sqrt(squares / n - mean * mean + k->eps);
  if (k->kind == PN_NORM_L2) divisor = sqrt(squares) > k->eps ? sqrt(squares) : k->eps;
  for (uint32_t i = 0; i < n; ++i) {
    float value = (float)((x[i] - mean) / divisor);
    y[i] = k->weight == NULL ? value : value * k->weight[i];
  }
}

pn_status die_norm(void* die, const pn_k_norm* k) {
  (void)die;
  for (uint32_t r = 0; r < k->in.count; ++r)
    for (uint32_t at = 0; at < k->in.width; at += k->group)
      norm_group(k, row_of(&k->in, r) + at, row_of(&k->out, r) + at);
  return PN_OK;
}

/* Eight sums side by side: shorter chains of additions, and less rounding. */
static float dot(const float* a, const float* b, uint64_t n) {
  float sums[8] = {0};
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (uint32_t k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

#define CHUNK 256 /* elements: whole blocks of every type */

/* One row of the matrix against one row of the input. */
static float product(const pn_k_weight* w, const char* row, const float* x) {
  float values[CHUNK], sum = 0;
  uint64_t step = pn_loop_row_bytes(w->type, CHUNK);
  for (uint64_t at = 0; at < w->cols; at += CHUNK, row += step) {
    uint64_t n = w->cols - at < CHUNK ? w->cols - at : CHUNK;
    pn_loop_decode(w->type, row, n, values);
    sum += dot(values, x + at, n);
  }
  return sum;
}

pn_status die_matmul(void* die, const pn_k_matmul* k) {
  const pn_k_weight* w = k->weight;
  for (uint32_t r = 0; r < k->in.count; ++r) {
    uint32_t e = k->pick == NULL ? 0 : (uint32_t)k->pick[r * k->pick_stride];
    if (e >= w->experts) return failed(die, "a row names an expert that is not there");
    const char* matrix = (const char*)w->at + e * w->expert_bytes;
    const float* x = row_of(&k->in, r);
    float *y = row_of(&k->out, r), scale = k->scale == NULL ? 1 : k->scale[e];
    for (uint64_t o = 0; o < w->rows; ++o) {
      float sum = scale * product(w, matrix + o * w->row_bytes, x);
      y[o] = k->bias == NULL ? sum : sum + k->bias[e * k->bias_stride + o];
    }
  }
  return PN_OK;
}

static float activate(uint32_t kind, float x) {
  switch (kind) {
    case PN_ACT_SILU:
      return x / (1 + expf(-x));
    case PN_ACT_GELU_TANH:
      return 0.5f * x * (1 + tanhf(0.7978845608f * x * (1 + 0.044715f * x * x)));
    case PN_ACT_SIGMOID:
      return 1 / (1 + expf(-x));
    case PN_ACT_SOFTPLUS:
      return x > 20 ? x : log1pf(expf(x));
    case PN_ACT_TANH:
      return tanhf(x);
    default:
      return x;
  }
}

static float clamp(float x, float limit) { return x > limit ? limit : x < -limit ? -limit : x; }

pn_status die_glu(void* die, const pn_k_glu* k) {
  (void)die;
  for (uint32_t r = 0; r < k->out.count; ++r) {
    const float *gate = row_of(&k->gate, r), *up = k->up.at == NULL ? NULL : row_of(&k->up, r);
    float* out = row_of(&k->out, r);
    for (uint32_t i = 0; i < k->out.width; ++i) {
      float g = k->in_scale * gate[i];
      if (k->activation == PN_ACT_SWIGLU_OAI) {
        float u = up == NULL ? 0 : clamp(up[i], k->limit);
        if (g > k->limit) g = k->limit;
        out[i] = k->out_scale * (g / (1 + expf(-k->alpha * g)) * (u + 1));
        continue;
      }
      if (k->limit != 0) g = clamp(g, k->limit);
      g = activate(k->activation, g);
      out[i] = k->out_scale * (up == NULL ? g : g * up[i]);
    }
  }
  return PN_OK;
}

pn_status die_binary(void* die, const pn_k_binary* k) {
  (void)die;
  uint32_t step_a = k->a.width == 1 ? 0 : 1, step_b = k->b.width == 1 ? 0 : 1;
  for (uint32_t r = 0; r < k->out.count; ++r) {
    const float *a = row_of(&k->a, r), *b = row_of(&k->b, r);
    float* out = row_of(&k->out, r);
    for (uint32_t i = 0; i < k->out.width; ++i) {
      float x = a[i * step_a], y = b[i * step_b];
      out[i] = k->scale * (k->kind == PN_BINARY_ADD ? x + y : x * y);
    }
  }
  return PN_OK;
}

pn_status die_gather(void* die, const pn_k_gather* k) {
  (void)die;
  for (uint32_t r = 0; r < k->out.count; ++r)
    memmove(row_of(&k->out, r), row_of(&k->in, k->index[r]), k->out.width * sizeof(float));
  return PN_OK;
}

pn_status die_columns(void* die, const pn_k_columns* k) {
  (void)die;
  for (uint32_t r = 0; r < k->out.count; ++r)
    memmove(row_of(&k->out, r), row_of(&k->in, r), k->out.width * sizeof(float));
  return PN_OK;
}

/* ---- which experts a row goes to ------------------------------------------------------------- */

/* The best of the scores not taken yet; a tie goes to the lower expert. */
static uint32_t best_left(const float* scores, uint32_t n, const int32_t* taken, uint32_t count) {
  uint32_t best = 0;
  int found = 0;
  for (uint32_t e = 0; e < n; ++e) {
    int used = 0;
    for (uint32_t k = 0; k < count; ++k) used |= taken[k] == (int32_t)e;
    if (used || (found && !(scores[e] > scores[best]))) continue;
    best = e;
    found = 1;
  }
  return best;
}

static void softmax(float* x, uint32_t n) {
  float max = x[0], sum = 0;
  for (uint32_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  for (uint32_t i = 0; i < n; ++i) sum += x[i] = expf(x[i] - max);
  for (uint32_t i = 0; i < n; ++i) x[i] /= sum;
}

static void choose_row(const pn_op_router* how, float* scores, int32_t* experts, float* weights) {
  if (how->gating == PN_GATE_SOFTMAX) softmax(scores, how->experts);
  for (uint32_t e = 0; how->gating == PN_GATE_SIGMOID && e < how->experts; ++e)
    scores[e] = activate(PN_ACT_SIGMOID, scores[e]);
  for (uint32_t k = 0; k < how->used; ++k) {
    experts[k] = (int32_t)best_left(scores, how->experts, experts, k);
    weights[k] = scores[experts[k]];
  }
  if (how->gating == PN_GATE_SOFTMAX_SELECTED) softmax(weights, how->used);
  float divisor = 1;
  if (how->renormalise != 0) {
    divisor = 0;
    for (uint32_t k = 0; k < how->used; ++k) divisor += weights[k];
    if (divisor < how->sum_min) divisor = how->sum_min;
  }
  for (uint32_t k = 0; k < how->used; ++k) weights[k] = weights[k] / divisor * how->scale;
}

pn_status die_choose(void* die, const pn_k_choose* k) {
  (void)die;
  for (uint32_t r = 0; r < k->scores.count; ++r)
    choose_row(k->how, row_of(&k->scores, r), k->experts + r * k->stride,
               k->weights + r * k->stride);
  return PN_OK;
}

/* ---- to here --------------------------------------------------------------------------------- */
