/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_null, shared by its files: errors, the object table, what each kind of object holds.
 *
 * The one idea: a handle is a number, index and generation, looked up in one static table. So a
 * stale or invented handle is PN_INVALID instead of a crash, and any thread may look while
 * [control] creates and destroys.
 */
#ifndef PLUGINS_NULL_H
#define PLUGINS_NULL_H

#include <pantheon/hal.h>
#include <pthread.h>
#include <stdatomic.h>

#define NULL_OBJECTS_MAX 16384u
#define NULL_PAGE_BYTES 4096u /* what a cache unit takes: nothing is stored in it */

enum { KIND_NONE, KIND_DEVICE, KIND_BUFFER, KIND_PROGRAM, KIND_QUEUE };

struct buffer {
  void* host;
  uint64_t bytes;
  uint64_t mapped; /* bytes to unmap; 0 when imported */
  uint32_t heap;
};
struct program {
  uint32_t lanes, ids_depth, shape_count, vocab, hidden_width;
  pn_slice ids;
};
struct queue {
  uint32_t depth;
  _Atomic uint64_t completed; /* equals the last submitted: everything completes in the submit */
};
struct object {
  _Atomic uint64_t id; /* 0 free */
  uint32_t kind;
  uint32_t generation;
  union {
    struct buffer buffer;
    struct program program;
    struct queue queue;
  } as;
};

/* plugin.c */
extern const pn_host* null_host;
extern _Atomic uint64_t null_used[2]; /* bytes taken of each heap */
extern uint64_t null_total;           /* of each heap */
pn_status null_fail(pn_error* err, pn_status status, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
/* A free slot of the table, NULL when full; publish makes it findable and returns its id. */
struct object* null_claim(uint32_t kind);
uint64_t null_publish(struct object* object);
void null_release(struct object* object);
struct object* null_find(uint64_t id, uint32_t kind);
/* The host address of a slice, NULL when it is not inside a live buffer. */
void* null_at(pn_slice slice);

/* memory.c */
pn_status null_heaps(pn_device, uint32_t*, pn_heap_info*, pn_error*);
pn_status null_memory_status(pn_device, pn_memory_status*, pn_error*);
pn_status null_buffer_create(pn_device, uint32_t, uint64_t, pn_buffer*, void**, pn_error*);
void null_buffer_destroy(pn_buffer);

/* program.c */
pn_status null_program_query(pn_device, const pn_plan*, pn_report*, pn_error*);
pn_status null_program_create(pn_device, const pn_plan*, uint32_t, const pn_binding*, pn_program*,
                              pn_error*);
pn_status null_program_status(pn_program, pn_program_status*, pn_error*);
void null_program_destroy(pn_program);

/* queue.c */
pn_status null_queue_create(pn_device, uint32_t, uint32_t, pn_queue*, pn_error*);
pn_status null_queue_submit(pn_queue, const pn_submit*, pn_error*);
pn_status null_queue_query(uint32_t, const pn_queue*, pn_progress*, pn_error*);
pn_status null_queue_wait(pn_point, uint64_t, pn_error*);
pn_status null_queue_error(pn_queue, pn_error*);
void null_queue_destroy(pn_queue);

/* interfaces.c */
const void* null_get_interface(const char* id);

#endif
