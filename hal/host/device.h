// SPDX-License-Identifier: Apache-2.0
//
// The objects of one die, as move-only values over the C table.
//
// Owns who destroys what, and turns pn_status + pn_error into pn::Error once. Knows no model and no
// policy. The one idea: as thin as it can be; submit, query and query_many allocate nothing on
// success.
//
// Destruction order, which the contract asks for and the owner keeps:
//   queues (or nothing of theirs in flight)  ->  programs  ->  buffers they are bound to  -> device
// Declare members in the opposite order: Device, buffers, programs, queues. Each object keeps its
// device and plugin alive, so the device closes after the last of them, whatever the order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/host/plugin.h"
#include "hal/host/result.h"

namespace pn::hal {

struct DeviceState {  // shared by a Device and its objects; closes the device
  std::shared_ptr<Plugin> plugin;
  pn_device handle{};
  uint32_t reset_domain = 0;
  uint32_t generation = 0;        // of the isolated plugin that it was opened in
  std::atomic<bool> lost{false};  // the plugin said so, of this die or of a scope that covers it
  ~DeviceState();
  const pn_plugin& table() const { return plugin->table(); }
  // Looks at what a call gave; a loss marks every open device in its scope.
  void note(pn_status status, const pn_error& error);
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  explicit operator bool() const { return handle_.id != 0; }
  pn_buffer handle() const { return handle_; }
  uint64_t bytes() const { return bytes_; }
  uint32_t heap() const { return heap_; }  // PN_NONE when imported
  // nullptr when the heap is not HOST_VISIBLE, and once the die is known to be lost: nothing that
  // lies there may be given out any more.
  void* host() const { return device_ && device_->lost.load() ? nullptr : host_; }
  pn_slice slice(uint64_t offset, uint64_t bytes) const { return {handle_, offset, bytes}; }
  pn_slice all() const { return {handle_, 0, bytes_}; }

 private:
  friend class Device;
  void swap(Buffer& other) noexcept;
  std::shared_ptr<DeviceState> device_;
  pn_buffer handle_{};
  uint64_t bytes_ = 0;
  uint32_t heap_ = PN_NONE;
  void* host_ = nullptr;
};

class Program {
 public:
  Program() = default;
  Program(Program&& other) noexcept { swap(other); }
  Program& operator=(Program&& other) noexcept;
  ~Program();  // cancels a build

  explicit operator bool() const { return handle_.id != 0; }
  pn_program handle() const { return handle_; }
  // [poll] A build that FAILED is an error here.
  Result<pn_program_status> status() const;
  // Polls until READY or failed; busy after timeout_ns. Never on the serving thread.
  Result<pn_program_status> wait_ready(uint64_t timeout_ns) const;

 private:
  friend class Device;
  void swap(Program& other) noexcept;
  std::shared_ptr<DeviceState> device_;
  pn_program handle_{};
};

class Queue {
 public:
  Queue() = default;
  Queue(Queue&& other) noexcept { swap(other); }
  Queue& operator=(Queue&& other) noexcept;
  ~Queue();  // outstanding work is dropped or finished

  explicit operator bool() const { return handle_.id != 0; }
  pn_queue handle() const { return handle_; }
  // [queue] true: accepted; false: full, nothing was done, try again after a poll.
  Result<bool> submit(const pn_submit& submit) const;
  // [poll] A FAILED or LOST queue is a state here, not an error. LOST too when the scope of another
  // die's loss covers this one, whatever the plugin still says.
  Result<pn_progress> query() const;
  // [any] true: complete; false: timed out. A failed or lost queue is an error.
  Result<bool> wait(uint64_t value, uint64_t timeout_ns) const;
  // [poll] Scope, recovery and text of a FAILED or LOST queue.
  pn_error failure() const;

 private:
  friend class Device;
  void swap(Queue& other) noexcept;
  std::shared_ptr<DeviceState> device_;
  pn_queue handle_{};
};

// A plugin's answer to a plan, with room for its lists.
struct Report {
  pn_report head{};                  // its pointers are into the vectors below
  std::vector<pn_span> spans;        // head.span_count
  std::vector<pn_cost> costs;        // one a shape of the plan
  std::vector<uint64_t> unit_bytes;  // one a cache of the plan

  bool supported() const;
  // The reasons of UNSUPPORTED spans, one a line; empty when supported.
  std::string unsupported() const;
};

class Device {
 public:
  Device() = default;
  Device(Device&&) noexcept = default;
  Device& operator=(Device&&) noexcept = default;

  // [load] index into plugin->devices().
  static Result<Device> open(const std::shared_ptr<Plugin>& plugin, uint32_t index);

  explicit operator bool() const { return state_ != nullptr; }
  pn_device handle() const { return state_->handle; }
  const Plugin& plugin() const { return *state_->plugin; }
  const std::shared_ptr<Plugin>& plugin_ptr() const { return state_->plugin; }
  uint32_t index() const { return index_; }
  const pn_device_info& info() const { return info_; }  // as of open
  std::string id() const;                               // "cpu:0": plugin name and index
  const std::vector<pn_heap_info>& heaps() const { return heaps_; }
  // First heap of `kind` that has all of `flags`; PN_NONE when there is none.
  uint32_t find_heap(uint32_t kind, uint32_t flags = 0) const;

  Result<pn_memory_status> memory_status() const;
  Result<Buffer> create_buffer(uint32_t heap, uint64_t bytes) const;
  // pantheon.hostmem/1; unsupported when the plugin lacks it. Refusal is ordinary: copy instead.
  Result<Buffer> import(const pn_import& range) const;
  Result<Report> query(const pn_plan& plan) const;
  Result<Program> create_program(const pn_plan& plan, std::span<const pn_binding> bindings) const;
  Result<Queue> create_queue(uint32_t kind, uint32_t depth) const;
  // pantheon.reset/1: known inputs against stored answers; well when the plugin lacks it.
  Result<void> self_check() const;
  // pantheon.sampler/1; all zero when the plugin lacks it.
  Result<pn_sampler_info> sampler() const;

 private:
  std::shared_ptr<DeviceState> state_;
  uint32_t index_ = 0;
  pn_device_info info_{};
  std::vector<pn_heap_info> heaps_;
};

// [poll] Queues of one plugin, all its dies in one call.
Result<void> query_many(const Plugin& plugin, std::span<const pn_queue> queues,
                        std::span<pn_progress> progress);

}  // namespace pn::hal
