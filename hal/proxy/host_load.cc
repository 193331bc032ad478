// SPDX-License-Identifier: Apache-2.0
//
// See host_load.h.
#include "hal/proxy/host_load.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "hal/proxy/wire.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace pn::proxy {

namespace {

constexpr uint64_t kCopyNs = 60'000'000'000;  // one staged piece of a few MiB

// The part of the tensor that a range of tiles is made from, in whole pages: a hint where a layout
// mixes rows.
class Window {
 public:
  Window(const std::byte* tensor, uint64_t bytes, const pn_load_piece& piece) {
    if (bytes == 0) return;  // computed: it came with the message
    static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto base = reinterpret_cast<uintptr_t>(tensor);
    const uint64_t tiles = std::max<uint64_t>(piece.tile_count, 1);
    const auto at = [&](uint64_t tile) {
      return bytes / tiles * tile + bytes % tiles * tile / tiles;
    };
    const uintptr_t begin = (base + at(std::min(piece.first, tiles))) / page * page;
    at_ = reinterpret_cast<void*>(begin);
    bytes_ = base + at(std::min(piece.first + piece.count, tiles)) - begin;
  }
  // False: the file ends before it, or its disk does. Else a read would be a SIGBUS.
  bool read_in() const {
    if (bytes_ == 0) return true;
    return ::madvise(at_, bytes_, MADV_POPULATE_READ) == 0 || errno == EINVAL;  // before 5.14
  }
  void let_go() const {
    if (bytes_ != 0) ::madvise(at_, bytes_, MADV_DONTNEED);
  }

 private:
  void* at_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace

HostFile::~HostFile() {
  if (at != nullptr) ::munmap(const_cast<std::byte*>(at), bytes);
}

pn_status HostLoad::open(Fd fd, uint64_t bytes, uint64_t* source, pn_error* err) {
  void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED)
    return set_error(err, PN_FAILED,
                     std::string("the file cannot be mapped: ") + std::strerror(errno));
  auto file = std::make_shared<HostFile>();
  file->at = static_cast<const std::byte*>(at);
  file->bytes = bytes;
  *source = objects_.next_id();
  files_.put(*source, std::move(file));
  return PN_OK;
}

void HostLoad::close(uint64_t source) {
  files_.take(source);
  if (!files_.all().empty()) return;
  std::lock_guard lock(mutex_);
  transfers_.clear();
}

pn_status HostLoad::place(uint64_t device, const pn_load_piece& piece, pn_error* err) {
  const std::shared_ptr<HostFile> file = files_.find(piece.source);
  const auto* source = static_cast<const std::byte*>(piece.computed);
  if (piece.source != 0) {
    if (file == nullptr || piece.offset > file->bytes || piece.bytes > file->bytes - piece.offset)
      return set_error(err, PN_INVALID, "load: the range is in no file that was handed over");
    source = file->at + piece.offset;
  }
  const Window window(source, piece.source != 0 ? piece.bytes : 0, piece);
  if (!window.read_in()) {
    return set_error(err, PN_FAILED,
                     std::string("the file cannot be read any more (") + std::strerror(errno) +
                         "): was it changed while it was loaded?");
  }
  const std::shared_ptr<HostBuffer> buffer = objects_.buffers.find(piece.to.buffer.id);
  const uint64_t bytes = piece.count * piece.tile_bytes;
  if (buffer == nullptr || piece.to.offset > buffer->bytes ||
      bytes > buffer->bytes - piece.to.offset)
    return set_error(err, PN_INVALID, "load: the target is in no buffer that is alive");
  const pn_status status = buffer->plugin_at != nullptr
                               ? convert(piece, source, buffer->plugin_at + piece.to.offset, err)
                               : stage(device, piece, source, err);
  window.let_go();
  return status;
}

pn_status HostLoad::convert(const pn_load_piece& piece, const std::byte* source, std::byte* out,
                            pn_error* err) const {
  if (piece.plain != 0) {
    std::memcpy(out, source, piece.bytes);
    return PN_OK;
  }
  const auto* layout = objects_.plugin().interface<pn_layout_api>();
  if (layout == nullptr)
    return set_error(err, PN_UNSUPPORTED, "load: the plugin has no pantheon.layout/1");
  return layout->convert(piece.weight, piece.target, piece.layout, source, out, piece.first,
                         piece.count, err);
}

// ---- dies without a host address ----------------------------------------------------------------

struct HostLoad::Transfer {
  const pn_plugin& api;
  std::shared_ptr<HostDevice> device;
  uint32_t heap = PN_NONE;
  uint64_t copy_alignment = 1;
  std::mutex mutex;  // guards what follows; one submitter
  pn_queue queue{};
  uint64_t value = 0;
  std::vector<Stage> free;

