// SPDX-License-Identifier: Apache-2.0
//
// See side.h.
#include "hal/check/side.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace pn::check {

namespace {

uint32_t first_with(const hal::Device& device, uint32_t flags) {
  const auto& heaps = device.heaps();
  for (uint32_t i = 0; i < heaps.size(); ++i)
    if ((heaps[i].flags & flags) == flags) return i;
  return PN_NONE;
}

}  // namespace

pn_error new_error() {
  pn_error err{};
  err.struct_size = sizeof err;
  return err;
}

Result<std::unique_ptr<Side>> Side::open(const std::shared_ptr<hal::Plugin>& plugin) {
  PN_TRY(const std::vector<pn_device_info> dies, plugin->devices());
  uint32_t index = 0;
  while (index < dies.size() && dies[index].state != PN_STATE_READY) ++index;
  if (index == dies.size())
    return fail(Code::not_found, plugin->name() + ": none of its " + std::to_string(dies.size()) +
                                     " dies is ready: a check needs one");
  auto side = std::make_unique<Side>();
  side->plugin_ = plugin;
  PN_TRY(side->device_, hal::Device::open(plugin, index));
  side->heap_ = side->device_.find_heap(PN_HEAP_DEVICE, PN_HEAP_BINDS);
  if (side->heap_ == PN_NONE) side->heap_ = first_with(side->device_, PN_HEAP_BINDS);
  const uint32_t seen = PN_HEAP_RESULTS | PN_HEAP_HOST_VISIBLE;
  side->results_heap_ = first_with(side->device_, seen | PN_HEAP_HOST_CACHED);
  if (side->results_heap_ == PN_NONE) side->results_heap_ = first_with(side->device_, seen);
  side->staging_heap_ = first_with(side->device_, PN_HEAP_HOST_VISIBLE);
  if (side->heap_ == PN_NONE || side->results_heap_ == PN_NONE)
    return fail(Code::invalid, side->device_.id() +
                                   ": one heap must have BINDS, and one RESULTS and HOST_VISIBLE");
  PN_TRY(side->queue_, side->device_.create_queue(PN_QUEUE_RUN, 8));
  auto layout = hal::Layout::of(plugin, side->device_.info().layout_target);
  if (layout) side->layout_ = *layout;
  return side;
}

Result<hal::Buffer> Side::place(uint64_t bytes) {
  return device_.create_buffer(heap_, std::max<uint64_t>(bytes, 64));
}

Result<hal::Buffer> Side::results(uint64_t bytes) {
  return device_.create_buffer(results_heap_, std::max<uint64_t>(bytes, 64));
}

Result<hal::Buffer*> Side::staging(uint64_t bytes) {
  if (staging_.bytes() < bytes) {
    PN_TRY(staging_, device_.create_buffer(staging_heap_, std::max<uint64_t>(bytes, 1 << 20)));
    if (staging_.host() == nullptr)
      return fail(Code::invalid, device_.id() + ": a HOST_VISIBLE buffer has no host address");
  }
  return &staging_;
}

Result<void> Side::write(const hal::Buffer& to, uint64_t offset, const void* from, uint64_t bytes) {
  if (bytes == 0) return {};
  if (to.host() != nullptr) {
    std::memcpy(static_cast<char*>(to.host()) + offset, from, bytes);
    return {};
  }
  PN_TRY(hal::Buffer * via, staging(bytes));
  std::memcpy(via->host(), from, bytes);
  return copy(via->slice(0, bytes), to.slice(offset, bytes));
}

Result<void> Side::read(const hal::Buffer& from, uint64_t offset, void* to, uint64_t bytes) {
  if (bytes == 0) return {};
  if (from.host() != nullptr) {
    std::memcpy(to, static_cast<const char*>(from.host()) + offset, bytes);
    return {};
  }
  PN_TRY(hal::Buffer * via, staging(bytes));
  PN_TRY(copy(from.slice(offset, bytes), via->slice(0, bytes)));
  std::memcpy(to, via->host(), bytes);
  return {};
}

Result<void> Side::fill(const hal::Buffer& to, uint8_t byte) {
  const std::vector<uint8_t> bytes(to.bytes(), byte);
  return write(to, 0, bytes.data(), bytes.size());
}

Result<void> Side::execute(std::span<const pn_command> commands, std::span<const pn_step> steps) {
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.command_count = static_cast<uint32_t>(commands.size());
  submit.commands = commands.data();
  submit.step_count = static_cast<uint32_t>(steps.size());
  submit.steps = steps.data();
  submit.value = value_ + 1;
  PN_TRY(const bool taken, queue_.submit(submit));
  if (!taken) return fail(Code::busy, device_.id() + ": an idle queue says that it is full");
  ++value_;
  PN_TRY(const bool done, queue_.wait(value_, kPatience));
  if (!done) return fail(Code::failed, device_.id() + ": a submit is not complete after a minute");
  PN_TRY(const pn_progress progress, queue_.query());  // makes results visible
  if (progress.completed < value_)
    return fail(Code::failed, device_.id() + ": queue_wait says complete, queue_query does not");
  return {};
}

Result<void> Side::renew_queue() {
  queue_ = {};
  PN_TRY(queue_, device_.create_queue(PN_QUEUE_RUN, 8));
  value_ = 0;
  return {};
}

Result<void> Side::copy(const pn_slice& from, const pn_slice& to) {
  pn_command command{};
  command.kind = PN_CMD_COPY;
  command.source = from;
  command.target = to;
  return execute({&command, 1}, {});
}

}  // namespace pn::check
