/* SPDX-License-Identifier: MIT
 *
 * Steps: what one run needs, as numbers and no addresses.
 */
#ifndef PANTHEON_STEP_H
#define PANTHEON_STEP_H

#include <pantheon/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A lane is a small number for a live sequence. For each lane the program keeps a page table per
 * paged cache and a sampling setup with its token history; both live as long as the program, are
 * rewritten by edits, and are lost with it. Edits obey queue order, so a page or lane may be given
 * to another sequence in the very next step. Stopping a sequence is leaving it out.
 * Tokens come from step.tokens, or from ids[lane] on the device: the second needs no host round
 * trip, so step n+1 may be queued before the ids of n are read. Positions are always given by the
 * host. */

#define PN_ENTRY_FEED 1u /* tokens are ids[lane][token .. token+count), not step.tokens */
typedef struct pn_entry { /* FROZEN. One lane advances by count consecutive tokens */
  uint32_t lane;           /* at most one entry a lane in a step */
  uint32_t count;
  uint32_t token;          /* first index: into step.tokens, or into ids[lane] with FEED */
  uint32_t position;       /* of the first token; its cache rows are overwritten from here on */
  uint32_t state_in;       /* state unit to start from; PN_NONE starts from zero */
  uint32_t state_out; /* unit that receives the state; may equal state_in. Snapshots cost no copy */
  uint32_t state_at;       /* the state after this many tokens; 0 after all. Drafts may follow */
  uint32_t flags;
} pn_entry; PN_PIN(pn_entry, 32);

typedef struct pn_pages { /* FROZEN. table[cache][lane][index + i] = page + i for i < count */
  uint32_t cache;
  uint32_t lane;
  uint32_t index;          /* position / unit_tokens */
  uint32_t page; /* unit of the cache; several lanes may share pages that none of them writes */
  uint32_t count;
  uint32_t reserved;
} pn_pages; PN_PIN(pn_pages, 24);
#define PN_LANE_RESET  1u  /* forget the table, the setup, the history */

/* History: every entry stores its tokens at their positions (a program with EMIT is told them even
 * when another die embeds), so going back to a position forgets what followed; a lane that reused a
 * prefix sends that part as history. One entry may have rows at several tokens: each sees the
 * history up to its own.
 * Sampling, in this order: penalties over the last penalty_tokens positions from penalty_from on,
 * bias, mask; temperature 0: the largest logit, the lowest id on a tie; else divide by temperature,
 * top_k, softmax, top_p, min_p, draw: by falling logit, then rising id, the first whose running sum
 * exceeds u * total. u = (x >> 8) * 2^-24, x the first word of Philox4x32-10 with key = seed and
 * counter = (position of the new token, 0, 0, 0): no draw depends on batch, die or restart. */
typedef struct pn_lane {
  uint32_t struct_size;
  uint32_t lane;
  uint32_t flags;
  uint32_t adapter;        /* PN_NONE none */
  float    temperature;
  float    top_p;          /* 1 off */
  float    min_p;          /* 0 off */
  uint32_t top_k;          /* 0 off */
  float    repeat_penalty; /* 1 off */
  float    presence_penalty;
  float    frequency_penalty;
  uint32_t penalty_tokens; /* 0 none */
  uint64_t seed;
  uint32_t penalty_from;   /* first position that counts */
  uint32_t history_token;  /* step.tokens[history_token .. +history_count) stand at */
  uint32_t history_count;
  uint32_t history_position; /* this position and after */
  uint32_t bias_count;     /* pairs {int32 id, float add} in bias */
  uint32_t reserved;
  pn_slice bias;           /* in a BINDS heap; unchanged while set */
} pn_lane; PN_PIN(pn_lane, 104);

#define PN_ROW_SAMPLE  1u  /* draw, write pn_result, and put the id in ids[lane][id_slot] */
#define PN_ROW_HOLD    2u  /* with SAMPLE: a later PN_CMD_SAMPLE draws (mask not ready yet) */
#define PN_ROW_LOGITS  4u  /* F32 [vocab], raw */
#define PN_ROW_HIDDEN  8u  /* F32 [width of EMIT's second input] */
/* BITS: a bit an id, least significant first, whole uint32, 1 allows; ALLOW, DENY: int32 ids */
#define PN_MASK_NONE  0u
#define PN_MASK_BITS  1u
#define PN_MASK_ALLOW 2u
#define PN_MASK_DENY  3u

/* target receives, in this order and as asked for: pn_result (with SAMPLE, or top > 0),
 * top * pn_candidate, logits, hidden; it lies in a RESULTS heap and may be read once the submit's
 * value is complete. */
typedef struct pn_row { /* FROZEN */
  uint32_t entry;          /* index into step.entries */
  uint32_t token;          /* 0 .. count-1 of that entry */
  uint32_t flags;
  uint32_t top;            /* candidates wanted: logprobs, or for a sampler on the host */
  uint32_t id_slot;        /* 0 .. ids_depth-1, PN_NONE: not kept */
  uint32_t mask_form;
  uint32_t mask_count;     /* words, or ids */
  uint32_t reserved;
  pn_slice mask;           /* in a BINDS heap; unchanged until complete. May be shared and cached */
  pn_slice target;
} pn_row; PN_PIN(pn_row, 80);

typedef struct pn_result { /* FROZEN */
  int32_t  id; /* -1: held, nothing allowed, or logits not finite (log_sum is then NaN) */
  float    logprob;        /* log softmax of the raw logits at id */
  float    log_sum;        /* log sum exp of the raw logits */
  uint32_t top;            /* candidates that follow */
} pn_result; PN_PIN(pn_result, 16);
/* FROZEN. Raw logits, falling, then by rising id */
typedef struct pn_candidate { int32_t id; float logit; } pn_candidate; PN_PIN(pn_candidate, 8);

typedef struct pn_step { /* lanes and pages are edited, then entries run, then rows come out */
  uint32_t struct_size;
  uint32_t token_count;
  uint32_t lane_count;
  uint32_t page_count;
  uint32_t entry_count;
  uint32_t row_count;
  const int32_t  *tokens;
  const pn_lane  *lanes;
  const pn_pages *pages;
  const pn_entry *entries;
  const pn_row   *rows;
} pn_step; PN_PIN(pn_step, 64);

#ifdef __cplusplus
}
#endif
#endif
