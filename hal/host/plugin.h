// SPDX-License-Identifier: Apache-2.0
//
// A loaded plugin: its identity, its dies, its table and its named interfaces.
//
// Owns loading (Boost.DLL), negotiation, the complete copy of the table and the host's side of the
// contract (log, clock, thread_check). Knows no plugin by name. The one idea: a table slot is never
// null above this line: a missing one is filled: it answers PN_UNSUPPORTED with the slot's name.
//
// A library is loaded once a process and stays mapped; loading it again with equal options gives
// the same object. Its shutdown() runs at the end of the process, unless a Device is still open.
#pragma once

#include <pantheon/graph.h>
#include <pantheon/hal.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/reset.h>
#include <pantheon/sampler.h>
#include <pantheon/telemetry.h>
#include <pantheon/topology.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hal/host/discover.h"
#include "hal/host/isolation.h"
#include "hal/host/note.h"
#include "hal/host/result.h"

namespace pn::hal {

using Options = std::vector<std::pair<std::string, std::string>>;

struct LoadRequest {
  std::string plugin;  // name, alias, or a path (anything with a '/')
  Options options;     // the profile's, as text; a key that the plugin does not know is an error
  Search search;
  // In a process of its own (pantheon-backend-host), behind hal/proxy. No code of it runs here.
  bool isolated = false;
  // Of every call to it and of its heartbeat; 0: what hal/proxy/calls.h says for each class.
  uint32_t deadline_ms = 0;
  bool mirror_results = false;  // copies results even where the plugin could write them in place
};

// Fills `code` and `message` of an Error from what a plugin returned; `asked` begins the message.
Error to_error(const std::string& asked, pn_status status, const pn_error& error);

// The plugins' log lines. Any thread; at most 100 lines a second a plugin, then one line says how
// many were dropped. The default writes warnings and worse to stderr.
using LogSink = std::function<void(uint32_t level, const std::string& plugin, const char* text)>;
void set_log_sink(LogSink sink);

// While one lives, this thread serves: plugins that ask thread_check hear that loading and blocking
// are not allowed here.
class ServingThread {
 public:
  ServingThread();
  ~ServingThread();
  ServingThread(const ServingThread&) = delete;
  ServingThread& operator=(const ServingThread&) = delete;
};

struct HostContext;
struct DeviceState;
class Validation;

class Plugin {
 public:
  static Result<std::shared_ptr<Plugin>> load(const LoadRequest& request);
  // Negotiates with an entry in this process, without a file: for tests and for static builds.
  static Result<std::shared_ptr<Plugin>> from_entry(pn_entry_fn entry, const Note& note,
                                                    const Options& options);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const Note& note() const { return note_; }
  const std::string& name() const { return note_.name; }
  const std::string& path() const { return path_; }
  const Options& options() const { return options_; }
  const pn_plugin& table() const { return table_; }  // every slot callable

  // [load] Every die, ready or not.
  Result<std::vector<pn_device_info>> devices() const;

  // pn_layout_api, pn_hostmem_api, pn_sampler_api, pn_graph_api, pn_topology_api, pn_peer_api,
  // pn_telemetry_api, pn_reset_api: complete tables, or nullptr when the plugin has none.
  template <class T>
  const T* interface() const;
  // Third-party interfaces, as the plugin gave them.
  const void* raw_interface(const char* id) const { return table_.get_interface(id); }

  // nullptr: it runs in this process.
  Isolation* isolation() const { return isolation_; }

  // Ends the plugin's threads: for the last act of a process. False while a Device is open, or once
  // abandoned.
  bool shutdown(uint64_t timeout_ns);

  // A call never returned: from here on nothing of this plugin is called in this process. What it
  // gave is left as it is, calls of the wrapper say device_lost.
  void abandon();
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

 private:
  friend class Device;
  friend struct DeviceState;
  Plugin(Note note, std::string path, Options options);
  Result<void> start(pn_entry_fn entry);
  void fetch_interfaces();

  struct Interfaces;
  Note note_;
  std::string path_;
  Options options_;
  pn_plugin table_{};
  std::unique_ptr<HostContext> host_;
  std::unique_ptr<Validation> validation_;  // with PANTHEON_HAL_VALIDATE=1, else null
  std::unique_ptr<Interfaces> interfaces_;
  Isolation* isolation_ = nullptr;
  std::mutex open_mutex_;
  std::vector<DeviceState*> open_;  // guarded by open_mutex_
  std::atomic<bool> down_{false};
  std::atomic<bool> abandoned_{false};
};

template <>
const pn_layout_api* Plugin::interface<pn_layout_api>() const;
template <>
const pn_hostmem_api* Plugin::interface<pn_hostmem_api>() const;
template <>
const pn_sampler_api* Plugin::interface<pn_sampler_api>() const;
template <>
const pn_graph_api* Plugin::interface<pn_graph_api>() const;
template <>
const pn_topology_api* Plugin::interface<pn_topology_api>() const;
template <>
const pn_peer_api* Plugin::interface<pn_peer_api>() const;
template <>
const pn_telemetry_api* Plugin::interface<pn_telemetry_api>() const;
template <>
const pn_reset_api* Plugin::interface<pn_reset_api>() const;

}  // namespace pn::hal
