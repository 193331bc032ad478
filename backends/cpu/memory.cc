// SPDX-License-Identifier: Apache-2.0
//
// Heaps of a die as anonymous mappings, imports of the host's own, and what is left. See memory.h.
#include "backends/cpu/memory.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "backends/cpu/device.h"
#include "backends/cpu/error.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Where a mapping starts; its length is whole small pages, which is what the heap counts.
uint64_t alignment_of(uint64_t bytes) { return bytes >= kHugePage ? kHugePage : kPage; }

// Keeps the pages of a die near its cores where the machine has several nodes.
void prefer_node(std::byte* at, uint64_t bytes, int32_t node) {
  if (node < 0 || node >= 64 || state()->machine.nodes.size() < 2) return;
  unsigned long mask = 1ul << node;
  syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, &mask, sizeof(mask) * 8, 0);
}

// memory_status is polled: the files are read at most every 20 ms, and never by two threads at once
// (reading them takes 50 to 100 us on a busy host).
HostMemory recent_memory() {
  struct Cache {
    std::atomic<uint64_t> read_at{0}, total{0}, available{0}, own_anon{0};
    std::atomic<bool> busy{false};
  };
  static Cache cache;
  const uint64_t now = now_ns(), read_at = cache.read_at.load(std::memory_order_acquire);
  const bool stale = read_at == 0 || now - read_at > 20'000'000;
  if (stale && !cache.busy.exchange(true)) {
    const HostMemory memory = read_host_memory();
    cache.total.store(memory.total, std::memory_order_relaxed);
    cache.available.store(memory.available, std::memory_order_relaxed);
    cache.own_anon.store(memory.own_anon, std::memory_order_relaxed);
    cache.read_at.store(now, std::memory_order_release);
    cache.busy.store(false, std::memory_order_release);
    return memory;
  }
  if (read_at == 0) return read_host_memory();  // another thread is at the very first
  return {cache.total.load(std::memory_order_relaxed),
          cache.available.load(std::memory_order_relaxed),
          cache.own_anon.load(std::memory_order_relaxed)};
}

// What buffers hold but no page backs yet counts as taken: MemAvailable does not know of it.
uint64_t available_now(const HostMemory& memory) {
  uint64_t promised = 0;
  state()->dies.each([&](Die& die) {
    for (auto& used : die.use.bytes) promised += used.load(std::memory_order_relaxed);
  });
  const uint64_t untouched = promised - std::min(promised, memory.own_anon);
  return memory.available - std::min(memory.available, untouched);
}

void describe_heap(const Die& die, uint32_t heap, pn_heap_info* out) {
  static constexpr uint32_t kKinds[] = {PN_HEAP_DEVICE, PN_HEAP_HOST_PINNED, PN_HEAP_HOST_MAPPED};
  static constexpr uint32_t kFlags[] = {
      PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_BINDS | PN_HEAP_RESULTS,
      PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_RESULTS,
      PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_BINDS | PN_HEAP_RESULTS};
  out->struct_size = sizeof(*out);
  out->kind = kKinds[heap];
  out->flags = kFlags[heap];
  out->alignment = kSliceAlignment;
  out->copy_alignment = 1;
  out->granule = kPage;
  out->total = heap == kHeapDevice && die.cap_bytes != 0 ? die.cap_bytes : die.node.total_bytes;
  out->bytes_max = out->total;
}

pn_status import_memory(pn_device device, const pn_import* request, pn_buffer* out, pn_error* err) {
  return guarded(err, [&] {
    Die* die = find_die(device, err);
    if (die == nullptr) return PN_INVALID;
    pn_import in = {};
    if (request == nullptr || out == nullptr) return fail(err, PN_INVALID, "import: NULL argument");
    if (!pn_read(&in, sizeof(in), request, 40))
      return fail(err, PN_UNSUPPORTED, "pn_import says something newer than this plugin knows");
    if (in.address == nullptr || in.bytes == 0 || in.access == 0 || in.access > 3)
      return fail(err, PN_INVALID, "import needs an address, bytes and an access of 1 to 3");
    if ((in.use & ~(PN_HEAP_BINDS | PN_HEAP_RESULTS)) != 0)
      return fail(err, PN_INVALID, "import: use %#x has bits besides BINDS and RESULTS", in.use);
    auto buffer = std::make_unique<Buffer>();
    buffer->die = die;
    buffer->heap = kHeapImported;
    buffer->flags = in.use;
    buffer->writable = (in.access & 2) != 0;
    buffer->host = static_cast<std::byte*>(in.address);
    buffer->bytes = in.bytes;
    out->id = state()->buffers.add(std::move(buffer));
    if (out->id == 0) return fail(err, PN_OUT_OF_MEMORY, "too many buffers are alive");
    return PN_OK;
  });
}

}  // namespace

