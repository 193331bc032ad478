// SPDX-License-Identifier: Apache-2.0
//
// The server's connection to one backend host: calls with deadlines, and loss that sticks.
//
// Owns the process, its channels and its board. Knows how a call travels, not what it means. The
// one idea: a call ends in the plugin's answer or in DEVICE_LOST with the process's verdict, and in
// nothing else; after the first loss every call says the same.
#pragma once

#include <pantheon/core.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hal/proxy/calls.h"
#include "hal/proxy/channel.h"
#include "hal/proxy/process.h"
#include "hal/proxy/wire.h"

namespace pn::proxy {

struct Launch {
  std::string program;          // pantheon-backend-host
  std::string plugin;           // absolute path
  std::string cache_dir;        // for compiled programs; empty: none
  uint32_t deadline_ms = 0;     // of every call and of the heartbeat; 0: what calls.h says
  bool mirror_results = false;  // copy results even where the plugin could write them in place
};

struct Answer {
  pn_status status = PN_OK;
  pn_error error{};
  bool busy = false;  // try_call() only: nothing was asked
  Message message;
  Reader in;  // the payload, inside message
};

class Link {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;
  using Log = std::function<void(uint32_t level, const std::string& text)>;

  // Starts the backend host, loads the plugin in it. An Answer of PN_OK fills *out.
  static Answer open(const Launch& launch, uint32_t generation, const Options& options, Log log,
                     std::shared_ptr<Link>* out);
  ~Link() = default;

  uint32_t generation() const { return generation_; }
  uint64_t interfaces() const { return interfaces_; }
  uint32_t import_alignment() const { return import_alignment_; }
  Process& process() { return *process_; }
  bool lost() const { return lost_.load(std::memory_order_acquire) || process_->dead(); }
  pn_error loss() { return process_->verdict(); }

  Answer call(Call what, const Writer& args, uint32_t ms, std::span<const int> fds = {});
  // Busy instead of a wait while another call is under way.
  Answer try_call(Call what, const Writer& args, uint32_t ms);
  // On a connection of its own: for many megabytes, several at once.
  Answer bulk_call(Call what, const Writer& args, uint32_t ms);

  // What the board says of a device; false: no such slot, or it is being written for too long.
  bool read_board(uint32_t slot, pn_status* status, pn_memory_status* memory, pn_error* error);

 private:
  Link() = default;
  Answer exchange(Channel& channel, Call what, const Writer& args, uint32_t ms,
                  std::span<const int> fds);
  Answer lost_answer();
  Answer greet(const Launch& launch, const Options& options, std::span<const int> fds);

  uint32_t generation_ = 0;
  uint32_t deadline_ms_ = 0;
  uint64_t interfaces_ = 0;
  uint32_t import_alignment_ = 0;
  SharedMemory board_;  // the process's thread looks at it: declared before, destroyed after it
  std::unique_ptr<Process> process_;
  std::atomic<bool> lost_{false};
  std::mutex control_mutex_;
  Channel control_;
  std::vector<Channel> bulk_;
  std::mutex bulk_mutex_;
  std::condition_variable bulk_freed_;
  std::vector<size_t> bulk_free_;
};

const char* name_of(Call call);

}  // namespace pn::proxy
