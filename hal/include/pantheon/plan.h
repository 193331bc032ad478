/* SPDX-License-Identifier: MIT
 *
 * The plan: what a program computes, as ops over numbered slots, weights and caches.
 */
#ifndef PANTHEON_PLAN_H
#define PANTHEON_PLAN_H

#include <pantheon/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types carry GGUF's numbers (0 F32, 1 F16, 2 Q4_0 ... 42 Q2_0). */
#define PN_TYPE_F32   0u
#define PN_TYPE_F16   1u
#define PN_TYPE_Q8_0  8u
#define PN_TYPE_I32  26u
#define PN_TYPE_BF16 30u

/* Roles say what the residence planner and the layouts may assume about a weight. */
#define PN_ROLE_MATRIX     0u  /* {in, out}: y = W x */
#define PN_ROLE_TABLE      1u  /* {width, rows}: gathered by row only */
#define PN_ROLE_TIED       2u  /* gathered by row and used as a matrix */
#define PN_ROLE_EXPERTS    3u  /* {in, out, experts}: a step reads the chosen experts' rows */
#define PN_ROLE_VECTOR     4u  /* norm weights, biases, scales, sinks: always F32 */
#define PN_ROLE_CONV       5u  /* {taps, channels} F32 */
#define PN_ROLE_ROPE       6u  /* {pairs} F32: radians per position, every scaling kind folded in */
#define PN_ROLE_ADAPTER_A  7u  /* {in, rank, adapters} */
#define PN_ROLE_ADAPTER_B  8u  /* {rank, out, adapters}, the scale folded in */
#define PN_NO16 0xffffu

/* Wherever weight W meets a row x, the result is
 *   scale * (W x) + bias + B_k (A_k x),   k the adapter of the row's lane, if it has one.
 * So biases, block scales and LoRA need no ops of their own. scale is {1} or {experts}, bias {out}
 * or {out, experts}. New adapter values are copied into the bound slices between runs. */
typedef struct pn_weight {
  uint32_t struct_size;
  uint32_t role;
  uint32_t layer;
  uint32_t source_type;
  int64_t  shape[4];      /* shape[0] is contiguous and is the input side; unused are 1 */
  uint64_t layout;        /* chosen from pantheon.layout; 0 is the source's own bytes */
  uint32_t heap;          /* where it will be bound; a query predicts with it */
  uint16_t bias;          /* index into pn_plan.weights, PN_NO16 none; the next three alike */
  uint16_t scale;
  uint16_t adapter_a;
  uint16_t adapter_b;
  uint32_t reserved;
} pn_weight; PN_PIN(pn_weight, 72);

#define PN_ROWS_TOKENS 0u  /* T: one row a token of the step */
#define PN_ROWS_OUT    1u  /* R: one row a pn_row of the step */
#define PN_SLOT_INTERNAL 0u
#define PN_SLOT_INPUT    1u /* bound; filled before the run: by a copy, or another die */
#define PN_SLOT_OUTPUT   2u /* bound; the run fills it */
typedef struct pn_slot {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t rows;          /* PN_ROWS_* */
  uint32_t width;         /* elements a row */
  uint32_t type;          /* bound: of its dense rows; internal: the least precision kept */
  uint32_t reserved;
} pn_slot; PN_PIN(pn_slot, 24);

#define PN_CACHE_PAGED 0u /* unit = page: keys, values of unit_tokens tokens in all its layers */
#define PN_CACHE_STATE 1u /* unit = state: all recurrent layers of one lane; at most one a plan */

/* A cache is a bound slice, an array of units of unit_bytes (the report says), each contiguous: so
 * COPY duplicates, swaps out or moves one, and only the plugin knows what is inside. */
typedef struct pn_cache {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t unit_tokens;   /* tokens a page: 16, 32, 64 ...; 0 for states */
  uint32_t layers;
  uint32_t key_type;      /* F16, Q8_0 ...; unsupported is refused, never replaced. States: F32 */
  uint32_t value_type;
  uint32_t units_per_lane;/* longest page table; 1 for states */
  uint32_t reserved;
} pn_cache; PN_PIN(pn_cache, 32);

typedef struct pn_shape { /* FROZEN. Upper bounds of one bucket; a run may use less of each */
  uint32_t tokens;        /* T */
  uint32_t entries;       /* S: sequences that advance */
  uint32_t rows;          /* R: rows that come out */
  uint32_t context;       /* tokens visible to one entry, itself included */
} pn_shape; PN_PIN(pn_shape, 16);

typedef struct pn_op {
  uint32_t struct_size;
  uint16_t op;            /* PN_OP_* */
  uint16_t rev;           /* a new meaning is a new rev: refuse what you do not know */
  uint32_t layer;         /* for messages and progress */
  uint32_t reserved;
  uint16_t in[6];         /* slot numbers, PN_NO16 none */
  uint16_t out[2];
  uint16_t weight[8];     /* indices into pn_plan.weights */
  const void *params;     /* the op's struct; first word its size, no pointers inside */
} pn_op; PN_PIN(pn_op, 56);

typedef struct pn_plan {
  uint32_t struct_size;
  uint32_t lanes;         /* sequences that may be alive; numbers 0 .. lanes-1 */
  uint32_t op_count;
  uint32_t slot_count;
  uint32_t weight_count;
  uint32_t cache_count;
  uint32_t shape_count;
  uint32_t ids_depth;     /* ids a lane keeps for feeding: 1, or 1 + draft length */
  const pn_op     *ops;   /* execution order; each slot is written once */
  const pn_slot   *slots;
  const pn_weight *weights;
  const pn_cache  *caches;
  const pn_shape  *shapes;
} pn_plan; PN_PIN(pn_plan, 72);

#ifdef __cplusplus
}
#endif
#endif
