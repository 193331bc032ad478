// SPDX-License-Identifier: Apache-2.0
//
// The backend host's side of every call: reads the arguments, asks the plugin, writes the answer.
//
// Owns the plugin, its objects, the board and the threads that serve bulk calls and keep the heart
// beating. Knows the ABI slot by slot, as the server's proxy does. The one idea: one thread serves
// the control socket, so the plugin sees [load] and [control] calls one at a time; the end of that
// socket is the end of the process.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hal/proxy/calls.h"
#include "hal/proxy/channel.h"
#include "hal/proxy/host_load.h"
#include "hal/proxy/host_queue.h"
#include "hal/proxy/objects.h"
#include "hal/proxy/wire.h"

namespace pn::proxy {

struct Reply {
  pn_status status = PN_OK;
  pn_error error = no_error();
  Writer payload;
  std::vector<int> fds;
};

class HostServer {
 public:
  explicit HostServer(Fd control) : control_(std::move(control)) {}
  void run();  // until the server is gone or says shutdown

 private:
  using Handler = void (HostServer::*)(Message&, Reader&, Reply&);
  static Handler handler(Call call);
  bool answer(Channel& channel, Message& message);
  void serve_bulk(Channel channel);
  void beat();
  void look(HostDevice& device);  // memory_status onto the board
  void check_stuck();

  void hello(Message&, Reader&, Reply&);
  void load_plugin(Reader&, Reply&);
  void shutdown(Message&, Reader&, Reply&);
  // host_calls.cc
  void devices_list(Message&, Reader&, Reply&);
  void device_open(Message&, Reader&, Reply&);
  void device_close(Message&, Reader&, Reply&);
  void heaps(Message&, Reader&, Reply&);
  void buffer_create(Message&, Reader&, Reply&);
  void buffer_destroy(Message&, Reader&, Reply&);
  void program_query(Message&, Reader&, Reply&);
  void program_create(Message&, Reader&, Reply&);
  void program_status(Message&, Reader&, Reply&);
  void program_destroy(Message&, Reader&, Reply&);
  void queue_create(Message&, Reader&, Reply&);
  void queue_destroy(Message&, Reader&, Reply&);
  // host_interfaces.cc
  void layout_rank(Message&, Reader&, Reply&);
  void layout_sizes(Message&, Reader&, Reply&);
  void layout_convert(Message&, Reader&, Reply&);
  void layout_decode(Message&, Reader&, Reply&);
  void layout_targets(Message&, Reader&, Reply&);
  void hostmem_import(Message&, Reader&, Reply&);
  void sampler_describe(Message&, Reader&, Reply&);
  void graph_describe(Message&, Reader&, Reply&);
  void topology_edges(Message&, Reader&, Reply&);
  void peer_connect(Message&, Reader&, Reply&);
  void telemetry_health(Message&, Reader&, Reply&);
  void telemetry_readings(Message&, Reader&, Reply&);
  void telemetry_occupants(Message&, Reader&, Reply&);
  void reset_describe(Message&, Reader&, Reply&);
  void reset_reset(Message&, Reader&, Reply&);
  void reset_self_check(Message&, Reader&, Reply&);
  void load_file(Message&, Reader&, Reply&);
  void load_close(Message&, Reader&, Reply&);
  void load_place(Message&, Reader&, Reply&);

  const pn_plugin& api() const { return objects_->api(); }
  template <class T>
  const T* interface(Reply& reply) const;
  bool find_choice(const pn_weight& weight, uint64_t target, uint64_t layout, pn_layout_choice* out,
                   Reply& reply) const;

  Channel control_;
  uint32_t generation_ = 0;
  uint32_t silence_ms_ = 0;
  bool mirror_all_ = false;
  bool ending_ = false;
  SharedMemory board_;
  std::mutex board_mutex_;
  std::mutex plugin_mutex_;  // [control] and [load] calls
  std::unique_ptr<Objects> objects_;
  std::unique_ptr<HostLoad> load_;
  Table<HostQueue> queues_;
  std::vector<std::thread> threads_;
};

}  // namespace pn::proxy
