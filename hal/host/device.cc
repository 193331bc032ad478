// SPDX-License-Identifier: Apache-2.0
//
// See device.h. Each function: fill struct_size, call the slot, turn a failure into one Error.
#include "hal/host/device.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "hal/host/watch.h"

namespace pn::hal {

namespace {

pn_error no_error() {
  pn_error e{};
  e.struct_size = sizeof(pn_error);
  return e;
}

// Cold: builds the text only when a call failed.
[[gnu::cold]] tl::unexpected<Error> failed(const Plugin& plugin, const char* call, pn_status status,
                                           const pn_error& error) {
  return tl::unexpected<Error>(to_error(plugin.name() + ": " + call, status, error));
}
[[gnu::cold]] tl::unexpected<Error> failed(DeviceState& device, const char* call, pn_status status,
                                           const pn_error& error) {
  device.note(status, error);
  return failed(*device.plugin, call, status, error);
}

[[gnu::cold]] tl::unexpected<Error> gone(const Plugin& plugin) {
  return fail(Code::device_lost, plugin.name() +
                                     ": a call into it never returned, and it is not called any "
                                     "more: restart pantheon");
}

}  // namespace

// Before every call through the table that has an answer.
#define PN_CALL(p)                     \
  if ((p).abandoned()) return gone(p); \
  const WatchedCall watched_call(&(p).table(), (p).isolation() != nullptr ? kIsolatedPatience : 1)

// ---- Device -------------------------------------------------------------------------------------

DeviceState::~DeviceState() {
  if (handle.id == 0) return;
  if (!plugin->abandoned()) {
    const WatchedCall watched_call(&plugin->table());
    plugin->table().device_close(handle);
  }
  std::lock_guard lock(plugin->open_mutex_);
  std::erase(plugin->open_, this);
}

void DeviceState::note(pn_status status, const pn_error& error) {
  if (status != PN_DEVICE_LOST || error.scope < PN_SCOPE_DEVICE) return;
  std::lock_guard lock(plugin->open_mutex_);
  for (DeviceState* each : plugin->open_) {
    const bool covered =
        each == this || error.scope == PN_SCOPE_PLUGIN ||
        (error.scope == PN_SCOPE_RESET_DOMAIN && each->reset_domain == reset_domain);
    if (covered && each->generation == generation) each->lost.store(true);
  }
}

Result<Device> Device::open(const std::shared_ptr<Plugin>& plugin, uint32_t index) {
  PN_CALL(*plugin);
  PN_TRY(std::vector<pn_device_info> infos, plugin->devices());
  const std::string id = plugin->name() + ":" + std::to_string(index);
  if (index >= infos.size()) {
    return fail(Code::not_found, id + ": " + plugin->path() + " lists " +
                                     std::to_string(infos.size()) + " dies; see pantheon devices");
  }
  Device device;
  device.info_ = infos[index];
  device.index_ = index;
  device.state_ = std::make_shared<DeviceState>();
  device.state_->plugin = plugin;
  pn_error err = no_error();
  pn_status st = plugin->table().device_open(index, &device.state_->handle, &err);
  if (st != PN_OK) {
    device.state_->handle.id = 0;
    return tl::unexpected<Error>(to_error(id + ": device_open", st, err));
  }
  device.state_->reset_domain = device.info_.reset_domain;
  if (plugin->isolation() != nullptr) device.state_->generation = plugin->isolation()->generation();
  {
    std::lock_guard lock(plugin->open_mutex_);
    plugin->open_.push_back(device.state_.get());
  }

  uint32_t count = 0;
  st = plugin->table().heaps(device.handle(), &count, nullptr, &err);
  if (st < 0) return failed(*plugin, "heaps", st, err);
  pn_heap_info blank{};
  blank.struct_size = sizeof(pn_heap_info);
  device.heaps_.assign(count, blank);
  st = plugin->table().heaps(device.handle(), &count, device.heaps_.data(), &err);
  if (st != PN_OK) return failed(*plugin, "heaps", st, err);
  return device;
}

std::string Device::id() const { return plugin().name() + ":" + std::to_string(index_); }

uint32_t Device::find_heap(uint32_t kind, uint32_t flags) const {
  for (uint32_t i = 0; i < heaps_.size(); ++i) {
    if (heaps_[i].kind == kind && (heaps_[i].flags & flags) == flags) return i;
  }
  return PN_NONE;
}

Result<pn_memory_status> Device::memory_status() const {
  PN_CALL(plugin());
  pn_memory_status out{};
  out.struct_size = sizeof out;
  pn_error err = no_error();
  pn_status st = plugin().table().memory_status(handle(), &out, &err);
  if (st != PN_OK) return failed(*state_, "memory_status", st, err);
  return out;
}

Result<Buffer> Device::create_buffer(uint32_t heap, uint64_t bytes) const {
  PN_CALL(plugin());
  Buffer buffer;
  pn_error err = no_error();
  pn_status st =
      plugin().table().buffer_create(handle(), heap, bytes, &buffer.handle_, &buffer.host_, &err);
  if (st != PN_OK) {
    buffer.handle_.id = 0;
    std::string call =
        "buffer_create of " + std::to_string(bytes) + " bytes in heap " + std::to_string(heap);
    return failed(*state_, call.c_str(), st, err);
  }
  buffer.device_ = state_;
  buffer.bytes_ = bytes;
  buffer.heap_ = heap;
  return buffer;
}

Result<Buffer> Device::import(const pn_import& range) const {
  PN_CALL(plugin());
  const auto* api = plugin().interface<pn_hostmem_api>();
  if (api == nullptr) {
    return fail(Code::unsupported, plugin().name() + ": no pantheon.hostmem/1: copy instead");
  }
  Buffer buffer;
  pn_error err = no_error();
  pn_status st = api->import(handle(), &range, &buffer.handle_, &err);
  if (st != PN_OK) {
    buffer.handle_.id = 0;
    return failed(*state_, "hostmem.import", st, err);
  }
  buffer.device_ = state_;
  buffer.bytes_ = range.bytes;
  buffer.host_ = range.address;
  return buffer;
}

Result<Report> Device::query(const pn_plan& plan) const {
  PN_CALL(plugin());
  Report report;
  pn_span span{};
  span.struct_size = sizeof span;
  pn_cost cost{};
  cost.struct_size = sizeof cost;
  report.spans.assign(plan.op_count, span);  // spans are runs of ops: never more of them
  report.costs.assign(plan.shape_count, cost);
  report.unit_bytes.assign(plan.cache_count, 0);
  report.head.struct_size = sizeof(pn_report);
  report.head.span_count = plan.op_count;
  report.head.spans = report.spans.data();
  report.head.costs = report.costs.data();
  report.head.unit_bytes = report.unit_bytes.data();
  pn_error err = no_error();
  pn_status st = plugin().table().program_query(handle(), &plan, &report.head, &err);
  if (st != PN_OK) return failed(*state_, "program_query", st, err);
  if (report.head.span_count > plan.op_count) {
    return fail(Code::failed, plugin().name() + ": program_query told of more spans than ops");
  }
  report.spans.resize(report.head.span_count);
  return report;
}

bool Report::supported() const {
  for (const pn_span& span : spans) {
    if (span.granularity == PN_SPAN_UNSUPPORTED) return false;
  }
  return true;
}

std::string Report::unsupported() const {
  std::string text;
  for (const pn_span& span : spans) {
    if (span.granularity != PN_SPAN_UNSUPPORTED) continue;
    if (!text.empty()) text += '\n';
    text += "op " + std::to_string(span.first_op);
    if (span.op_count > 1) text += "-" + std::to_string(span.first_op + span.op_count - 1);
    text += ": " + std::string(span.reason, strnlen(span.reason, sizeof span.reason));
  }
  return text;
}

Result<Program> Device::create_program(const pn_plan& plan,
                                       std::span<const pn_binding> bindings) const {
  PN_CALL(plugin());
  Program program;
  pn_error err = no_error();
  pn_status st =
      plugin().table().program_create(handle(), &plan, static_cast<uint32_t>(bindings.size()),
                                      bindings.data(), &program.handle_, &err);
  if (st != PN_OK) {
    program.handle_.id = 0;
    return failed(*state_, "program_create", st, err);
  }
  program.device_ = state_;
  return program;
}

Result<Queue> Device::create_queue(uint32_t kind, uint32_t depth) const {
  PN_CALL(plugin());
  Queue queue;
  pn_error err = no_error();
  pn_status st = plugin().table().queue_create(handle(), kind, depth, &queue.handle_, &err);
  if (st != PN_OK) {
    queue.handle_.id = 0;
    return failed(*state_, "queue_create", st, err);
  }
  queue.device_ = state_;
  return queue;
}

Result<pn_sampler_info> Device::sampler() const {
  PN_CALL(plugin());
  pn_sampler_info info{};
  info.struct_size = sizeof info;
  const auto* api = plugin().interface<pn_sampler_api>();
  if (api == nullptr) return info;
  pn_error err = no_error();
  pn_status st = api->describe(handle(), &info, &err);
  if (st != PN_OK) return failed(plugin(), "sampler.describe", st, err);
  return info;
}

Result<void> Device::self_check() const {
  PN_CALL(plugin());
  const auto* api = plugin().interface<pn_reset_api>();
  if (api == nullptr) return {};
  pn_error err = no_error();
  const pn_status st = api->self_check(handle(), &err);
  if (st == PN_OK || st == PN_UNSUPPORTED) return {};
  return failed(*state_, "self-check failed", st, err);
}

// ---- Buffer, Program ----------------------------------------------------------------------------

Buffer::~Buffer() {
  if (handle_.id == 0 || device_->plugin->abandoned()) return;
  const WatchedCall watched_call(&device_->table());
  device_->table().buffer_destroy(handle_);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer moved(std::move(other));
  swap(moved);
  return *this;
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(bytes_, other.bytes_);
  std::swap(heap_, other.heap_);
  std::swap(host_, other.host_);
}

Program::~Program() {
  if (handle_.id == 0 || device_->plugin->abandoned()) return;
  const WatchedCall watched_call(&device_->table());
  device_->table().program_destroy(handle_);
}

Program& Program::operator=(Program&& other) noexcept {
  Program moved(std::move(other));
  swap(moved);
  return *this;
}

void Program::swap(Program& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
}

Result<pn_program_status> Program::status() const {
  PN_CALL(*device_->plugin);
  pn_program_status out{};
  out.struct_size = sizeof out;
  pn_error err = no_error();
  pn_status st = device_->table().program_status(handle_, &out, &err);
  if (st != PN_OK) return failed(*device_, "program_status", st, err);
  if (out.state == PN_PROGRAM_FAILED) {
    return failed(*device_->plugin, "build of the program", err.code < 0 ? err.code : PN_FAILED,
                  err);
  }
  return out;
}

Result<pn_program_status> Program::wait_ready(uint64_t timeout_ns) const {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(timeout_ns));
  while (true) {
    PN_TRY(pn_program_status now, status());
    if (now.state == PN_PROGRAM_READY) return now;
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(Code::busy, device_->plugin->name() + ": the program is still building (" +
                                  std::to_string(now.done) + " of " + std::to_string(now.total) +
                                  "); wait longer");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// ---- Queue --------------------------------------------------------------------------------------

Queue::~Queue() {
  if (handle_.id == 0 || device_->plugin->abandoned()) return;
  const WatchedCall watched_call(&device_->table());
  device_->table().queue_destroy(handle_);
}

Queue& Queue::operator=(Queue&& other) noexcept {
  Queue moved(std::move(other));
  swap(moved);
  return *this;
}

void Queue::swap(Queue& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
}

Result<bool> Queue::submit(const pn_submit& submit) const {
  PN_CALL(*device_->plugin);
  pn_error err = no_error();
  pn_status st = device_->table().queue_submit(handle_, &submit, &err);
  if (st == PN_OK) return true;
  if (st == PN_NOT_READY) return false;
  return failed(*device_, "queue_submit", st, err);
}

Result<pn_progress> Queue::query() const {
  PN_CALL(*device_->plugin);
  pn_progress progress{};
  pn_error err = no_error();
  pn_status st = device_->table().queue_query(1, &handle_, &progress, &err);
  if (st != PN_OK) return failed(*device_, "queue_query", st, err);
  if (progress.state == PN_QUEUE_LOST) failure();
  if (device_->lost.load(std::memory_order_relaxed)) progress.state = PN_QUEUE_LOST;
  return progress;
}

Result<bool> Queue::wait(uint64_t value, uint64_t timeout_ns) const {
  PN_CALL(*device_->plugin);
  pn_error err = no_error();
  pn_status st = device_->table().queue_wait(pn_point{handle_, value}, timeout_ns, &err);
  if (st == PN_OK) return true;
  if (st == PN_NOT_READY) return false;
  return failed(*device_, "queue_wait", st, err);
}

pn_error Queue::failure() const {
  if (device_->plugin->abandoned()) {
    pn_error lost = no_error();
    lost.code = PN_DEVICE_LOST;
    lost.scope = PN_SCOPE_PLUGIN;
    lost.recovery = PN_RECOVER_RESTART_PROCESS;
    return lost;
  }
  const WatchedCall watched_call(&device_->table());
  pn_error err = no_error();
  pn_status st = device_->table().queue_error(handle_, &err);
  if (err.code == PN_OK) err.code = st;
  device_->note(err.code, err);
  return err;
}

Result<void> query_many(const Plugin& plugin, std::span<const pn_queue> queues,
                        std::span<pn_progress> progress) {
  PN_CALL(plugin);
  pn_error err = no_error();
  pn_status st = plugin.table().queue_query(static_cast<uint32_t>(queues.size()), queues.data(),
                                            progress.data(), &err);
  if (st != PN_OK) return failed(plugin, "queue_query", st, err);
  return {};
}

}  // namespace pn::hal
