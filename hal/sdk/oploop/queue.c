/* SPDX-License-Identifier: MIT
 *
 * The op-loop: the queue functions of the contract, up to the ring. worker.c is the other side.
 *
 * A submit is checked, resolved to addresses and copied into a slot that exists already, on the
 * host's thread. Progress is atomic words: queue_query takes no lock.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "loop.h"

static unsigned long long n(uint64_t value) { return value; }

static struct loop_queue* find(pn_queue handle, const char* call, pn_error* err) {
  struct loop_queue* q = loop_find(handle.id, LOOP_QUEUE);
  if (q == NULL) pn_loop_fail(err, PN_INVALID, "%s: queue %#llx is not alive", call, n(handle.id));
  return q;
}

/* ---- create, destroy ------------------------------------------------------------------------- */

static void let_go(struct loop_queue* q) {
  if (q->arenas != NULL) munmap(q->arenas, q->depth * LOOP_SUBMIT_BYTES);
  free(q->ring);
  free(q);
}

/* Signals are the host's: the thread is born without them. */
static int spawn(struct loop_queue* q) {
  static _Atomic uint32_t number;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int refused = pthread_create(&q->thread, NULL, loop_worker, q);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (refused != 0) return 0;
  char name[16];
  snprintf(name, sizeof name, "pn-%.8s-%u", loop_backend->name, atomic_fetch_add(&number, 1) % 100);
  pthread_setname_np(q->thread, name);
  return 1;
}

