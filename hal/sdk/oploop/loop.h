/* SPDX-License-Identifier: MIT
 *
 * The op-loop, inside: objects and what its files call in each other.
 *
 * Owns no behaviour. The one idea: a program is one block of host memory, laid out by the same
 * function that counts it, so that what a report promises is what a program takes.
 */
#ifndef PANTHEON_SDK_LOOP_H
#define PANTHEON_SDK_LOOP_H

#include <pantheon/layout.h>
#include <pantheon/oploop.h>
#include <pantheon/sampler.h>
#include <pthread.h>
#include <stdatomic.h>

#define LOOP_OBJECTS_MAX 16384u
#define LOOP_DEPTH_MAX 256u
#define LOOP_SUBMIT_BYTES ((uint64_t)2 << 20) /* all arrays of a submit, resolved */
#define LOOP_STEP_BYTES ((uint64_t)3 << 19)   /* most of it: one step */
#define LOOP_TOP_MAX 1024u
#define LOOP_ANY 0xffffffffu

enum loop_kind { LOOP_NONE, LOOP_DEVICE, LOOP_BUFFER, LOOP_PROGRAM, LOOP_QUEUE };

struct loop_device {
  uint64_t id;
  uint32_t index, heap_count;
  void* die;
  pn_heap_info heaps[PN_LOOP_HEAPS_MAX];
  _Atomic uint64_t used[PN_LOOP_HEAPS_MAX];
  _Atomic uint32_t lost;
  _Atomic uint32_t runs; /* submits with a RUN, for check_fault */
  pn_error loss;         /* written before lost is set */
};

struct loop_buffer {
  struct loop_device* device;
  char *at, *host;
  uint64_t bytes, whole;
  uint32_t heap;
};

/* ---- programs -------------------------------------------------------------------------------- */

union loop_params {
  uint32_t struct_size;
  pn_op_embed embed;
  pn_op_norm norm;
  pn_op_linear linear;
  pn_op_qkv qkv;
  pn_op_attention attention;
  pn_op_mlp mlp;
  pn_op_router router;
  pn_op_delta_net delta;
  pn_op_emit emit;
  pn_op_elementwise elementwise;
  pn_op_columns columns;
  pn_op_heads heads;
};
struct loop_op {
  pn_op op;
  union loop_params params;
  uint64_t factors_at; /* QKV with q_temperature: in the batch block, a factor a token */
};
struct loop_weight {
  pn_weight info;
  pn_k_weight matrix; /* at: NULL until bound */
};
struct loop_layer {
  uint32_t heads, key_dim, value_dim; /* 0 heads: nothing appends here */
  uint64_t keys, values;
};
struct loop_cache {
  pn_cache info;
  struct loop_layer* layers;
  uint64_t unit_bytes, units; /* units: bound */
  char* base;
  uint32_t window; /* what its readers look back over; 0 all */
  uint32_t read;
  uint32_t* tables;  /* records: (lanes, units_per_lane); NULL for states */
  uint64_t pages_at; /* in the batch block: (entries, units_per_lane) */
};
struct loop_slot {
  pn_slot info;
  uint64_t offset, stride; /* in scratch; stride in floats */
  uint32_t first, last;    /* ops between which it lives; first > last: never used */
  uint32_t floats;         /* a row, when not width: routing slots */
  uint32_t experts;        /* that a routing slot names */
  char* bound;
};
struct loop_lane {
  pn_lane setup;
  const char* bias;
  uint32_t known; /* history: positions [0, known) */
};
struct loop_held {
  uint32_t entry, token, lane, position, spoiled;
};

struct loop_program {
  uint64_t id, block_bytes, queue_id;
  struct loop_device* device;
  /* the plan */
  uint32_t lanes, ids_depth, op_count, slot_count, weight_count, cache_count, shape_count;
  uint32_t tokens, entries, rows, context; /* largest of all shapes */
  struct loop_op* ops;
  struct loop_slot* slots;
  struct loop_weight* weights;
  struct loop_cache* caches;
  pn_shape* shapes;
  pn_span* spans; /* one an op */
  /* what compiling found */
  uint32_t unsupported; /* index of the first op that cannot be done, LOOP_ANY none */
  uint32_t embeds, emits, vocab, logits_width, hidden, table_rows;
  uint64_t batch_bytes, work_at, scratch_bytes, step_bytes_max;
  uint64_t ids_at, positions_at, table_at, index_at, factors_at; /* in the batch block */
  /* bound */
  char* scratch;
  char* ids;
  /* records */
  struct loop_lane* lane;
  int32_t* history; /* (lanes, context) */
  uint32_t* spoiled;
  char* stage; /* (batch_bytes) the batch block before it is copied */
  float* raw;  /* (logits_width) a row of logits, or hidden */
  float* adjusted;
  uint32_t* counts;
  pn_candidate* candidates;
  float* held_logits; /* (held_max, vocab) */
  struct loop_held* held;
  uint32_t held_max, held_count;
};

/* ---- steps and queues ------------------------------------------------------------------------ */

struct loop_arena {
  char *at, *end;
};
struct loop_step {
  uint32_t shape, token_count, lane_count, page_count, entry_count, row_count;
  const int32_t* tokens;
  pn_lane* lanes;
  const pn_pages* pages;
  const pn_entry* entries;
  const pn_row* rows;
  const char **biases, **masks;
  char** targets;
};
struct loop_work {
  uint32_t kind;
  struct loop_program* program;
  struct loop_step step;
  pn_k_copy copy;
};
struct loop_submit {
  uint64_t value;
  uint32_t wait_count, work_count;
  pn_point* waits;
  struct loop_work* works;
};
struct loop_queue {
  uint64_t id;
  struct loop_device* device;
  uint32_t kind, depth;
  struct loop_submit* ring;
  char* arenas;
  pthread_t thread;
  _Atomic uint32_t closing;
  _Atomic uint64_t submitted, head, tail, completed;
  _Atomic uint32_t state;
  pn_error error; /* written before state leaves OK */
};

