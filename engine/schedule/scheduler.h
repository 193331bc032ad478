// SPDX-License-Identifier: Apache-2.0
//
// The one thread that drives every model copy of the process.
//
// Owns the thread, its inbox and the order in which it looks after the copies. Knows no request
// beyond its Job. The one idea: everything that changes a sequence happens on this thread, so other
// threads only leave messages; and it sleeps whenever no copy has a step due.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/schedule/runner.h"
#include "hal/host/result.h"

namespace pn::engine {

uint64_t now_ns();  // monotonic

class Scheduler {
 public:
  Scheduler();
  ~Scheduler();  // ends what is alive with Code::cancelled

  // All [any thread]. A copy belongs to the scheduler until remove() has returned; what it names
  // must live as long. waiting_max bounds the jobs beyond those that run.
  std::shared_ptr<Runner> add(Copy copy);
  // Ends what the copy runs; on return the scheduler will not touch its queue again.
  void remove(const std::shared_ptr<Runner>& runner);
  // Code::busy (param "capacity_busy") when more than lanes + waiting_max would be alive. The job's
  // id is given here.
  Result<uint64_t> submit(const std::shared_ptr<Runner>& runner, std::unique_ptr<Job> job,
                          uint32_t waiting_max);
  void cancel(uint64_t id);
  void cancel_all();

  // Processor time that the thread has used, for tests and status.
  uint64_t cpu_ns() const;

 private:
  struct Message {
    enum Kind { kAdd, kRemove, kJob, kCancel, kCancelAll } kind;
    std::shared_ptr<Runner> runner;
    std::unique_ptr<Job> job;
    uint64_t id = 0;
  };
  struct PluginGroup {  // copies whose queues one query covers
    const pn_plugin* api = nullptr;
    std::vector<std::shared_ptr<Runner>> runners;
    std::vector<pn_queue> queues;  // of those with a step in flight
    std::vector<Runner*> asked;
    std::vector<pn_progress> progress;
  };

  void post(Message message);
  void loop();
  bool take_messages();
  void handle(Message& message);
  bool look_after(PluginGroup& group);
  void check_idle_dies();
  void sleep(bool busy);
  uint64_t nap() const;

  std::mutex mutex_;
  std::condition_variable wake_;     // the thread's
  std::condition_variable removed_;  // who waits in remove()
  std::vector<Message> inbox_;       // guarded by mutex_
  uint64_t removals_ = 0;            // asked for, guarded by mutex_
  uint64_t removals_done_ = 0;
  bool stop_ = false;
  std::atomic<bool> has_mail_{false};
  std::atomic<uint64_t> next_id_{1};
  std::vector<Message> taken_;  // the thread's own
  std::vector<PluginGroup> groups_;
  uint64_t next_idle_check_ns_ = 0;
  std::thread thread_;
};

}  // namespace pn::engine