pn_status loop_queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                            pn_error* err) {
  pn_status status;
  struct loop_device* d = loop_device_of(device, "queue_create", &status, err);
  if (d == NULL) return status;
  if (out == NULL) return pn_loop_fail(err, PN_INVALID, "queue_create: out is NULL");
  if (kind > PN_QUEUE_TRANSFER || depth == 0 || depth > LOOP_DEPTH_MAX)
    return pn_loop_fail(err, PN_INVALID, "queue_create: kind %u (0 or 1), depth %u (1 to %u)", kind,
                        depth, LOOP_DEPTH_MAX);
  struct loop_queue* q = calloc(1, sizeof *q);
  if (q == NULL) return pn_loop_fail(err, PN_OUT_OF_MEMORY, "queue_create: no host memory");
  q->device = d;
  q->kind = kind;
  q->depth = depth < 8 ? 8 : depth;
  q->ring = calloc(q->depth, sizeof *q->ring);
  void* arenas = mmap(NULL, q->depth * LOOP_SUBMIT_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  q->arenas = arenas == MAP_FAILED ? NULL : arenas;
  if (q->ring != NULL && q->arenas != NULL) q->id = loop_add(LOOP_QUEUE, q);
  if (q->id == 0 || !spawn(q)) {
    if (q->id != 0) loop_remove(q->id);
    let_go(q);
    return pn_loop_fail(err, PN_OUT_OF_MEMORY, "queue_create: no memory, thread or handle is left");
  }
  out->id = q->id;
  return PN_OK;
}

void loop_queue_destroy(pn_queue handle) {
  struct loop_queue* q = loop_find(handle.id, LOOP_QUEUE);
  if (q == NULL) return;
  pthread_mutex_lock(&loop_work_mutex);
  loop_remove(q->id); /* under the lock, where workers look at the queues that they wait for */
  atomic_store(&q->closing, 1);
  pthread_cond_broadcast(&loop_queued);
  pthread_cond_broadcast(&loop_worked);
  pthread_mutex_unlock(&loop_work_mutex);
  pthread_join(q->thread, NULL);
  let_go(q);
}

/* ---- submit ---------------------------------------------------------------------------------- */

static pn_status resolve_copy(struct loop_queue* q, const pn_command* c, struct loop_work* work,
                              pn_error* err) {
  if (c->source.bytes != c->target.bytes)
    return pn_loop_fail(err, PN_INVALID, "COPY of %llu bytes to %llu", n(c->source.bytes),
                        n(c->target.bytes));
  uint32_t step = 1;
  for (uint32_t i = 0; i < q->device->heap_count; ++i)
    if (q->device->heaps[i].copy_alignment > step) step = q->device->heaps[i].copy_alignment;
  if (c->source.bytes % step != 0)
    return pn_loop_fail(err, PN_INVALID, "COPY of %llu bytes; multiples of %u", n(c->source.bytes),
                        step);
  struct loop_need need = {"COPY source", q->device, 0, 0, step};
  const char* from = loop_slice(c->source, &need, err);
  if (from == NULL) return PN_INVALID;
  need.what = "COPY target";
  char* to = loop_slice(c->target, &need, err);
  if (to == NULL) return PN_INVALID;
  work->copy = (pn_k_copy){to, from, c->source.bytes, PN_K_WITHIN};
  return PN_OK;
}

static pn_status resolve_run(struct loop_queue* q, const pn_submit* s, const pn_command* c,
                             struct loop_work* work, struct loop_arena* arena, pn_error* err) {
  struct loop_program* p = loop_find(c->program.id, LOOP_PROGRAM);
  if (p == NULL || p->device != q->device)
    return pn_loop_fail(err, PN_INVALID, "program %#llx is not alive on this die",
                        n(c->program.id));
  if (q->kind != PN_QUEUE_RUN)
    return pn_loop_fail(err, PN_INVALID, "a transfer queue takes copies only");
  if (p->queue_id != 0 && p->queue_id != q->id)
    return pn_loop_fail(err, PN_INVALID, "a program stays on one queue; this one ran on %#llx",
                        n(p->queue_id));
  if (c->step >= s->step_count)
    return pn_loop_fail(err, PN_INVALID, "step %u of a submit that has %u", c->step, s->step_count);
  work->program = p;
  work->step.shape = c->shape;
  return loop_resolve_step(p, PN_AT_CONST(pn_step, s->steps, c->step), work, arena, err);
}

static pn_status resolve(struct loop_queue* q, const pn_submit* s, struct loop_submit* slot,
                         struct loop_arena* arena, pn_error* err) {
  slot->value = s->value;
  slot->wait_count = s->wait_count;
  slot->work_count = s->command_count;
  slot->waits = loop_take(arena, s->wait_count * sizeof(pn_point));
  slot->works = loop_take(arena, s->command_count * sizeof(struct loop_work));
  if (slot->works == NULL)
    return pn_loop_fail(err, PN_INVALID, "a submit of %u commands and %u waits is too long",
                        s->command_count, s->wait_count);
  if (s->wait_count != 0) memcpy(slot->waits, s->waits, s->wait_count * sizeof(pn_point));
  for (uint32_t i = 0; i < s->command_count; ++i) {
    const pn_command* c = &s->commands[i];
    struct loop_work* work = &slot->works[i];
    pn_status status;
    memset(work, 0, sizeof *work);
    work->kind = c->kind;
    if (c->flags != 0 || c->reserved != 0)
      return pn_loop_fail(err, PN_INVALID, "command %u: flags %#x, reserved %llu", i, c->flags,
                          n(c->reserved));
    if (c->kind == PN_CMD_COPY)
      status = resolve_copy(q, c, work, err);
    else if (c->kind == PN_CMD_RUN || c->kind == PN_CMD_SAMPLE)
      status = resolve_run(q, s, c, work, arena, err);
    else
      status = pn_loop_fail(err, PN_INVALID, "command %u: kind %u is unknown", i, c->kind);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

static pn_status check(struct loop_queue* q, const pn_submit* s, pn_error* err) {
  if ((s->wait_count != 0 && s->waits == NULL) || (s->command_count != 0 && s->commands == NULL) ||
      (s->step_count != 0 && s->steps == NULL))
    return pn_loop_fail(err, PN_INVALID, "a list of the submit is NULL though it is not empty");
  uint64_t last = atomic_load_explicit(&q->submitted, memory_order_relaxed);
  if (s->value <= last)
    return pn_loop_fail(err, PN_INVALID, "value %llu is not above the queue's last, %llu",
                        n(s->value), n(last));
  if (atomic_load_explicit(&q->device->lost, memory_order_acquire) == 2)
    return loop_told(q->device, err);
  if (atomic_load_explicit(&q->state, memory_order_acquire) != PN_QUEUE_OK) {
    loop_give_error(err, &q->error);
    return q->error.code;
  }
  for (uint32_t i = 0; i < s->wait_count; ++i) {
    const struct loop_queue* other = find(s->waits[i].queue, "wait", err);
    if (other == NULL) return PN_INVALID;
    if (s->waits[i].value > atomic_load_explicit(&other->submitted, memory_order_acquire))
      return pn_loop_fail(err, PN_INVALID, "wait %u: value %llu was not submitted to its queue", i,
                          n(s->waits[i].value));
  }
  return PN_OK;
}

pn_status loop_queue_submit(pn_queue handle, const pn_submit* request, pn_error* err) {
  pn_submit s;
  struct loop_queue* q = find(handle, "queue_submit", err);
  if (q == NULL) return PN_INVALID;
  if (request == NULL) return pn_loop_fail(err, PN_INVALID, "queue_submit: submit is NULL");
  if (!pn_read(&s, sizeof s, request, sizeof s))
    return pn_loop_fail(err, PN_UNSUPPORTED, "pn_submit says something newer");
  pn_status status = check(q, &s, err);
  if (status != PN_OK) return status;
  uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
  if (head - atomic_load_explicit(&q->tail, memory_order_acquire) >= q->depth) return PN_NOT_READY;
  char* at = q->arenas + head % q->depth * LOOP_SUBMIT_BYTES;
  struct loop_arena arena = {at, at + LOOP_SUBMIT_BYTES};
  struct loop_submit* slot = &q->ring[head % q->depth];
  status = resolve(q, &s, slot, &arena, err);
  if (status != PN_OK) return status;
  for (uint32_t i = 0; i < slot->work_count; ++i)
    if (slot->works[i].program != NULL) slot->works[i].program->queue_id = q->id;
  pthread_mutex_lock(&loop_work_mutex);
  atomic_store_explicit(&q->submitted, s.value, memory_order_release);
  atomic_store_explicit(&q->head, head + 1, memory_order_release);
  pthread_cond_broadcast(&loop_queued);
  pthread_mutex_unlock(&loop_work_mutex);
  return PN_OK;
}

/* ---- progress -------------------------------------------------------------------------------- */

pn_status loop_queue_query(uint32_t count, const pn_queue* queues, pn_progress* out,
                           pn_error* err) {
  if (count != 0 && (queues == NULL || out == NULL))
    return pn_loop_fail(err, PN_INVALID, "queue_query: a list is NULL");
  for (uint32_t i = 0; i < count; ++i) {
    const struct loop_queue* q = find(queues[i], "queue_query", err);
    if (q == NULL) return PN_INVALID;
    out[i] = (pn_progress){0, atomic_load_explicit(&q->state, memory_order_acquire), 0};
    out[i].completed = atomic_load_explicit(&q->completed, memory_order_acquire);
  }
  return PN_OK;
}

static struct timespec after(uint64_t timeout_ns) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  if (timeout_ns > (uint64_t)1 << 60) timeout_ns = (uint64_t)1 << 60;
  uint64_t ns = (uint64_t)at.tv_nsec + timeout_ns % 1000000000u;
  at.tv_sec += (time_t)(timeout_ns / 1000000000u + ns / 1000000000u);
  at.tv_nsec = (long)(ns % 1000000000u);
  return at;
}

pn_status loop_queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  struct loop_queue* q = find(point.queue, "queue_wait", err);
  if (q == NULL) return PN_INVALID;
  if (loop_host->thread_check != NULL &&
      loop_host->thread_check(loop_host->self, PN_THREAD_BLOCK) == 0)
    return pn_loop_fail(err, PN_INVALID, "queue_wait: called on a serving thread");
  struct timespec end = after(timeout_ns);
  pn_status status = PN_NOT_READY;
  int timed_out = 0;
  pthread_mutex_lock(&loop_work_mutex);
  for (;;) {
    if (atomic_load_explicit(&q->completed, memory_order_acquire) >= point.value) {
      status = PN_OK;
    } else if (atomic_load_explicit(&q->state, memory_order_acquire) != PN_QUEUE_OK) {
      status = q->error.code;
      loop_give_error(err, &q->error);
    } else if (!timed_out) {
      timed_out = pthread_cond_timedwait(&loop_worked, &loop_work_mutex, &end);
      continue;
    }
    break;
  }
  pthread_mutex_unlock(&loop_work_mutex);
  return status;
}

pn_status loop_queue_error(pn_queue handle, pn_error* err) {
  const struct loop_queue* q = find(handle, "queue_error", err);
  if (q == NULL) return PN_INVALID;
  const pn_error well = {.struct_size = sizeof well, .message = "the queue is well"};
  int failed = atomic_load_explicit(&q->state, memory_order_acquire) != PN_QUEUE_OK;
  loop_give_error(err, failed ? &q->error : &well);
  return PN_OK;
}
