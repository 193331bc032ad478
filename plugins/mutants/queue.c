/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_mutants: progress, failure, threads and the end of queues, told wrong.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutants.h"

/* ---- the last value of each queue ------------------------------------------------------------ */

static struct { _Atomic uint64_t queue, value; } last[256];

void note_submitted(pn_queue queue, uint64_t value) {
  for (uint32_t i = 0; i < 256; ++i) {
    uint64_t id = atomic_load(&last[i].queue);
    if (id != 0 && id != queue.id) continue;
    atomic_store(&last[i].queue, queue.id);
    atomic_store(&last[i].value, value);
    return;
  }
}

uint64_t last_submitted(pn_queue queue) {
  for (uint32_t i = 0; i < 256; ++i)
    if (atomic_load(&last[i].queue) == queue.id) return atomic_load(&last[i].value);
  return 0;
}

/* ---- progress -------------------------------------------------------------------------------- */

static pn_status queue_query(uint32_t count, const pn_queue* queues, pn_progress* out,
                             pn_error* err) {
  for (uint32_t i = 0; mutant("query_blocks") && i < count; ++i)
    if (real->queue_wait((pn_point){queues[i], last_submitted(queues[i])}, 0, NULL) != PN_OK) {
      real->queue_wait((pn_point){queues[i], last_submitted(queues[i])}, 60000000000u, NULL);
      usleep(100000);
    }
  pn_status status = real->queue_query(count, queues, out, err);
  if (mutant("stale_queue_taken") && status == PN_INVALID && queues != NULL && out != NULL) {
    memset(out, 0, count * sizeof *out);
    return PN_OK;
  }
  for (uint32_t i = 0; status == PN_OK && i < count; ++i) {
    if (mutant("completed_early") && out[i].state == PN_QUEUE_OK)
      out[i].completed = last_submitted(queues[i]);
    if (mutant("loss_not_settled") && out[i].state == PN_QUEUE_LOST) out[i].state = PN_QUEUE_OK;
    if (mutant("failed_value_counts") && out[i].state == PN_QUEUE_FAILED)
      out[i].completed = last_submitted(queues[i]);
  }
  return status;
}

static pn_status queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  if (mutant("wait_gives_up_at_once") && timeout_ns < 1000000000u) timeout_ns = 0;
  pn_status status = real->queue_wait(point, timeout_ns, err);
  if (mutant("timeout_is_ok") && status == PN_NOT_READY) return PN_OK;
  return status;
}

static pn_status queue_error(pn_queue queue, pn_error* err) {
  static uint32_t asked;
  pn_status status = real->queue_error(queue, err);
  if (err == NULL || err->code == 0) return status;
  if (mutant("failure_forgotten") && asked++ != 0) {
    err->code = 0;
    memset(err->message, 0, sizeof err->message);
  }
  if (mutant("loss_scope_call")) err->scope = PN_SCOPE_CALL;
  if (mutant("loss_without_recovery")) err->recovery = PN_RECOVER_NONE;
  return status;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void* never_ends(void* nothing) {
  for (;;) sleep(1000);
  return nothing;
}

static void start_thread(const char* name) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, never_ends, NULL) != 0) return;
  if (name != NULL) pthread_setname_np(thread, name);
  pthread_detach(thread);
}

static pn_status queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                              pn_error* err) {
  if (mutant("unknown_queue_kind_taken") && kind > PN_QUEUE_TRANSFER) kind = PN_QUEUE_RUN;
  pn_status status = real->queue_create(device, kind, depth, out, err);
  if (mutant("thread_left") && status == PN_OK) start_thread("pn-mutant");
  if (mutant("thread_unnamed") && status == PN_OK) start_thread(NULL);
  return status;
}

/* The real end comes later, on a thread: what is outstanding goes on. */
static void* destroy_later(void* queue) {
  pn_queue q = {(uint64_t)(uintptr_t)queue};
  real->queue_wait((pn_point){q, last_submitted(q)}, 60000000000u, NULL);
  real->queue_destroy(q);
  return NULL;
}

static void queue_destroy(pn_queue queue) {
  pthread_t thread;
  if (mutant("destroy_leaves_work") &&
      pthread_create(&thread, NULL, destroy_later, (void*)(uintptr_t)queue.id) == 0) {
    pthread_detach(thread);
    return;
  }
  real->queue_destroy(queue);
}

void mutate_queues(pn_plugin* table) {
  table->queue_create = queue_create;
  if (!mutant("borrows_arrays")) {
    table->queue_query = queue_query;
    table->queue_wait = queue_wait;
  }
  table->queue_error = queue_error;
  table->queue_destroy = queue_destroy;
}
