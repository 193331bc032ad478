/* SPDX-License-Identifier: MIT
 *
 * The op-loop: heaps, buffers, slices, and the account of bytes.
 *
 * The only place that calls alloc. The one idea: a buffer is counted in whole granules before the
 * driver is asked, so two threads cannot both get the last ones and a refusal changes nothing.
 */
#include <stdlib.h>

#include "loop.h"

static unsigned long long n(uint64_t value) { return value; }

pn_status loop_heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err) {
  pn_status status;
  struct loop_device* d = loop_device_of(device, "heaps", &status, err);
  if (d == NULL) return status;
  if (count == NULL) return pn_loop_fail(err, PN_INVALID, "heaps: count is NULL");
  uint32_t room = *count;
  *count = d->heap_count;
  if (room == 0 || infos == NULL) return PN_OK;
  for (uint32_t i = 0; i < d->heap_count && i < room; ++i) {
    pn_heap_info info = d->heaps[i];
    info.struct_size = sizeof info;
    pn_write(PN_AT(pn_heap_info, infos, i), &info, sizeof info);
  }
  return room < d->heap_count ? PN_INCOMPLETE : PN_OK;
}

/* Of the die's own memory: host heaps are the host's to count. */
pn_status loop_memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  pn_status status;
  struct loop_device* d = loop_device_of(device, "memory_status", &status, err);
  if (d == NULL) return status;
  if (out == NULL) return pn_loop_fail(err, PN_INVALID, "memory_status: out is NULL");
  pn_memory_status mine = {.struct_size = sizeof mine, .quality = 2};
  for (uint32_t i = 0; i < d->heap_count; ++i) {
    if (d->heaps[i].kind != PN_HEAP_DEVICE) continue;
    uint64_t used = atomic_load(&d->used[i]), total = d->heaps[i].total;
    uint64_t free_now = total - used;
    if (loop_backend->memory != NULL) {
      status = loop_backend->memory(d->die, i, &free_now);
      if (status == PN_DEVICE_LOST) {
        loop_lose(d, "memory_status");
        loop_settle(d);
        return loop_told(d, err);
      }
      if (status != PN_OK) free_now = total - used;
      if (free_now > total - used) free_now = total - used;
    }
    mine.total += total;
    mine.used_by_us += used;
    mine.free_now += free_now;
    mine.used_by_others += total - used - free_now;
  }
  if (loop_host->now_ns != NULL) mine.sampled_at_ns = loop_host->now_ns(loop_host->self);
  pn_write(out, &mine, sizeof mine);
  return PN_OK;
}

/* Takes bytes of a heap, or nothing. */
static int reserve(struct loop_device* d, uint32_t heap, uint64_t bytes) {
  uint64_t used = atomic_load(&d->used[heap]);
  do {
    if (bytes > d->heaps[heap].total - used) return 0;
  } while (!atomic_compare_exchange_weak(&d->used[heap], &used, used + bytes));
  return 1;
}

static pn_status no_room(struct loop_device* d, uint32_t heap, uint64_t bytes, pn_error* err) {
  return pn_loop_fail(err, PN_OUT_OF_MEMORY,
                      "buffer_create: %llu bytes asked, %llu of %llu free in heap %u", n(bytes),
                      n(d->heaps[heap].total - atomic_load(&d->used[heap])),
                      n(d->heaps[heap].total), heap);
}

