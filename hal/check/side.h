// SPDX-License-Identifier: Apache-2.0
//
// One open die of a plugin, the one under test or the reference, as cases use it.
//
// Owns the device, a queue for runs, and moving bytes there and back whether or not the host can
// see the heap. Knows no plan. The one idea: both sides are driven through the same few calls, so
// whatever differs is the plugin's doing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "hal/host/hal.h"

namespace pn::check {

constexpr uint64_t kPatience = 60'000'000'000;  // ns that any one step may take

pn_error new_error();

class Side {
 public:
  static Result<std::unique_ptr<Side>> open(const std::shared_ptr<hal::Plugin>& plugin);

  hal::Plugin& plugin() const { return *plugin_; }
  const pn_plugin& table() const { return plugin_->table(); }
  const hal::Device& device() const { return device_; }
  pn_device handle() const { return device_.handle(); }
  const hal::Queue& queue() const { return queue_; }
  const std::optional<hal::Layout>& layout() const { return layout_; }
  uint32_t heap() const { return heap_; }                  // where programs read and write
  uint32_t results_heap() const { return results_heap_; }  // where rows go
  uint64_t next_value() { return ++value_; }               // for the queue's next submit

  Result<hal::Buffer> place(uint64_t bytes);    // in heap()
  Result<hal::Buffer> results(uint64_t bytes);  // in results_heap()
  Result<void> write(const hal::Buffer& to, uint64_t offset, const void* from, uint64_t bytes);
  Result<void> read(const hal::Buffer& from, uint64_t offset, void* to, uint64_t bytes);
  Result<void> fill(const hal::Buffer& to, uint8_t byte);
  // Submits commands and waits for them.
  Result<void> execute(std::span<const pn_command> commands, std::span<const pn_step> steps);
  Result<void> copy(const pn_slice& from, const pn_slice& to);
  Result<void> renew_queue();  // after a failure

 private:
  Result<hal::Buffer*> staging(uint64_t bytes);

  std::shared_ptr<hal::Plugin> plugin_;
  hal::Device device_;
  hal::Buffer staging_;
  hal::Queue queue_;
  std::optional<hal::Layout> layout_;
  uint32_t heap_ = 0, results_heap_ = 0, staging_heap_ = 0;
  uint64_t value_ = 0;
};

}  // namespace pn::check
