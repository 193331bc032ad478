/* SPDX-License-Identifier: MIT
 *
 * The op-loop: a whole backend from a table of kernels.
 *
 * An author writes a pn_loop_backend (who the dies are, how their memory is taken, and about 15
 * kernels) and hands it to pn_loop_entry. The loop does the rest of the contract: handles,
 * accounts, plans, lanes, page tables, histories, queues with their threads, sampling, layouts,
 * failures.
 *
 * The one idea: the loop walks a plan op by op and calls kernels with addresses. Every address in a
 * kernel's arguments is one that alloc gave, moved by an offset: the loop never reads or writes
 * through it, but by `copy`. Only the structs of this header are the host's. Rows are F32, `stride`
 * floats apart.
 *
 * Kernels are called by one thread a queue: a copy of one queue may come beside a run of another.
 * Copies stay within a die. Kernels may return before the die is done, as long as the
 * die does them in the order of the calls. What they return: PN_OK, or PN_FAILED (the queue fails),
 * or PN_DEVICE_LOST (the die is lost until it is opened again); last_error says why.
 */
#ifndef PANTHEON_OPLOOP_H
#define PANTHEON_OPLOOP_H

#include <pantheon/hal.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pn_k_rows {
  float* at;
  uint64_t stride; /* floats from one row to the next; 0: all rows are the same one */
  uint32_t count;
  uint32_t width; /* floats a row; 1 in an operand of `binary`: one value for the whole row */
} pn_k_rows;

/* A matrix as the file has it: rows of cols elements of a GGUF type, row after row, expert after
 * expert. pn_loop_decode shows what a row says. */
typedef struct pn_k_weight {
  const void* at;
  uint32_t type;
  uint32_t experts;
  uint64_t cols, rows, row_bytes;
  uint64_t expert_bytes; /* from one expert's first row to the next one's */
} pn_k_weight;

/* What the tokens of a run are, one element a token, and the page tables of one cache. The page of
 * token t at position p is pages[table[t] * table_width + p / unit_tokens]. */
typedef struct pn_k_batch {
  uint32_t tokens;
  uint32_t table_width;
  const uint32_t* positions;
  const uint32_t* table;
  const uint32_t* pages;
} pn_k_batch;

/* One layer of a cache. In page n, which begins at base + n * unit_bytes: the key of head h of the
 * token that stands at row r of the page is at keys + (h * unit_tokens + r) * key_dim elements; the
 * value alike. Elements are F32 or F16. */
typedef struct pn_k_cache {
  void* base;
  uint64_t unit_bytes;
  uint64_t keys, values; /* byte offsets in a page */
  uint32_t unit_tokens;
  uint32_t heads, key_dim, value_dim;
  uint32_t type; /* PN_TYPE_F32 or PN_TYPE_F16 */
} pn_k_cache;

#define PN_K_WITHIN 0u     /* both ends are the die's addresses */
#define PN_K_TO_DIE 1u     /* from is host memory: done on return */
#define PN_K_FROM_DIE 2u   /* to is host memory: done on return, after all calls before it */
typedef struct pn_k_copy { /* ranges within may overlap */
  void* to;
  const void* from;
  uint64_t bytes;
  uint32_t direction;
} pn_k_copy;

typedef struct pn_k_embed { /* out row t = scale * row ids[t] of the table */
  pn_k_rows out;
  const pn_k_weight* table;
  const int32_t* ids;
  float scale;
} pn_k_embed;

typedef struct pn_k_norm { /* as PN_OP_NORM; out may be in; weight may be NULL */
  pn_k_rows out, in;
  const float* weight;
  uint32_t kind;  /* PN_NORM_* */
  uint32_t group; /* elements a norm, never 0 */
  float eps;
} pn_k_norm;

/* out row r = scale[e] * (W_e in row r) + bias_e, e = pick[r * pick_stride], or 0 without pick.
 * bias: weight->rows floats an expert. bias, scale and pick may be NULL. */
typedef struct pn_k_matmul {
  pn_k_rows out, in;
  const pn_k_weight* weight;
  const float *bias, *scale;
  uint64_t bias_stride; /* floats from one expert's bias to the next */
  const int32_t* pick;
  uint64_t pick_stride;
} pn_k_matmul;

typedef struct pn_k_rope { /* turns `heads` heads of dim floats of each row, in place */
  pn_k_rows rows;
  const uint32_t* positions;
  const float* radians; /* pairs of them: angle = position * radians[i] */
  uint32_t heads, dim;
  uint32_t kind; /* PN_ROPE_NORM or PN_ROPE_NEOX */
  uint32_t pairs;
  float magnitude; /* of cos and sin */
} pn_k_rope;

typedef struct pn_k_append { /* stores each token's keys and values at its position */
  pn_k_rows keys, values;
  const pn_k_cache* cache;
  const pn_k_batch* batch;
} pn_k_append;

typedef struct pn_k_attention { /* as PN_OP_ATTENTION; token t sees positions 0 .. its own */
  pn_k_rows out, query;
  const pn_k_cache* cache;
  const pn_k_batch* batch;
  const float* sinks; /* a logit a query head, or NULL */
  uint32_t query_heads;
  uint32_t window; /* 0: all */
  float scale, softcap;
} pn_k_attention;

