/* SPDX-License-Identifier: MIT
 *
 * The op-loop: the table of live objects.
 *
 * A handle is generation and slot in one integer, looked up with one load and one compare: so a
 * stale or invented handle is PN_INVALID instead of a crash, and any thread may look while
 * [control] creates and destroys.
 */
#include "loop.h"

struct slot {
  _Atomic uint64_t id; /* 0 free */
  _Atomic uint32_t kind;
  void* _Atomic object;
};
static struct slot slots[LOOP_OBJECTS_MAX];
static uint64_t generation;
static uint32_t next;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

uint64_t loop_add(enum loop_kind kind, void* object) {
  uint64_t id = 0;
  pthread_mutex_lock(&mutex);
  for (uint32_t n = 0; n < LOOP_OBJECTS_MAX && id == 0; ++n) {
    uint32_t index = (next + n) % LOOP_OBJECTS_MAX;
    struct slot* slot = &slots[index];
    if (atomic_load_explicit(&slot->id, memory_order_relaxed) != 0) continue;
    next = index + 1;
    id = (++generation << 20) | (index + 1);
    atomic_store_explicit(&slot->kind, (uint32_t)kind, memory_order_relaxed);
    atomic_store_explicit(&slot->object, object, memory_order_relaxed);
    atomic_store_explicit(&slot->id, id, memory_order_release);
  }
  pthread_mutex_unlock(&mutex);
  return id;
}

void* loop_find(uint64_t id, enum loop_kind kind) {
  uint64_t index = (id & 0xfffff) - 1;
  if (index >= LOOP_OBJECTS_MAX) return NULL;
  struct slot* slot = &slots[index];
  if (atomic_load_explicit(&slot->id, memory_order_acquire) != id) return NULL;
  if (atomic_load_explicit(&slot->kind, memory_order_relaxed) != (uint32_t)kind) return NULL;
  return atomic_load_explicit(&slot->object, memory_order_relaxed);
}

void loop_remove(uint64_t id) {
  pthread_mutex_lock(&mutex);
  uint64_t index = (id & 0xfffff) - 1;
  if (index < LOOP_OBJECTS_MAX &&
      atomic_load_explicit(&slots[index].id, memory_order_relaxed) == id)
    atomic_store_explicit(&slots[index].id, 0, memory_order_release);
  pthread_mutex_unlock(&mutex);
}

void* loop_any(enum loop_kind kind) {
  void* found = NULL;
  pthread_mutex_lock(&mutex);
  for (uint32_t i = 0; i < LOOP_OBJECTS_MAX && found == NULL; ++i)
    if (atomic_load_explicit(&slots[i].id, memory_order_relaxed) != 0 &&
        atomic_load_explicit(&slots[i].kind, memory_order_relaxed) == (uint32_t)kind)
      found = atomic_load_explicit(&slots[i].object, memory_order_relaxed);
  pthread_mutex_unlock(&mutex);
  return found;
}

void loop_each(enum loop_kind kind, void (*visit)(void* object, void* context), void* context) {
  pthread_mutex_lock(&mutex);
  for (uint32_t i = 0; i < LOOP_OBJECTS_MAX; ++i)
    if (atomic_load_explicit(&slots[i].id, memory_order_relaxed) != 0 &&
        atomic_load_explicit(&slots[i].kind, memory_order_relaxed) == (uint32_t)kind)
      visit(atomic_load_explicit(&slots[i].object, memory_order_relaxed), context);
  pthread_mutex_unlock(&mutex);
}