  Transfer(const pn_plugin& a, std::shared_ptr<HostDevice> d) : api(a), device(std::move(d)) {}
  ~Transfer() {
    if (queue.id != 0) api.queue_destroy(queue);
    for (const Stage& stage : free) api.buffer_destroy(stage.buffer);
  }
};

std::shared_ptr<HostLoad::Transfer> HostLoad::transfer_of(uint64_t device, pn_error* err) {
  {
    std::lock_guard lock(mutex_);
    auto at = transfers_.find(device);
    if (at != transfers_.end() && at->second != nullptr) return at->second;
  }
  std::lock_guard control(control_);  // always before mutex_, as the control thread has them
  std::lock_guard lock(mutex_);
  std::shared_ptr<Transfer>& transfer = transfers_[device];
  if (transfer != nullptr) return transfer;
  auto made = std::make_shared<Transfer>(objects_.api(), objects_.devices.find(device));
  if (made->device == nullptr) {
    set_error(err, PN_INVALID, "load: no such device");
    return nullptr;
  }
  for (uint32_t i = 0; i < made->device->real.size(); ++i) {
    const pn_heap_info& heap = made->device->real[i];
    made->copy_alignment = std::max<uint64_t>(made->copy_alignment, heap.copy_alignment);
    const bool fits = heap.kind != PN_HEAP_DEVICE && (heap.flags & PN_HEAP_HOST_VISIBLE) != 0;
    if (fits && made->heap == PN_NONE) made->heap = i;
  }
  if (made->heap == PN_NONE) {
    set_error(err, PN_UNSUPPORTED, "load: the die has no host heap to copy from");
    return nullptr;
  }
  if (objects_.api().queue_create(made->device->handle, PN_QUEUE_TRANSFER, 16, &made->queue, err) !=
      PN_OK)
    return nullptr;
  return transfer = std::move(made);
}

pn_status HostLoad::take_stage(Transfer& transfer, uint64_t bytes, Stage* out, pn_error* err) {
  {
    std::lock_guard lock(transfer.mutex);
    auto fits = std::find_if(transfer.free.begin(), transfer.free.end(),
                             [bytes](const Stage& stage) { return stage.bytes >= bytes; });
    if (fits != transfer.free.end()) {
      *out = *fits;
      transfer.free.erase(fits);
      return PN_OK;
    }
  }
  std::lock_guard control(control_);
  void* at = nullptr;
  out->bytes = bytes;
  const pn_status status = objects_.api().buffer_create(transfer.device->handle, transfer.heap,
                                                        bytes, &out->buffer, &at, err);
  out->at = static_cast<std::byte*>(at);
  return status == PN_OK && at == nullptr
             ? set_error(err, PN_FAILED, "load: a HOST_VISIBLE heap gave no address")
             : status;
}

pn_status HostLoad::stage(uint64_t device, const pn_load_piece& piece, const std::byte* source,
                          pn_error* err) {
  const std::shared_ptr<Transfer> transfer = transfer_of(device, err);
  if (transfer == nullptr) return err->code < 0 ? err->code : PN_FAILED;
  const uint64_t align = transfer->copy_alignment;
  const uint64_t bytes = (piece.count * piece.tile_bytes + align - 1) / align * align;
  Stage mine;
  pn_status status = take_stage(*transfer, bytes, &mine, err);
  if (status != PN_OK) return status;
  status = convert(piece, source, mine.at, err);
  if (status == PN_OK) {
    const pn_slice to = objects_.slice({piece.to.buffer, piece.to.offset, bytes});
    status = send(*transfer, mine, to, err);
  }
  std::lock_guard lock(transfer->mutex);
  transfer->free.push_back(mine);
  return status;
}

pn_status HostLoad::send(Transfer& transfer, const Stage& stage, const pn_slice& to,
                         pn_error* err) {
  pn_command copy{};
  copy.kind = PN_CMD_COPY;
  copy.source = {stage.buffer, 0, to.bytes};
  copy.target = to;
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.command_count = 1;
  submit.commands = &copy;
  {
    std::lock_guard lock(transfer.mutex);
    submit.value = transfer.value + 1;
    pn_status status = PN_NOT_READY;
    while ((status = transfer.api.queue_submit(transfer.queue, &submit, err)) == PN_NOT_READY)
      ::usleep(200);
    if (status != PN_OK) return status;
    transfer.value = submit.value;
  }
  const pn_status status = transfer.api.queue_wait({transfer.queue, submit.value}, kCopyNs, err);
  if (status != PN_NOT_READY) return status;
  return set_error(err, PN_FAILED, "load: a copy to the die has not ended for 60 s");
}

void HostLoad::device_closed(uint64_t device) {
  std::lock_guard lock(mutex_);
  transfers_.erase(device);
}

}  // namespace pn::proxy
