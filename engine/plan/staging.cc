// SPDX-License-Identifier: Apache-2.0
//
// Two lists under one lock, filled and free; submits and polls happen on the loading thread alone,
// since a queue has one submitter.
#include "engine/plan/staging.h"

#include <algorithm>
#include <utility>

#include "engine/plan/pool.h"

namespace pn::engine {
namespace {

constexpr uint32_t kBuffers = 6;  // some being filled, the rest under way

}  // namespace

Result<std::unique_ptr<Staging>> Staging::create(Die& die, uint64_t piece_bytes) {
  uint32_t heap = PN_NONE;
  const std::vector<pn_heap_info>& heaps = die.device.heaps();
  for (uint32_t i = 0; i < heaps.size() && heap == PN_NONE; ++i) {
    if (heaps[i].kind != PN_HEAP_DEVICE && (heaps[i].flags & PN_HEAP_HOST_VISIBLE) != 0) heap = i;
  }
  if (heap == PN_NONE) {
    return fail(Code::unsupported, die.id +
                                       " has neither a host-visible device heap nor a host "
                                       "heap to copy from: its plugin cannot be loaded to");
  }
  auto staging = std::make_unique<Staging>();
  for (const pn_heap_info& info : heaps) {
    staging->copy_alignment_ = std::max(staging->copy_alignment_, info.copy_alignment);
  }
  const auto control = take_control(die);
  PN_TRY(staging->queue_, die.device.create_queue(PN_QUEUE_TRANSFER, 8));
  for (uint32_t i = 0; i < kBuffers; ++i) {
    uint64_t bytes = round_up(piece_bytes, staging->copy_alignment_);
    PN_TRY(hal::Buffer buffer, die.device.create_buffer(heap, bytes));
    staging->buffers_.push_back(std::move(buffer));
    staging->free_.push_back(i);
  }
  return staging;
}

bool Staging::acquire(Piece& piece) {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return closed_ || !free_.empty(); });
  if (closed_) return false;
  piece.buffer = free_.back();
  piece.host = static_cast<std::byte*>(buffers_[piece.buffer].host());
  free_.pop_back();
  return true;
}

void Staging::upload(const Piece& piece, uint64_t bytes, const pn_slice& target) {
  std::lock_guard lock(mutex_);
  filled_.push_back({piece.buffer, bytes, 0, target});
}

void Staging::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  freed_.notify_all();
}

Result<bool> Staging::pump(uint64_t& done) {
  std::unique_lock lock(mutex_);
  while (!filled_.empty()) {
    Upload upload = filled_.front();
    upload.value = value_ + 1;
    pn_command copy{};
    copy.kind = PN_CMD_COPY;
    uint64_t bytes = round_up(upload.bytes, copy_alignment_);
    copy.source = buffers_[upload.buffer].slice(0, bytes);
    copy.target = upload.target;
    copy.target.bytes = bytes;
    pn_submit submit{};
    submit.struct_size = sizeof(submit);
    submit.command_count = 1;
    submit.value = upload.value;
    submit.commands = &copy;
    PN_TRY(bool accepted, queue_.submit(submit));
    if (!accepted) break;
    filled_.pop_front();
    sent_.push_back(upload);
    ++value_;
  }
  PN_TRY(pn_progress progress, queue_.query());
  if (progress.state != PN_QUEUE_OK) {
    pn_error error = queue_.failure();
    bool lost = progress.state == PN_QUEUE_LOST;
    return fail(lost ? Code::device_lost : Code::failed,
                std::string("copying weights to the die failed: ") + error.message);
  }
  while (!sent_.empty() && sent_.front().value <= progress.completed) {
    done += sent_.front().bytes;
    free_.push_back(sent_.front().buffer);
    sent_.pop_front();
    freed_.notify_one();
  }
  return !sent_.empty() || !filled_.empty();
}

}  // namespace pn::engine
