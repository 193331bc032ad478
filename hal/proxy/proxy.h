// SPDX-License-Identifier: Apache-2.0
//
// A plugin in another process, presented as an ordinary one: an entry, a table, named interfaces.
//
// Owns the current backend host and what the server keeps of its objects: rings of queues, shared
// memory of buffers. Knows the ABI slot by slot, and no plugin. The one idea: every slot is one
// message to the backend host, but for the step path, which is words and records in shared memory.
//
// A table's functions carry no self, so there are kSlots sets of them, made from one template.
#pragma once

#include <pantheon/graph.h>
#include <pantheon/hal.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/reset.h>
#include <pantheon/sampler.h>
#include <pantheon/telemetry.h>
#include <pantheon/topology.h>

#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "hal/host/isolation.h"
#include "hal/host/load.h"
#include "hal/proxy/link.h"
#include "hal/proxy/ring.h"

namespace pn::proxy {

struct Tables;
struct RemoteQueue;

class Proxy : public hal::Isolation {
 public:
  static constexpr size_t kSlots = 32;
  // What becomes of the process of a plugin: an entry for the loader, and the plugin's Isolation.
  // Errors: kSlots plugins are isolated already.
  struct Seat {
    pn_entry_fn entry = nullptr;
    hal::Isolation* isolation = nullptr;  // lives as long as the process
  };
  static Result<Seat> seat(Launch launch);

  // Isolation
  int pid() const override;
  uint32_t generation() const override;
  bool alive() const override;
  Result<void> restart(uint32_t seen) override;
  void kill(const std::string& why) override;

  // The entry, and the slots of pn_plugin (proxy_control.cc, proxy_queue.cc).
  pn_status enter(const pn_host* host, Tables* tables, const pn_plugin** out, pn_error*);
  pn_status devices(uint32_t* count, pn_device_info* infos, pn_error*);
  pn_status device_open(uint32_t index, pn_device* out, pn_error*);
  void device_close(pn_device);
  pn_status heaps(pn_device, uint32_t* count, pn_heap_info* infos, pn_error*);
  pn_status memory_status(pn_device, pn_memory_status*, pn_error*);
  pn_status buffer_create(pn_device, uint32_t heap, uint64_t bytes, pn_buffer* out, void** host,
                          pn_error*);
  void buffer_destroy(pn_buffer);
  pn_status program_query(pn_device, const pn_plan*, pn_report*, pn_error*);
  pn_status program_create(pn_device, const pn_plan*, uint32_t count, const pn_binding*,
                           pn_program* out, pn_error*);
  pn_status program_status(pn_program, pn_program_status*, pn_error*);
  void program_destroy(pn_program);
  pn_status queue_create(pn_device, uint32_t kind, uint32_t depth, pn_queue* out, pn_error*);
  pn_status queue_submit(pn_queue, const pn_submit*, pn_error*);
  pn_status queue_query(uint32_t count, const pn_queue*, pn_progress*, pn_error*);
  pn_status queue_wait(pn_point, uint64_t timeout_ns, pn_error*);
  pn_status queue_error(pn_queue, pn_error*);
  void queue_destroy(pn_queue);
  const void* get_interface(const char* id);
  void shutdown(uint64_t deadline_ns);

  // The named interfaces (proxy_interfaces.cc).
  pn_status layout_rank(const pn_weight*, uint64_t target, uint32_t* count, pn_layout_choice*,
                        pn_error*);
  pn_status layout_convert(const pn_weight*, uint64_t target, uint64_t layout, const void* source,
                           void* out, uint64_t first, uint64_t count, pn_error*);
  pn_status layout_decode(const pn_weight*, uint64_t target, uint64_t layout, const void* in,
                          float* out, uint64_t first, uint64_t count, pn_error*);
  pn_status layout_targets(uint32_t* count, pn_pair*, pn_error*);
  pn_status hostmem_import(pn_device, const pn_import*, pn_buffer* out, pn_error*);
  pn_status sampler_describe(pn_device, pn_sampler_info*, pn_error*);
  pn_status graph_describe(pn_program, uint32_t shape, pn_launch_info*, pn_error*);
  pn_status topology_edges(uint32_t* count, pn_edge*, pn_error*);
  pn_status peer_connect(pn_device from, pn_device to, uint64_t* device_bytes, pn_error*);
  pn_status telemetry_health(pn_device, uint32_t* health, char* reason, pn_error*);
  pn_status telemetry_readings(pn_device, uint32_t* count, pn_reading*, pn_error*);
  pn_status telemetry_occupants(uint32_t index, uint32_t* count, pn_occupant*, pn_error*);
  pn_status reset_describe(uint32_t domain, pn_reset_info*, pn_error*);
  pn_status reset_reset(uint32_t domain, uint64_t timeout_ns, pn_error*);
  pn_status reset_self_check(pn_device, pn_error*);
  pn_status load_open(int32_t fd, uint64_t bytes, uint64_t* source, pn_error*);
  void load_close(uint64_t source);
  pn_status load_place(pn_device, const pn_load_piece*, pn_error*);

 private:
  explicit Proxy(Launch launch);
  ~Proxy() override;

  Answer open_link(uint32_t generation);
  std::shared_ptr<Link> link() const;
  // The link that a handle belongs to; a loss or PN_INVALID in *answer otherwise.
  std::shared_ptr<Link> link_of(uint64_t id, Answer* answer) const;
  // Sends a call about a handle (0: about the plugin) and passes the error on.
  Answer ask(uint64_t id, Call what, const Writer& args, pn_error* err, uint32_t ms = kControlMs,
             std::span<const int> fds = {});
  // For calls that cannot fail; nothing is sent to a backend host that is gone.
  void tell(uint64_t id, Call what);
  RemoteQueue* find_queue(uint64_t id) const;
  pn_status refuse_submit(const RemoteQueue& queue, pn_error* err);

  const Launch launch_;
  const pn_host* host_ = nullptr;
  uint64_t offered_ = 0;  // interfaces of the first process: tables do not come and go
  Tables* tables_ = nullptr;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Link> link_;
  pn_error last_loss_{};
  std::deque<uint64_t> restarts_ns_;
  std::unordered_map<uint64_t, SharedMemory> shared_buffers_;
  std::unordered_map<uint64_t, uint32_t> board_slots_;
  std::unordered_map<uint64_t, pn_program_status> program_seen_;
  std::deque<std::string> texts_;  // that layout.targets gave out
  mutable std::shared_mutex queues_mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<RemoteQueue>> queues_;
};

}  // namespace pn::proxy
