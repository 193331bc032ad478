// SPDX-License-Identifier: Apache-2.0
//
// A queue in the backend host: takes records from the ring, submits them, reports what completes.
//
// Owns the plugin's queue and two threads: one that submits, one that waits in the plugin for the
// oldest outstanding value. Knows no socket. The one idea: both sleep in the kernel while nothing
// is due, and a submit that is complete on return (small steps, simulators) is reported by the
// thread that made it, without a second wake-up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "hal/proxy/mirror.h"
#include "hal/proxy/objects.h"
#include "hal/proxy/ring.h"

namespace pn::proxy {

class HostQueue {
 public:
  // queues: of all devices, for waits on other queues.
  HostQueue(Objects& objects, Table<HostQueue>& queues, pn_queue handle, Ring ring);
  ~HostQueue();  // [control] drops what was not submitted, joins, destroys the plugin's queue

  // Since when the plugin has been inside a submit; 0: it is not. Any thread.
  uint64_t submitting_since() const { return since_.load(std::memory_order_relaxed); }

 private:
  struct Pending {
    uint64_t value = 0;
    std::vector<MirrorSlice> out;
  };
  void submit_loop();
  void complete_loop();
  void take(std::byte* record);
  void translate(pn_submit* submit);
  bool await_waits(const pn_submit& submit, pn_error* err);
  pn_status submit_now(const pn_submit& submit, pn_error* err);
  void copy_inputs(const std::vector<MirrorSlice>& in);
  void settle();
  void fail(const pn_error& error);
  bool failed() const { return ring_.words().state.load(std::memory_order_acquire) != 0; }

  Objects& objects_;
  Table<HostQueue>& queues_;
  const pn_queue handle_;
  Ring ring_;
  std::atomic<uint64_t> handed_{0};  // last value that the plugin has accepted
  std::atomic<uint64_t> since_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards pending_, submitting_ and the progress words
  std::condition_variable changed_;
  std::deque<Pending> pending_;
  Pending submitting_{};  // value 0: none. May be complete before the plugin's submit returns
  std::thread submitter_, completer_;
};

}  // namespace pn::proxy