Buffer::~Buffer() {
  if (heap == kHeapImported || host == nullptr) return;
  unmap_pages(host, mapped_bytes);
  die->use.bytes[heap].fetch_sub(mapped_bytes, std::memory_order_relaxed);
}

std::byte* map_pages(uint64_t bytes) {
  const uint64_t size = round_up(bytes, kPage), alignment = alignment_of(bytes);
  const uint64_t slack = alignment == kPage ? 0 : alignment;
  void* raw = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* at = static_cast<std::byte*>(raw);
  if (slack != 0) {
    const auto start = reinterpret_cast<uintptr_t>(at);
    const uint64_t head = round_up(start, alignment) - start;
    if (head != 0) munmap(at, head);
    if (slack != head) munmap(at + head + size, slack - head);
    at += head;
    madvise(at, size, MADV_HUGEPAGE);
  }
  return at;
}

void unmap_pages(std::byte* at, uint64_t bytes) {
  if (at != nullptr) munmap(at, round_up(bytes, kPage));
}

pn_status heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err) {
  Die* die = find_die(device, err);
  if (die == nullptr) return PN_INVALID;
  if (count == nullptr) return fail(err, PN_INVALID, "heaps: count is NULL");
  const uint32_t room = *count;
  *count = kHeapCount;
  if (room == 0) return PN_OK;
  if (infos == nullptr) return fail(err, PN_INVALID, "heaps: infos is NULL");
  for (uint32_t i = 0; i < std::min<uint32_t>(room, kHeapCount); ++i) {
    pn_heap_info info = {};
    describe_heap(*die, i, &info);
    pn_write(PN_AT(pn_heap_info, infos, i), &info, sizeof(info));
  }
  return room < kHeapCount ? PN_INCOMPLETE : PN_OK;
}

pn_status memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  Die* die = find_die(device, err);
  if (die == nullptr) return PN_INVALID;
  if (out == nullptr) return fail(err, PN_INVALID, "memory_status: out is NULL");
  const HostMemory memory = recent_memory();
  const uint64_t available = available_now(memory);
  pn_memory_status now = {};
  now.struct_size = sizeof(now);
  now.quality = 1;
  now.used_by_us = die->use.bytes[kHeapDevice].load(std::memory_order_relaxed);
  if (die->cap_bytes != 0) {
    now.total = die->cap_bytes;
    now.free_now = std::min(available, die->cap_bytes - std::min(die->cap_bytes, now.used_by_us));
  } else {
    now.total = std::min(die->node.total_bytes, memory.total);
    now.free_now = std::min(available, now.total);
  }
  const uint64_t taken = now.total - std::min(now.total, now.free_now);
  now.used_by_others = taken - std::min(taken, now.used_by_us);
  now.sampled_at_ns = now_ns();
  pn_write(out, &now, sizeof(now));
  return PN_OK;
}