pn_status loop_buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                             void** host, pn_error* err) {
  pn_status status;
  struct loop_device* d = loop_device_of(device, "buffer_create", &status, err);
  if (d == NULL) return status;
  if (out == NULL || host == NULL)
    return pn_loop_fail(err, PN_INVALID, "buffer_create: out or host is NULL");
  if (heap >= d->heap_count)
    return pn_loop_fail(err, PN_INVALID, "buffer_create: no heap %u, there are %u", heap,
                        d->heap_count);
  const pn_heap_info* info = &d->heaps[heap];
  if (bytes == 0 || bytes > info->bytes_max)
    return pn_loop_fail(err, PN_INVALID, "buffer_create: %llu bytes; 1 to %llu in heap %u",
                        n(bytes), n(info->bytes_max), heap);
  uint64_t granule = info->granule == 0 ? 1 : info->granule;
  uint64_t whole = (bytes + granule - 1) / granule * granule;
  if (whole < bytes || !reserve(d, heap, whole)) return no_room(d, heap, bytes, err);
  struct loop_buffer* b = calloc(1, sizeof *b);
  void* seen = NULL;
  void* at = b == NULL ? NULL : loop_backend->alloc(d->die, heap, whole, &seen);
  if (at != NULL) *b = (struct loop_buffer){d, at, seen, bytes, whole, heap};
  uint64_t id = at == NULL ? 0 : loop_add(LOOP_BUFFER, b);
  if (id == 0) {
    if (at != NULL) loop_backend->release(d->die, heap, at, whole);
    atomic_fetch_sub(&d->used[heap], whole);
    free(b);
    return no_room(d, heap, bytes, err);
  }
  out->id = id;
  *host = seen;
  return PN_OK;
}

void loop_buffer_destroy(pn_buffer buffer) {
  struct loop_buffer* b = loop_find(buffer.id, LOOP_BUFFER);
  if (b == NULL) return;
  loop_remove(buffer.id);
  loop_backend->release(b->device->die, b->heap, b->at, b->whole);
  atomic_fetch_sub(&b->device->used[b->heap], b->whole);
  free(b);
}

/* The die's address of a slice that is as large and lies as the need says; NULL and a message. */
char* loop_slice(pn_slice slice, const struct loop_need* need, pn_error* err) {
  const struct loop_buffer* b = loop_find(slice.buffer.id, LOOP_BUFFER);
  if (b == NULL || b->device != need->device) {
    pn_loop_fail(err, PN_INVALID, "%s: buffer %#llx is not alive on this die", need->what,
                 n(slice.buffer.id));
    return NULL;
  }
  if (slice.offset > b->bytes || slice.bytes > b->bytes - slice.offset) {
    pn_loop_fail(err, PN_INVALID, "%s: bytes %llu to %llu of a buffer of %llu", need->what,
                 n(slice.offset), n(slice.offset + slice.bytes), n(b->bytes));
    return NULL;
  }
  if (slice.bytes < need->bytes) {
    pn_loop_fail(err, PN_INVALID, "%s: the slice has %llu bytes, %llu are needed", need->what,
                 n(slice.bytes), n(need->bytes));
    return NULL;
  }
  const pn_heap_info* heap = &b->device->heaps[b->heap];
  if ((heap->flags & need->flags) != need->flags) {
    pn_loop_fail(err, PN_INVALID, "%s: heap %u has flags %#x, %#x is needed", need->what, b->heap,
                 heap->flags, need->flags);
    return NULL;
  }
  uint32_t alignment = need->alignment == 0 ? heap->alignment : need->alignment;
  if (alignment > 1 && slice.offset % alignment != 0) {
    pn_loop_fail(err, PN_INVALID, "%s: offset %llu is no multiple of %u", need->what,
                 n(slice.offset), alignment);
    return NULL;
  }
  return b->at + slice.offset;
}

/* ---- small traffic between host and die ------------------------------------------------------ */

pn_status loop_read(struct loop_device* d, void* to, const char* from, uint64_t bytes) {
  pn_k_copy copy = {to, from, bytes, PN_K_FROM_DIE};
  return loop_backend->copy(d->die, &copy);
}

pn_status loop_write(struct loop_device* d, char* to, const void* from, uint64_t bytes) {
  pn_k_copy copy = {to, from, bytes, PN_K_TO_DIE};
  return loop_backend->copy(d->die, &copy);
}
