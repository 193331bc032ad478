// SPDX-License-Identifier: Apache-2.0
//
// See objects.h.
#include "hal/proxy/objects.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "hal/proxy/calls.h"
#include "hal/proxy/wire.h"

namespace pn::proxy {

namespace {

// Device memory is the backend host's alone: shared, it would lose its huge pages. Of host heaps
// only pinned ones are for copies and results; a mapped one holds weights.
bool is_shown_shared(const pn_heap_info& heap) {
  return heap.kind == PN_HEAP_HOST_PINNED && (heap.flags & PN_HEAP_HOST_VISIBLE) != 0;
}

}  // namespace

uint64_t Objects::next_id() { return make_id(generation_, ++number_); }

pn_device Objects::device(uint64_t id) const {
  const auto found = devices.find(id);
  return found ? found->handle : pn_device{};
}

pn_program Objects::program(uint64_t id) const {
  const auto found = programs.find(id);
  return found ? found->handle : pn_program{};
}

pn_slice Objects::slice(const pn_slice& from) const {
  const auto found = buffers.find(from.buffer.id);
  return {found ? found->handle : pn_buffer{}, from.offset, from.bytes};
}

pn_status Objects::list_heaps(HostDevice* device, pn_error* err) const {
  uint32_t count = 0;
  pn_status status = api().heaps(device->handle, &count, nullptr, err);
  if (status < 0) return status;
  pn_heap_info blank{};
  blank.struct_size = sizeof blank;
  device->real.assign(count, blank);
  status = api().heaps(device->handle, &count, device->real.data(), err);
  if (status != PN_OK) return status;
  uint32_t results = PN_NONE;
  bool shared = false;
  for (uint32_t i = 0; i < device->real.size(); ++i) {
    pn_heap_info heap = device->real[i];
    const bool visible = (heap.flags & PN_HEAP_HOST_VISIBLE) != 0;
    if (visible && (heap.flags & PN_HEAP_RESULTS) != 0 && results == PN_NONE) results = i;
    shared = shared || (is_shown_shared(heap) && (heap.flags & PN_HEAP_RESULTS) != 0);
    if (!is_shown_shared(heap)) heap.flags &= ~(PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED);
    device->shown.push_back(heap);
    device->backing.push_back(i);
  }
  if (shared || results == PN_NONE) return PN_OK;
  // Results come out in device memory only: one more heap, copied out of it.
  pn_heap_info copied = device->real[results];
  copied.kind = PN_HEAP_HOST_PINNED;
  copied.flags = PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_RESULTS;
  device->shown.push_back(copied);
  device->backing.push_back(results);
  return PN_OK;
}

pn_status Objects::create_buffer(const HostDevice& device, uint32_t heap, uint64_t bytes,
                                 std::shared_ptr<HostBuffer>* out, pn_error* err) const {
  auto buffer = std::make_shared<HostBuffer>();
  buffer->bytes = bytes;
  const bool shared = heap < device.shown.size() &&
                      (device.shown[heap].flags & PN_HEAP_HOST_VISIBLE) != 0 && bytes != 0 &&
                      bytes <= device.shown[heap].bytes_max;
  if (shared) {
    const pn_status status = share(device, heap, buffer.get(), err);
    if (status != PN_OK) return status;
  } else {
    const uint32_t real = heap < device.backing.size() ? device.backing[heap] : heap;
    void* at = nullptr;
    const pn_status status =
        api().buffer_create(device.handle, real, bytes, &buffer->handle, &at, err);
    if (status != PN_OK) return status;
    buffer->plugin_at = static_cast<std::byte*>(at);
  }
  *out = std::move(buffer);
  return PN_OK;
}

pn_status Objects::share(const HostDevice& device, uint32_t heap, HostBuffer* out,
                         pn_error* err) const {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  auto memory = SharedMemory::create("pantheon-buffer", (out->bytes + page - 1) / page * page);
  if (!memory) return set_error(err, PN_OUT_OF_MEMORY, memory.error().message);
  const uint32_t real = device.backing[heap];
  const auto* hostmem = plugin_->interface<pn_hostmem_api>();
  if (hostmem != nullptr && !mirror_all_ && hostmem->alignment <= page) {
    pn_import range{};
    range.struct_size = sizeof range;
    range.fd = memory->fd();
    range.address = memory->at();
    range.bytes = hostmem->alignment > 1 ? memory->bytes() : out->bytes;
    range.access = 3;
    range.use = device.real[real].flags & (PN_HEAP_BINDS | PN_HEAP_RESULTS);
    pn_error refused = no_error();
    if (hostmem->import(device.handle, &range, &out->handle, &refused) == PN_OK) {
      out->shared = std::move(*memory);
      out->plugin_at = out->shared.at();
      return PN_OK;
    }
  }
  void* at = nullptr;
  const pn_status status =
      api().buffer_create(device.handle, real, out->bytes, &out->handle, &at, err);
  if (status != PN_OK) return status;
  if (at == nullptr) {
    api().buffer_destroy(out->handle);
    return set_error(err, PN_FAILED,
                     "heap " + std::to_string(real) + " is HOST_VISIBLE and gave no address");
  }
  out->plugin_at = static_cast<std::byte*>(at);
  out->shared = std::move(*memory);
  out->mirrored = true;
  return PN_OK;
}

pn_status Objects::import(const HostDevice& device, const pn_import& asked, Fd fd,
                          std::shared_ptr<HostBuffer>* out, pn_error* err) const {
  const auto* hostmem = plugin_->interface<pn_hostmem_api>();
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t head = asked.fd_offset % page;
  const int protection =
      ((asked.access & 1) != 0 ? PROT_READ : 0) | ((asked.access & 2) != 0 ? PROT_WRITE : 0);
  auto buffer = std::make_shared<HostBuffer>();
  buffer->mapped_bytes = head + asked.bytes;
  void* at = ::mmap(nullptr, buffer->mapped_bytes, protection, MAP_SHARED, fd.get(),
                    static_cast<off_t>(asked.fd_offset - head));
  if (at == MAP_FAILED)
    return set_error(err, PN_UNSUPPORTED, std::string("import: mmap: ") + std::strerror(errno));
  buffer->mapped = at;
  buffer->bytes = asked.bytes;
  pn_import range = asked;
  range.fd = fd.get();
  range.address = static_cast<std::byte*>(at) + head;
  const pn_status status = hostmem->import(device.handle, &range, &buffer->handle, err);
  if (status != PN_OK) {
    ::munmap(at, buffer->mapped_bytes);
    return status;
  }
  *out = std::move(buffer);
  return PN_OK;
}

void Objects::destroy(HostBuffer* buffer) const {
  api().buffer_destroy(buffer->handle);
  if (buffer->mapped != nullptr) ::munmap(buffer->mapped, buffer->mapped_bytes);
}

}  // namespace pn::proxy