pn_status buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                        void** host, pn_error* err) {
  return guarded(err, [&]() -> pn_status {
    Die* die = find_die(device, err);
    if (die == nullptr) return PN_INVALID;
    if (out == nullptr || host == nullptr)
      return fail(err, PN_INVALID, "buffer_create: out or host is NULL");
    if (heap >= kHeapCount)
      return fail(err, PN_INVALID, "heap %u of cpu die %u: it has heaps 0 to %u", heap, die->index,
                  kHeapCount - 1);
    if (bytes == 0) return fail(err, PN_INVALID, "buffer_create: 0 bytes were asked for");
    const uint64_t size = bytes > UINT64_MAX / 2 ? bytes : round_up(bytes, kPage);
    auto& used = die->use.bytes[heap];
    const uint64_t before = used.load(std::memory_order_relaxed);
    if (heap == kHeapDevice && die->cap_bytes != 0 &&
        (size > die->cap_bytes || before > die->cap_bytes - size))
      return fail(err, PN_OUT_OF_MEMORY,
                  "cpu die %u: %llu MiB asked for, %llu of its cap of %llu MiB are taken (option "
                  "dies)",
                  die->index, static_cast<unsigned long long>(size >> 20),
                  static_cast<unsigned long long>(before >> 20),
                  static_cast<unsigned long long>(die->cap_bytes >> 20));
    // More than the die has is not to be had, however much the host may find: a container's limit.
    const uint64_t available = std::min(available_now(read_host_memory()), die->node.total_bytes);
    if (size > available)
      return fail(err, PN_OUT_OF_MEMORY,
                  "cpu die %u: %llu MiB asked for, %llu MiB of host memory are available",
                  die->index, static_cast<unsigned long long>(size >> 20),
                  static_cast<unsigned long long>(available >> 20));
    auto buffer = std::make_unique<Buffer>();
    std::byte* at = map_pages(size);
    if (at == nullptr)
      return fail(err, PN_OUT_OF_MEMORY, "the kernel refused a mapping of %llu MiB",
                  static_cast<unsigned long long>(size >> 20));
    prefer_node(at, size, die->node.id);
    pn_heap_info info = {};
    describe_heap(*die, heap, &info);
    used.fetch_add(size, std::memory_order_relaxed);
    buffer->die = die;
    buffer->heap = heap;
    buffer->flags = info.flags;
    buffer->host = at;
    buffer->bytes = bytes;
    buffer->mapped_bytes = size;
    const uint64_t id = state()->buffers.add(std::move(buffer));
    if (id == 0) return fail(err, PN_OUT_OF_MEMORY, "too many buffers are alive");
    out->id = id;
    *host = at;
    return PN_OK;
  });
}

void buffer_destroy(pn_buffer buffer) { state()->buffers.remove(buffer.id); }

const pn_hostmem_api* hostmem_api() {
  static const pn_hostmem_api api = {sizeof(pn_hostmem_api), 1, import_memory};
  return &api;
}

std::byte* slice_address(const pn_slice& slice, const SliceNeed& need, pn_error* err) {
  const Buffer* buffer = state()->buffers.find(slice.buffer.id);
  const auto number = [](uint64_t v) { return static_cast<unsigned long long>(v); };
  if (buffer == nullptr) {
    fail(err, PN_INVALID, "%s: buffer %#llx is not alive", need.what, number(slice.buffer.id));
    return nullptr;
  }
  if (slice.offset > buffer->bytes || slice.bytes > buffer->bytes - slice.offset) {
    fail(err, PN_INVALID, "%s: bytes %llu + %llu reach past the buffer's %llu", need.what,
         number(slice.offset), number(slice.bytes), number(buffer->bytes));
    return nullptr;
  }
  if (slice.bytes < need.bytes) {
    fail(err, PN_INVALID, "%s: the slice has %llu bytes, %llu are needed", need.what,
         number(slice.bytes), number(need.bytes));
    return nullptr;
  }
  if ((buffer->flags & need.flags) != need.flags) {
    fail(err, PN_INVALID, "%s: it needs a heap with flags %#x, the slice's has %#x", need.what,
         need.flags, buffer->flags);
    return nullptr;
  }
  if (need.writes && !buffer->writable) {
    fail(err, PN_INVALID, "%s: the buffer was imported for reading only", need.what);
    return nullptr;
  }
  std::byte* at = buffer->host + slice.offset;
  if (reinterpret_cast<uintptr_t>(at) % need.alignment != 0) {
    fail(err, PN_INVALID, "%s: offset %llu is not a multiple of %u", need.what,
         number(slice.offset), need.alignment);
    return nullptr;
  }
  return at;
}

}  // namespace pn::cpu
