/* SPDX-License-Identifier: MIT
 *
 * The op-loop: the thread of a queue. Takes submits off the ring in order, waits for what they wait
 * for, runs them, and settles the queue when one fails.
 *
 * One lock for all queues orders submits, completions and destruction; nothing is computed under
 * it. What stands behind a failed submit is dropped, in order.
 */

#include "loop.h"

pthread_mutex_t loop_work_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t loop_worked, loop_queued;

static void make_conditions(void) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&loop_worked, &monotonic);
  pthread_cond_init(&loop_queued, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

void loop_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_conditions);
}

/* ---- failing --------------------------------------------------------------------------------- */

/* The lock is held. */
static void settle_one(struct loop_queue* q, const pn_error* error, uint32_t state) {
  if (atomic_load(&q->state) != PN_QUEUE_OK) return; /* the same answer until it is destroyed */
  q->error = *error;
  atomic_store_explicit(&q->state, state, memory_order_release);
}

static void settle_if_of(void* object, void* device) {
  struct loop_queue* q = object;
  struct loop_device* d = device;
  if (q->device == d) settle_one(q, &d->loss, PN_QUEUE_LOST);
}

void loop_settle(struct loop_device* d) {
  if (atomic_load_explicit(&d->lost, memory_order_acquire) != 2) return;
  pthread_mutex_lock(&loop_work_mutex);
  loop_each(LOOP_QUEUE, settle_if_of, d);
  pthread_cond_broadcast(&loop_worked);
  pthread_mutex_unlock(&loop_work_mutex);
}

/* ---- running --------------------------------------------------------------------------------- */

static const char* kind_name(uint32_t kind) {
  return kind == PN_CMD_COPY ? "COPY" : kind == PN_CMD_RUN ? "RUN" : "SAMPLE";
}

static int imitates_loss(struct loop_device* d, const struct loop_submit* s) {
  uint32_t runs = 0;
  for (uint32_t i = 0; i < s->work_count; ++i) runs |= s->works[i].kind == PN_CMD_RUN;
  return runs != 0 && atomic_fetch_add(&d->runs, 1) + 1 == loop_lost_run;
}

static pn_status execute(const struct loop_queue* q, const struct loop_submit* s, pn_error* err) {
  void* die = q->device->die;
  const char* what = "sync";
  pn_status status = imitates_loss(q->device, s) ? PN_DEVICE_LOST : PN_OK;
  for (uint32_t i = 0; status == PN_OK && i < s->work_count; ++i) {
    const struct loop_work* w = &s->works[i];
    what = kind_name(w->kind);
    if (w->kind == PN_CMD_COPY)
      status = w->copy.bytes == 0 ? PN_OK : loop_backend->copy(die, &w->copy);
    else if (w->kind == PN_CMD_RUN)
      status = loop_run(w->program, &w->step, err);
    else
      status = loop_sample(w->program, &w->step, err);
  }
  if (status == PN_OK) status = loop_backend->sync(die);
  if (status == PN_OK || err->code != 0) return status;
  const char* why = loop_backend->last_error == NULL ? NULL : loop_backend->last_error(die);
  return pn_loop_fail(err, status, "%s failed on %s die %u: %s", what, loop_backend->name,
                      q->device->index, why == NULL ? "the backend does not say why" : why);
}

/* The lock is held. 1 every wait is met, 0 not yet, -1 one can never be. */
static int waits_met(const struct loop_submit* s) {
  for (uint32_t i = 0; i < s->wait_count; ++i) {
    const struct loop_queue* other = loop_find(s->waits[i].queue.id, LOOP_QUEUE);
    if (other == NULL) return -1;
    if (atomic_load(&other->completed) >= s->waits[i].value) continue;
    return atomic_load(&other->state) == PN_QUEUE_OK ? 0 : -1;
  }
  return 1;
}

/* One submit that may run; the lock is held, and let go meanwhile. */
static void work_off(struct loop_queue* q, const struct loop_submit* s, int met) {
  pn_error error = {.struct_size = sizeof error};
  pthread_mutex_unlock(&loop_work_mutex);
  pn_status status =
      met > 0 ? execute(q, s, &error)
              : pn_loop_fail(&error, PN_FAILED, "a queue that this submit waits for has failed");
  if (status == PN_DEVICE_LOST) {
    loop_lose(q->device, "a submit");
    loop_settle(q->device);
  }
  pthread_mutex_lock(&loop_work_mutex);
  error.scope = PN_SCOPE_QUEUE;
  error.code = PN_FAILED; /* what was wrong with a step says so in the text: it did change things */
  if (status != PN_OK)
    settle_one(q, &error, PN_QUEUE_FAILED);
  else if (atomic_load(&q->state) == PN_QUEUE_OK)
    atomic_store_explicit(&q->completed, s->value, memory_order_release);
}

void* loop_worker(void* queue) {
  struct loop_queue* q = queue;
  pthread_mutex_lock(&loop_work_mutex);
  while (!atomic_load(&q->closing)) {
    uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&q->head, memory_order_acquire)) {
      pthread_cond_wait(&loop_queued, &loop_work_mutex);
      continue;
    }
    const struct loop_submit* s = &q->ring[tail % q->depth];
    if (atomic_load(&q->state) == PN_QUEUE_OK) {
      int met = waits_met(s);
      if (met == 0) {
        pthread_cond_wait(&loop_worked, &loop_work_mutex);
        continue;
      }
      work_off(q, s, met);
    }
    atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
    pthread_cond_broadcast(&loop_worked);
  }
  pthread_mutex_unlock(&loop_work_mutex);
  return NULL;
}
