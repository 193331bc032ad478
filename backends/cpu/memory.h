// SPDX-License-Identifier: Apache-2.0
//
// Buffers: bytes in one of a die's three heaps, and how much memory is left.
//
// Owns mappings and their accounting. Knows no weights and no programs. The one idea: each buffer
// is its own anonymous mapping, 2 MiB aligned and advised to huge pages, so that decode (which is
// bound by reading weights) walks a thirtieth of the page-table entries.
#pragma once

#include <pantheon/device.h>
#include <pantheon/hostmem.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pn::cpu {

struct Die;

enum Heap : uint32_t { kHeapDevice, kHeapHostPinned, kHeapHostMapped, kHeapCount };
inline constexpr uint32_t kHeapImported = kHeapCount;  // not ours: counted nowhere
inline constexpr uint32_t kSliceAlignment = 64;

struct Buffer {
  Die* die = nullptr;
  uint32_t heap = kHeapDevice;
  uint32_t flags = 0;  // PN_HEAP_* that hold for it
  bool writable = true;
  std::byte* host = nullptr;
  uint64_t bytes = 0;         // as asked for
  uint64_t mapped_bytes = 0;  // as taken from the heap: whole granules
  ~Buffer();
};

// Bytes taken by the buffers of a die, of each heap.
struct HeapUse {
  std::atomic<uint64_t> bytes[kHeapCount] = {};
};

pn_status heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err);
pn_status memory_status(pn_device device, pn_memory_status* out, pn_error* err);
pn_status buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                        void** host, pn_error* err);
void buffer_destroy(pn_buffer buffer);
const pn_hostmem_api* hostmem_api();

// An address inside a live buffer, or nullptr with err filled: `what` names the slice. need_flags:
// PN_HEAP_BINDS, PN_HEAP_RESULTS or 0.
struct SliceNeed {
  const char* what;
  uint64_t bytes = 0;  // at least
  uint32_t flags = 0;
  bool writes = false;
  uint32_t alignment = 1;
};
std::byte* slice_address(const pn_slice& slice, const SliceNeed& need, pn_error* err);

// Anonymous zeroed pages for the plugin's own records; huge pages from 2 MiB on. nullptr on
// failure. Freed by unmap_pages with the same size.
std::byte* map_pages(uint64_t bytes);
void unmap_pages(std::byte* at, uint64_t bytes);

}  // namespace pn::cpu