/* out = out_scale * act(in_scale * gate) * up. limit, when not 0, clamps the gate to +-limit before
 * the activation; SWIGLU_OAI has its own rule. up.at may be NULL. out may be gate or up. */
typedef struct pn_k_glu {
  pn_k_rows out, gate, up;
  uint32_t activation; /* PN_ACT_* */
  float limit, alpha;
  float in_scale, out_scale;
} pn_k_glu;

typedef struct pn_k_binary { /* out = scale * (a op b); out may be a or b */
  pn_k_rows out, a, b;
  uint32_t kind; /* PN_BINARY_* */
  float scale;
} pn_k_binary;

typedef struct pn_k_gather { /* out row r = in row index[r] */
  pn_k_rows out, in;
  const uint32_t* index;
} pn_k_gather;

typedef struct pn_k_columns { /* out row r = the first out.width floats of in row r */
  pn_k_rows out, in;
} pn_k_columns;

/* As PN_OP_ROUTER, from its scores on: for row r the chosen experts in
 * experts[r * stride .. +used), best first, and their weights likewise. */
typedef struct pn_k_choose {
  pn_k_rows scores; /* may be overwritten */
  int32_t* experts;
  float* weights;
  uint64_t stride;
  const pn_op_router* how;
} pn_k_choose;

#define PN_LOOP_HEAPS_MAX 8u
typedef struct pn_loop_backend {
  uint32_t struct_size;
  uint32_t numerics;     /* PN_NUMERICS_* that the kernels keep */
  const char* name;      /* a short word, for threads and messages */
  const uint32_t* types; /* element types of matrices and tables that the kernels read */
  uint32_t type_count;
  uint32_t token_multiple;                   /* 1 when kernels do not pad */
  double bytes_per_ns, macs_per_ns, call_ns; /* for predictions; 0 unknown */

  /* The profile's options, before anything else; NULL: there are none, all are refused. PN_INVALID
   * for a key that is unknown. */
  pn_status (*option)(const char* key, const char* value, pn_error*);
  uint32_t (*device_count)(void);
  void (*device_info)(uint32_t index, pn_device_info* out); /* zeroed, struct_size is set */
  pn_status (*device_open)(uint32_t index, void** die, pn_error*);
  void (*device_close)(void* die);
  uint32_t (*heaps)(void* die, pn_heap_info list[PN_LOOP_HEAPS_MAX]); /* how many; zeroed before */
  /* host: where the host sees it, or NULL. NULL when there is no memory. */
  void* (*alloc)(void* die, uint32_t heap, uint64_t bytes, void** host);
  void (*release)(void* die, uint32_t heap, void* at, uint64_t bytes);
  /* Free bytes of heap as the driver tells, for heaps that others use too; NULL: the loop's own
   * account is all there is. PN_DEVICE_LOST is how an idle host learns of a loss. */
  pn_status (*memory)(void* die, uint32_t heap, uint64_t* free_now);
  pn_status (*sync)(void* die);                 /* until all that was called is done */
  const char* (*last_error)(void* die);         /* NULL: none */
  const void* (*get_interface)(const char* id); /* of your own; NULL none */
  void (*shutdown)(void);                       /* NULL none */

  /* Kernels. A NULL makes the ops that need it unsupported, by name. */
  pn_status (*copy)(void* die, const pn_k_copy*);
  pn_status (*embed)(void* die, const pn_k_embed*);
  pn_status (*norm)(void* die, const pn_k_norm*);
  pn_status (*matmul)(void* die, const pn_k_matmul*);
  pn_status (*rope)(void* die, const pn_k_rope*);
  pn_status (*append)(void* die, const pn_k_append*);
  pn_status (*attention)(void* die, const pn_k_attention*);
  pn_status (*glu)(void* die, const pn_k_glu*);
  pn_status (*binary)(void* die, const pn_k_binary*);
  pn_status (*gather)(void* die, const pn_k_gather*);
  pn_status (*columns)(void* die, const pn_k_columns*);
  pn_status (*choose)(void* die, const pn_k_choose*);
} pn_loop_backend;

/* What pantheon_plugin_entry_1 of such a backend returns. The backend lives as long as the process.
 */
pn_status pn_loop_entry(const pn_loop_backend* backend, const pn_host* host, const pn_plugin** out,
                        pn_error* err);
#define PN_LOOP_PLUGIN(backend)                                                                  \
  pn_status pantheon_plugin_entry_1(const pn_host* host, const pn_plugin** out, pn_error* err) { \
    return pn_loop_entry(&(backend), host, out, err);                                            \
  }                                                                                              \
  typedef int pn_loop_plugin_needs_a_semicolon

/* Fills err, when there is one, with scope CALL; gives status back. */
pn_status pn_loop_fail(pn_error* err, pn_status status, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
/* Bytes of n elements of a GGUF type; 0: a type that the loop cannot decode, or no whole blocks. */
uint64_t pn_loop_row_bytes(uint32_t type, uint64_t n);
/* n elements of a row of host memory as F32. Types: F32 F16 BF16 Q4_0 Q8_0 Q4_K Q5_K Q6_K. */
void pn_loop_decode(uint32_t type, const void* row, uint64_t n, float* out);
float pn_loop_from_f16(uint16_t bits);
uint16_t pn_loop_to_f16(float value); /* nearest, ties to even */

#ifdef __cplusplus
}
#endif
#endif
