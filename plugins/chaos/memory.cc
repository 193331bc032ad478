// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: heaps and buffers. Buffers are address space of the host that nobody has touched,
// so a die of any size costs nothing; what is counted is what the script makes of it.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "plugins/chaos/chaos.h"

namespace chaos {
namespace {

constexpr uint64_t kHostBytes = uint64_t{1} << 40;
constexpr int kPoison = 0xdb;

uint64_t pending_bytes(Die& die) {
  const uint64_t now = state().now();
  std::erase_if(die.freed, [now](const Freed& freed) { return freed.until <= now; });
  uint64_t sum = 0;
  for (const Freed& freed : die.freed) sum += freed.bytes;
  return sum;
}

uint64_t less(uint64_t a, uint64_t b) { return a - std::min(a, b); }

}  // namespace

uint64_t external_bytes(const Die& die) {
  uint64_t bytes = 0;
  const uint64_t now = state().now();
  for (const Moment& moment : state().of(die).external) {
    if (moment.at_ns <= now) bytes = moment.bytes;
  }
  return bytes;
}

uint64_t free_bytes(Die& die) {
  const uint64_t free = less(state().of(die).bytes, die.used[kDeviceHeap] + pending_bytes(die));
  return less(free, external_bytes(die));
}

bool take(Die& die, uint32_t heap, uint64_t bytes) {
  const uint64_t room = heap == kDeviceHeap ? free_bytes(die) : kHostBytes - die.used[heap];
  if (bytes > room) return false;
  die.used[heap] += bytes;
  if (heap == kDeviceHeap) state().counts.device_bytes += bytes;
  return true;
}

void give(Die& die, uint32_t heap, uint64_t bytes) {
  die.used[heap] -= bytes;
  if (heap != kDeviceHeap) return;
  state().counts.device_bytes -= bytes;
  const uint64_t slow = state().of(die).slow_free_ns;
  if (slow != 0 && bytes != 0) die.freed.push_back({state().now() + slow, bytes});
}

void poison(const Die& die, uint32_t heap) {
  if (state().of(die).poison == 0) return;
  for (auto& [id, buffer] : state().buffers) {
    if (buffer.die == die.index && buffer.heap == heap && buffer.taken != 0) {
      std::memset(buffer.host, kPoison, buffer.bytes);
    }
  }
}

std::byte* at(const pn_slice& slice) {
  auto found = state().buffers.find(slice.buffer.id);
  if (found == state().buffers.end()) return nullptr;
  const Buffer& b = found->second;
  if (slice.offset > b.bytes || slice.bytes > b.bytes - slice.offset) return nullptr;
  return b.host + slice.offset;
}

pn_status heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err) {
  Call call("heaps", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  const DieOptions& o = state().of(*call.die());
  pn_heap_info heap[2]{};
  heap[0].struct_size = heap[1].struct_size = sizeof(pn_heap_info);
  heap[0].kind = PN_HEAP_DEVICE;
  heap[0].flags = PN_HEAP_BINDS;
  if (o.host_visible != 0) heap[0].flags |= PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED;
  heap[0].total = heap[0].bytes_max = o.bytes;
  heap[1].kind = PN_HEAP_HOST_PINNED;
  heap[1].flags = PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_BINDS | PN_HEAP_RESULTS;
  heap[1].total = heap[1].bytes_max = kHostBytes;
  const uint32_t room = *count;
  *count = 2;
  if (room == 0 || infos == nullptr) return PN_OK;
  for (uint32_t i = 0; i < 2 && i < room; ++i) {
    heap[i].alignment = 64;
    heap[i].copy_alignment = 4;
    heap[i].granule = kGranule;
    pn_write(PN_AT(pn_heap_info, infos, i), &heap[i], sizeof heap[i]);
  }
  return room < 2 ? PN_INCOMPLETE : PN_OK;
}

pn_status memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  Call call("memory_status", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  Die& die = *call.die();
  const DieOptions& o = state().of(die);
  pn_memory_status found{};
  found.struct_size = sizeof found;
  found.quality = static_cast<uint32_t>(o.quality);
  found.total = o.says_total != UINT64_MAX ? o.says_total : o.bytes;
  found.free_now = o.says_free != UINT64_MAX ? o.says_free : free_bytes(die);
  found.used_by_us = die.used[kDeviceHeap];
  found.used_by_others = external_bytes(die);
  found.reclaim_pending = pending_bytes(die);
  found.sampled_at_ns = state().host->now_ns(state().host->self);
  pn_write(out, &found, sizeof found);
  return PN_OK;
}

pn_status buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                        void** host, pn_error* err) {
  Call call("buffer_create", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  State& s = state();
  Die& die = *call.die();
  const DieOptions& o = s.of(die);
  if (heap > kHostHeap || bytes == 0) {
    return host_broke(err, "buffer_create: " + std::to_string(bytes) + " bytes in heap " +
                               std::to_string(heap) + " of 2");
  }
  ++s.counts.allocations;
  const uint64_t number = ++die.allocations;
  const bool scripted = o.oom_at != 0 && number >= o.oom_at && number - o.oom_at < o.oom_count;
  const uint64_t whole =
      bytes > UINT64_MAX - kGranule ? UINT64_MAX : (bytes + kGranule - 1) / kGranule * kGranule;
  if (scripted || !take(die, heap, whole)) {
    return fail(
        err, PN_OUT_OF_MEMORY,
        "buffer_create: " + std::to_string(bytes) + " bytes asked, " +
            (scripted ? "the script refuses allocation " + std::to_string(number)
                      : std::to_string(free_bytes(die)) + " free in heap " + std::to_string(heap)));
  }
  void* address = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    give(die, heap, whole);
    return fail(err, PN_OUT_OF_MEMORY, "buffer_create: the host has no address space left");
  }
  out->id = s.next_id++;
  s.buffers[out->id] = {die.index, heap, static_cast<std::byte*>(address), bytes, whole};
  ++s.counts.buffers;
  if (host != nullptr) *host = heap == kHostHeap || o.host_visible != 0 ? address : nullptr;
  return PN_OK;
}

void buffer_destroy(pn_buffer buffer) {
  uint64_t slow_ns = 0;
  {
    Call call("buffer_destroy", buffer.id, kOfBuffer);
    State& s = state();
    auto found = s.buffers.find(buffer.id);
    if (found == s.buffers.end()) {
      host_broke(nullptr, "buffer_destroy: no such buffer");
      return;
    }
    slow_ns = s.of(*call.die()).free_ns;
    const Buffer& b = found->second;
    if (b.taken != 0) {
      munmap(b.host, b.taken);
      give(*call.die(), b.heap, b.taken);
    }
    s.buffers.erase(found);
    --s.counts.buffers;
  }
  if (slow_ns != 0) std::this_thread::sleep_for(std::chrono::nanoseconds(slow_ns));
}

pn_status import_range(pn_device device, const pn_import* range, pn_buffer* out, pn_error* err) {
  Call call("import", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  if (range->address == nullptr || range->bytes == 0) {
    return host_broke(err, "import: an empty range");
  }
  State& s = state();
  out->id = s.next_id++;
  s.buffers[out->id] = {call.die()->index, kHostHeap, static_cast<std::byte*>(range->address),
                        range->bytes, 0};
  ++s.counts.buffers;
  return PN_OK;
}

}  // namespace chaos
