// SPDX-License-Identifier: Apache-2.0
//
// The backend host's objects: what the server's handles stand for, and where their bytes are.
//
// Owns the table from numbers to plugin handles, the shared memory of buffers, and which heaps the
// server sees. Knows no message. The one idea: the server sees host memory only as shared memory;
// a plugin that takes an imported range writes there itself, any other has its slices copied.
//
// The control thread changes the table; the queues' threads look things up.
#pragma once

#include <pantheon/hal.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "hal/host/plugin.h"
#include "hal/proxy/shared.h"

namespace pn::proxy {

struct HostDevice {
  pn_device handle{};
  uint32_t slot = PN_NONE;          // on the board
  bool closed = false;              // guarded by the board's lock
  std::vector<pn_heap_info> real;   // the plugin's
  std::vector<pn_heap_info> shown;  // the server's
  std::vector<uint32_t> backing;    // shown heap -> real heap
};

struct HostBuffer {
  pn_buffer handle{};
  uint64_t bytes = 0;
  std::byte* plugin_at = nullptr;  // the plugin's address in this process, if it gave one
  SharedMemory shared;             // what the server maps; empty: nothing
  bool mirrored = false;           // shared is a copy, kept slice by slice
  void* mapped = nullptr;          // of an imported file range, to unmap
  uint64_t mapped_bytes = 0;
};

struct HostProgram {
  pn_program handle{};
  std::vector<pn_slice> inputs, outputs;  // bound slots in mirrored buffers, the server's handles
};

template <class T>
class Table {
 public:
  void put(uint64_t id, std::shared_ptr<T> object) {
    std::unique_lock lock(mutex_);
    objects_[id] = std::move(object);
  }
  std::shared_ptr<T> find(uint64_t id) const {
    std::shared_lock lock(mutex_);
    auto at = objects_.find(id);
    return at == objects_.end() ? nullptr : at->second;
  }
  std::shared_ptr<T> take(uint64_t id) {
    std::unique_lock lock(mutex_);
    auto at = objects_.find(id);
    if (at == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(at->second);
    objects_.erase(at);
    return object;
  }
  std::vector<std::shared_ptr<T>> all() const {
    std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<T>> list;
    for (const auto& [id, object] : objects_) list.push_back(object);
    return list;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<T>> objects_;
};

class Objects {
 public:
  Objects(std::shared_ptr<hal::Plugin> plugin, uint32_t generation, bool mirror_all)
      : plugin_(std::move(plugin)), generation_(generation), mirror_all_(mirror_all) {}

  const pn_plugin& api() const { return plugin_->table(); }
  const hal::Plugin& plugin() const { return *plugin_; }
  uint64_t next_id();

  Table<HostDevice> devices;
  Table<HostBuffer> buffers;
  Table<HostProgram> programs;

  // The plugin's handle, {0} for what is not there: the plugin refuses it in its own words.
  pn_device device(uint64_t id) const;
  pn_program program(uint64_t id) const;
  pn_slice slice(const pn_slice& from) const;

  // Fills real, shown and backing.
  pn_status list_heaps(HostDevice* device, pn_error* err) const;
  pn_status create_buffer(const HostDevice& device, uint32_t heap, uint64_t bytes,
                          std::shared_ptr<HostBuffer>* out, pn_error* err) const;
  pn_status import(const HostDevice& device, const pn_import& range, Fd fd,
                   std::shared_ptr<HostBuffer>* out, pn_error* err) const;
  void destroy(HostBuffer* buffer) const;

 private:
  pn_status share(const HostDevice& device, uint32_t heap, HostBuffer* out, pn_error* err) const;
  std::shared_ptr<hal::Plugin> plugin_;
  const uint32_t generation_;
  const bool mirror_all_;
  std::atomic<uint32_t> number_{0};
};

}  // namespace pn::proxy