struct loop_run { /* one run, while it runs */
  struct loop_program* p;
  const struct loop_step* step;
  void* die;
  uint32_t tokens;
  char* work; /* scratch of the op that runs */
};

/* What a slice has to be. */
struct loop_need {
  const char* what;
  struct loop_device* device;
  uint64_t bytes;
  uint32_t flags; /* of its heap */
  uint32_t alignment;
};

/* entry.c */
extern const pn_loop_backend* loop_backend;
extern const pn_host* loop_host;
extern uint32_t
    loop_lost_run; /* option check_fault: the submit with a RUN that loses the die; 0 none */
struct loop_device* loop_device_of(pn_device, const char* call, pn_status* status, pn_error* err);
void loop_lose(struct loop_device*, const char* call);
pn_status loop_told(struct loop_device*,
                    pn_error* err); /* the loss, as every later call tells it */
void loop_give_error(pn_error* to, const pn_error* from);

/* objects.c */
uint64_t loop_add(enum loop_kind, void* object); /* 0: the table is full */
void* loop_find(uint64_t id, enum loop_kind);
void loop_remove(uint64_t id);
void* loop_any(enum loop_kind); /* one that is alive, for shutdown */
void loop_each(enum loop_kind, void (*visit)(void* object, void* context), void* context);

/* memory.c */
pn_status loop_heaps(pn_device, uint32_t*, pn_heap_info*, pn_error*);
pn_status loop_memory_status(pn_device, pn_memory_status*, pn_error*);
pn_status loop_buffer_create(pn_device, uint32_t, uint64_t, pn_buffer*, void**, pn_error*);
void loop_buffer_destroy(pn_buffer);
char* loop_slice(pn_slice, const struct loop_need*, pn_error*);

/* plan.c, compile.c, bind.c, program.c */
pn_status loop_read_plan(const pn_plan*, pn_plan* head, pn_error*);
void loop_lay_out(struct loop_program*, const pn_plan* head, struct loop_arena*);
pn_status loop_fill(struct loop_program*, const pn_plan* head, pn_error*);
void loop_compile(struct loop_program*);
const char* loop_op_name(uint16_t op);
uint32_t loop_params_bytes(uint16_t op);
pn_status loop_bind(struct loop_program*, uint32_t count, const pn_binding*, pn_error*);
pn_status loop_program_query(pn_device, const pn_plan*, pn_report*, pn_error*);
pn_status loop_program_create(pn_device, const pn_plan*, uint32_t, const pn_binding*, pn_program*,
                              pn_error*);
pn_status loop_program_status(pn_program, pn_program_status*, pn_error*);
void loop_program_destroy(pn_program);

/* check.c: what each op needs; returns a byte count of work, or LOOP_UNSUPPORTED with a reason */
#define LOOP_UNSUPPORTED UINT64_MAX
uint64_t loop_check_op(struct loop_program*, uint32_t index, char reason[104]);

/* layout.c */
extern const pn_layout_api loop_layout;
int loop_reads(uint32_t type); /* the backend claims it, and it can be decoded */

/* step.c, run.c, ops.c, emit.c, sample.c */
pn_status loop_resolve_step(struct loop_program*, const pn_step*, struct loop_work*,
                            struct loop_arena*, pn_error*);
void* loop_take(struct loop_arena*, uint64_t bytes);
pn_status loop_run(struct loop_program*, const struct loop_step*, pn_error*);
pn_status loop_sample(struct loop_program*, const struct loop_step*, pn_error*);
pn_status loop_do_op(struct loop_run*, const struct loop_op*);
pn_k_rows loop_rows(const struct loop_run*, uint16_t slot);
uint64_t loop_target_bytes(const struct loop_program*, const pn_row*);
pn_status loop_emit(struct loop_run*, const struct loop_op*);
extern const pn_sampler_api loop_sampler;

struct loop_logits { /* of a raw row */
  float max, log_sum;
  int32_t best;
  uint32_t finite;
};
struct loop_draw {
  const struct loop_program* p;
  const struct loop_lane* lane;
  const pn_row* row;
  const char* mask;
  const int32_t* history;
  uint32_t position; /* of the row's token; the drawn one stands behind it */
};
struct loop_logits loop_scan(const float* logits, uint32_t vocab);
pn_status loop_draw_row(const struct loop_draw*, const struct loop_logits*, int32_t* id);
void loop_best(const float* logits, uint32_t vocab, uint32_t count, pn_candidate* out);
double loop_uniform(uint64_t seed, uint32_t position);
pn_status loop_read(struct loop_device*, void* to, const char* from, uint64_t bytes);
pn_status loop_write(struct loop_device*, char* to, const void* from, uint64_t bytes);

/* queue.c, worker.c */
pn_status loop_queue_create(pn_device, uint32_t, uint32_t, pn_queue*, pn_error*);
pn_status loop_queue_submit(pn_queue, const pn_submit*, pn_error*);
pn_status loop_queue_query(uint32_t, const pn_queue*, pn_progress*, pn_error*);
pn_status loop_queue_wait(pn_point, uint64_t, pn_error*);
pn_status loop_queue_error(pn_queue, pn_error*);
void loop_queue_destroy(pn_queue);
void loop_settle(struct loop_device*); /* every queue of a lost die says so */
void loop_start(void);                 /* once, before the first queue */
extern pthread_mutex_t loop_work_mutex;
extern pthread_cond_t loop_worked, loop_queued; /* progress was made; a submit came */
void* loop_worker(void* queue);

#endif
