/* SPDX-License-Identifier: MIT
 *
 * The plugin's answer to a plan, and the binding of slices to a program.
 */
#ifndef PANTHEON_PROGRAM_H
#define PANTHEON_PROGRAM_H

#include <pantheon/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_SPAN_UNSUPPORTED 0u
#define PN_SPAN_OP          1u
#define PN_SPAN_BLOCK       2u
#define PN_SPAN_LAYER       3u
#define PN_SPAN_MODEL       4u
#define PN_NUMERICS_BATCH_INVARIANT  1u /* a row's bits do not depend on the other rows */
#define PN_NUMERICS_REPRODUCIBLE     2u /* nor on the run */
#define PN_NUMERICS_CHUNK_INVARIANT  4u /* nor on how a prompt was cut */
typedef struct pn_span { /* a run of ops that the plugin executes as one */
  uint32_t struct_size;
  uint32_t granularity;
  uint32_t first_op;
  uint32_t op_count;
  uint32_t accumulate_type;
  uint32_t numerics;
  char     reason[104];   /* UNSUPPORTED: which op, type, shape or weight, and what would work */
} pn_span; PN_PIN(pn_span, 128);

typedef struct pn_cost { /* of one full run at one shape */
  uint32_t struct_size;
  uint32_t launches;      /* driver calls or descriptors the host issues */
  uint64_t predicted_ns;
  uint64_t device_bytes;  /* read and written in device memory */
  uint64_t link_bytes;    /* over the host link: mapped weights, step, results */
} pn_cost; PN_PIN(pn_cost, 32);

typedef struct pn_report {
  uint32_t struct_size;
  uint32_t span_count;      /* in: room; out: number */
  pn_span  *spans;
  pn_cost  *costs;          /* plan->shape_count, or NULL */
  uint64_t *unit_bytes;     /* plan->cache_count: bytes a page or state, or NULL */
  uint64_t program_bytes;   /* device memory it takes itself: code, graphs, lane records */
  uint64_t program_host_bytes;
  uint64_t scratch_bytes;   /* a slice to bind; programs of one queue may share it */
  uint64_t cache_fingerprint; /* equal: caches may be shared, units move between dies */
  uint32_t token_multiple;  /* T is padded to this inside: shapes are best multiples */
  uint32_t flags;           /* PN_REPORT_* */
  uint64_t step_bytes_max;  /* arrays of one step together; more edits go in RUNs without entries */
} pn_report; PN_PIN(pn_report, 80);

#define PN_REPORT_SPLIT_EXPERTS 1u /* expert stacks may be bound in parts, in different heaps */

/* ---- binding -------------------------------------------------------------------------------- */
#define PN_BIND_WEIGHT  0u /* index into plan weights; parts are experts */
#define PN_BIND_SLOT    1u /* index of an INPUT or OUTPUT slot: rows of the largest shape */
#define PN_BIND_CACHE   2u /* bytes / unit_bytes units */
#define PN_BIND_SCRATCH 3u
#define PN_BIND_IDS     4u /* int32 ids[lanes][ids_depth]: EMIT writes, EMBED feeds */
typedef struct pn_binding { /* FROZEN */
  uint32_t kind;
  uint32_t index;
  uint32_t first_part;     /* parts not named must be named by another binding of the same weight */
  uint32_t part_count;     /* 0 all */
  pn_slice slice; /* two weights may name one slice (tied); two programs may name the same */
} pn_binding; PN_PIN(pn_binding, 40);

/* One program serves every shape of its plan: decode and prefill share weights, caches, lanes. */
#define PN_PROGRAM_BUILDING 0u
#define PN_PROGRAM_READY    1u
#define PN_PROGRAM_FAILED   2u
typedef struct pn_program_status {
  uint32_t struct_size;
  uint32_t state;
  uint32_t done;           /* of total units of work, for a progress bar */
  uint32_t total;
  uint64_t program_bytes;  /* measured, once READY */
  uint64_t program_host_bytes;
} pn_program_status; PN_PIN(pn_program_status, 32);

#ifdef __cplusplus
}
#endif
#endif
