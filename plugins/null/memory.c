/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_null: heaps and buffers.
 *
 * Both heaps are address space of the host, touched by nobody until a copy or a row lands in it: so
 * a plan of any size can be bound, and takes no memory. The count of bytes is kept all the same,
 * since placement is tested on it.
 */
#include <sys/mman.h>

#include "null.h"

static pn_status no_device(pn_error* err, const char* call) {
  return null_fail(err, PN_INVALID, "%s: no such device", call);
}

pn_status null_heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err) {
  const pn_heap_info heaps[2] = {
      {.struct_size = sizeof(pn_heap_info),
       .kind = PN_HEAP_DEVICE,
       .flags = PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_BINDS,
       .alignment = 64,
       .copy_alignment = 1,
       .granule = NULL_PAGE_BYTES,
       .bytes_max = null_total,
       .total = null_total},
      {.struct_size = sizeof(pn_heap_info),
       .kind = PN_HEAP_HOST_PINNED,
       .flags = PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_BINDS | PN_HEAP_RESULTS,
       .alignment = 64,
       .copy_alignment = 1,
       .granule = NULL_PAGE_BYTES,
       .bytes_max = null_total,
       .total = null_total}};
  uint32_t room;
  if (null_find(device.id, KIND_DEVICE) == NULL) return no_device(err, "heaps");
  room = *count;
  *count = 2;
  if (room == 0 || infos == NULL) return PN_OK;
  for (uint32_t i = 0; i < 2 && i < room; ++i) {
    pn_write(PN_AT(pn_heap_info, infos, i), &heaps[i], sizeof heaps[i]);
  }
  return room < 2 ? PN_INCOMPLETE : PN_OK;
}

pn_status null_memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  if (null_find(device.id, KIND_DEVICE) == NULL) return no_device(err, "memory_status");
  uint64_t used = atomic_load(&null_used[0]);
  pn_memory_status status = {.struct_size = sizeof status,
                             .quality = 2,
                             .total = null_total,
                             .free_now = null_total - used,
                             .used_by_us = used,
                             .sampled_at_ns = null_host->now_ns(null_host->self)};
  pn_write(out, &status, sizeof status);
  return PN_OK;
}

/* Takes bytes of a heap, or nothing: two devices may create at once. */
static int reserve(uint32_t heap, uint64_t bytes) {
  uint64_t used = atomic_load(&null_used[heap]);
  do {
    if (bytes > null_total - used) return 0;
  } while (!atomic_compare_exchange_weak(&null_used[heap], &used, used + bytes));
  return 1;
}

pn_status null_buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                             void** host, pn_error* err) {
  if (null_find(device.id, KIND_DEVICE) == NULL) return no_device(err, "buffer_create");
  if (heap > 1) return null_fail(err, PN_INVALID, "buffer_create: no heap %u, there are 2", heap);
  if (bytes == 0) return null_fail(err, PN_INVALID, "buffer_create: 0 bytes");
  uint64_t whole = (bytes + NULL_PAGE_BYTES - 1) / NULL_PAGE_BYTES * NULL_PAGE_BYTES;
  if (whole < bytes || !reserve(heap, whole)) {
    return null_fail(
        err, PN_OUT_OF_MEMORY, "buffer_create: %llu bytes asked, %llu of %llu free in heap %u",
        (unsigned long long)bytes, (unsigned long long)(null_total - atomic_load(&null_used[heap])),
        (unsigned long long)null_total, heap);
  }
  struct object* object = null_claim(KIND_BUFFER);
  void* address = object == NULL ? MAP_FAILED
                                 : mmap(NULL, whole, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    if (object != NULL) null_release(object);
    atomic_fetch_sub(&null_used[heap], whole);
    return null_fail(err, PN_OUT_OF_MEMORY, "buffer_create: the host has no address space left");
  }
  object->as.buffer =
      (struct buffer){.host = address, .bytes = bytes, .mapped = whole, .heap = heap};
  out->id = null_publish(object);
  *host = address;
  return PN_OK;
}

void null_buffer_destroy(pn_buffer buffer) {
  struct object* object = null_find(buffer.id, KIND_BUFFER);
  if (object == NULL) return;
  struct buffer* b = &object->as.buffer;
  if (b->mapped != 0) {
    munmap(b->host, b->mapped);
    atomic_fetch_sub(&null_used[b->heap], b->mapped);
  }
  null_release(object);
}
