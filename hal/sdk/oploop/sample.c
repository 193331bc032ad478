/* SPDX-License-Identifier: MIT
 *
 * The op-loop: from a row of logits to an id, as <pantheon/step.h> says it. Sums are in F64: the
 * formula says which id the draw falls on, and an F32 running sum over a hundred thousand ids would
 * be off by more than the rare ones weigh.
 *
 * The one idea: candidates form a heap and are taken off it best first, only as far as the cut-offs
 * and the draw look.
 */
#include <math.h>
#include <string.h>

#include "loop.h"

/* ---- u --------------------------------------------------------------------------------------- */

double loop_uniform(uint64_t seed, uint32_t position) { /* Philox4x32-10 */
  uint32_t c[4] = {position, 0, 0, 0}, k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    uint64_t a = (uint64_t)0xD2511F53 * c[0], b = (uint64_t)0xCD9E8D57 * c[2];
    const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                              (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
    memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return (c[0] >> 8) * 0x1p-24;
}

/* ---- a raw row ------------------------------------------------------------------------------- */

struct loop_logits loop_scan(const float* x, uint32_t vocab) {
  struct loop_logits out = {-INFINITY, NAN, 0, 1};
  for (uint32_t i = 0; i < vocab; ++i) {
    if (!(x[i] < INFINITY)) out.finite = 0; /* NaN or +inf; -inf is a logit that is never drawn */
    if (x[i] > out.max) {
      out.max = x[i];
      out.best = (int32_t)i;
    }
  }
  if (!out.finite) return out;
  double sum = 0;
  for (uint32_t i = 0; i < vocab; ++i) sum += exp((double)x[i] - (double)out.max);
  out.log_sum = out.max == -INFINITY ? -INFINITY : (float)((double)out.max + log(sum));
  return out;
}

/* ---- a heap of candidates: the root is the best, what was taken stands behind, backwards ------
 */

static int before(const pn_candidate* a, const pn_candidate* b) {
  return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift(pn_candidate* heap, uint32_t n, uint32_t at) {
  pn_candidate moving = heap[at];
  for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(&heap[child + 1], &heap[child])) ++child;
    if (!before(&heap[child], &moving)) break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

static void make_heap(pn_candidate* heap, const float* x, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i)
    heap[i] = (pn_candidate){(int32_t)i, isnan(x[i]) ? -INFINITY : x[i]};
  for (uint32_t i = n / 2; i-- > 0;) sift(heap, n, i);
}

/* Takes the best of the n that are left to place n - 1. */
static const pn_candidate* take(pn_candidate* heap, uint32_t n) {
  pn_candidate best = heap[0];
  heap[0] = heap[n - 1];
  sift(heap, n - 1, 0);
  heap[n - 1] = best;
  return &heap[n - 1];
}

/* The i-th best is out[vocab - 1 - i] afterwards. */
void loop_best(const float* logits, uint32_t vocab, uint32_t count, pn_candidate* out) {
  make_heap(out, logits, vocab);
  for (uint32_t i = 0; i < count && i < vocab; ++i) take(out, vocab - i);
}

/* ---- penalties, bias, mask ------------------------------------------------------------------- */

static void penalise(const struct loop_draw* d, float* x) {
  const pn_lane* s = &d->lane->setup;
  uint32_t vocab = d->p->vocab, end = d->position + 1, *counts = d->p->counts;
  if (s->penalty_tokens == 0 ||
      (s->repeat_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0))
    return;
  uint32_t from = end > s->penalty_tokens ? end - s->penalty_tokens : 0;
  if (from < s->penalty_from) from = s->penalty_from;
  memset(counts, 0, vocab * sizeof *counts);
  for (uint32_t at = from; at < end; ++at)
    if ((uint32_t)d->history[at] < vocab) ++counts[d->history[at]];
  for (uint32_t i = 0; i < vocab; ++i) {
    if (counts[i] == 0) continue;
    x[i] = x[i] > 0 ? x[i] / s->repeat_penalty : x[i] * s->repeat_penalty;
    x[i] -= (float)counts[i] * s->frequency_penalty + s->presence_penalty;
  }
}

static pn_status add_bias(const struct loop_draw* d, float* x) {
  struct {
    int32_t id;
    float add;
  } pairs[128];
  uint32_t left = d->lane->bias == NULL ? 0 : d->lane->setup.bias_count;
  for (const char* at = d->lane->bias; left != 0;) {
    uint32_t n = left < 128 ? left : 128;
    pn_status status = loop_read(d->p->device, pairs, at, n * sizeof pairs[0]);
    if (status != PN_OK) return status;
    for (uint32_t i = 0; i < n; ++i)
      if ((uint32_t)pairs[i].id < d->p->vocab) x[pairs[i].id] += pairs[i].add;
    at += n * sizeof pairs[0];
    left -= n;
  }
  return PN_OK;
}

static void mask_word(const struct loop_draw* d, float* x, uint32_t index, uint32_t word) {
  if (d->row->mask_form == PN_MASK_BITS) {
    for (uint32_t bit = 0; bit < 32 && (uint64_t)index * 32 + bit < d->p->vocab; ++bit)
      if ((word >> bit & 1) != 0) d->p->counts[index * 32 + bit] = 1;
  } else if (word < d->p->vocab) {
    d->p->counts[word] = 1;
    if (d->row->mask_form == PN_MASK_DENY) x[word] = -INFINITY;
  }
}

static pn_status mask(const struct loop_draw* d, float* x) {
  uint32_t words[256], left = d->row->mask_count, index = 0;
  if (d->row->mask_form == PN_MASK_NONE) return PN_OK;
  memset(d->p->counts, 0, d->p->vocab * sizeof(uint32_t));
  for (const char* at = d->mask; left != 0;) {
    uint32_t n = left < 256 ? left : 256;
    pn_status status = loop_read(d->p->device, words, at, n * sizeof words[0]);
    if (status != PN_OK) return status;
    for (uint32_t i = 0; i < n && (uint64_t)index * 32 < UINT32_MAX; ++i)
      mask_word(d, x, index++, words[i]);
    at += n * sizeof words[0];
    left -= n;
  }
  for (uint32_t i = 0; d->row->mask_form != PN_MASK_DENY && i < d->p->vocab; ++i)
    if (d->p->counts[i] == 0) x[i] = -INFINITY;
  return PN_OK;
}

/* ---- the draw -------------------------------------------------------------------------------- */

struct cut { /* the first n best are sorted, at the end of the heap, backwards */
  pn_candidate* heap;
  uint32_t vocab, n, limit; /* limit: no more than these may be drawn */
  float max, temperature;
  double total; /* of the weights of all that may be drawn */
};

static double weight(const struct cut* c, float logit) {
  return exp(((double)logit - (double)c->max) / (double)c->temperature);
}
static const pn_candidate* nth(struct cut* c, uint32_t i) {
  while (c->n <= i) {
    take(c->heap, c->vocab - c->n);
    ++c->n;
  }
  return &c->heap[c->vocab - 1 - i];
}

/* top_k and softmax, then top_p, then min_p: each leaves a shorter prefix and its weight. */
static void shorten(struct cut* c, const float* x, const pn_lane* s) {
  if (s->top_k != 0 && s->top_k < c->limit) {
    c->limit = s->top_k;
    for (uint32_t i = 0; i < c->limit; ++i) c->total += weight(c, nth(c, i)->logit);
  } else {
    for (uint32_t i = 0; i < c->vocab; ++i) c->total += weight(c, x[i]);
  }
  if (s->top_p < 1) {
    double target = (double)s->top_p * c->total, running = 0;
    for (uint32_t i = 0; i < c->limit; ++i) {
      running += weight(c, nth(c, i)->logit);
      if (running >= target) c->limit = i + 1;
    }
    c->total = running;
  }
  if (s->min_p > 0) {
    double running = 0;
    for (uint32_t i = 0; i < c->limit; ++i) {
      double w = weight(c, nth(c, i)->logit);
      if (w < (double)s->min_p)
        c->limit = i; /* the best weighs 1; smaller than it only when min_p is above 1 */
      else
        running += w;
    }
    c->total = running;
  }
}

static int32_t draw_from(const struct loop_draw* d, const float* x, float max) {
  struct cut c = {
      d->p->candidates, d->p->vocab, 0, d->p->vocab, max, d->lane->setup.temperature, 0};
  make_heap(c.heap, x, c.vocab);
  shorten(&c, x, &d->lane->setup);
  if (c.limit == 0) return -1;
  double target = loop_uniform(d->lane->setup.seed, d->position + 1) * c.total, running = 0;
  for (uint32_t i = 0; i < c.limit; ++i) {
    running += weight(&c, nth(&c, i)->logit);
    if (running > target) return nth(&c, i)->id;
  }
  /* Rounding may leave the sum a hair short of the total: the last one that weighs something. */
  uint32_t last = c.limit;
  while (last > 1 && weight(&c, nth(&c, last - 1)->logit) == 0) --last;
  return nth(&c, last - 1)->id;
}

pn_status loop_draw_row(const struct loop_draw* d, const struct loop_logits* facts, int32_t* id) {
  float *x = d->p->adjusted, max = -INFINITY;
  (void)facts;
  memcpy(x, d->p->raw, d->p->vocab * sizeof *x);
  penalise(d, x);
  pn_status status = add_bias(d, x);
  if (status == PN_OK) status = mask(d, x);
  if (status != PN_OK) return status;
  *id = -1;
  for (uint32_t i = 0; i < d->p->vocab; ++i) {
    if (!(x[i] > max)) continue;
    max = x[i];
    *id = (int32_t)i;
  }
  /* Nothing allowed; greedy; or a bias of infinity, which forces its id. */
  if (*id < 0 || d->lane->setup.temperature == 0 || max == INFINITY) return PN_OK;
  *id = draw_from(d, x, max);
  return PN_OK;
}
