// SPDX-License-Identifier: Apache-2.0
//
// The one thread that drives every model copy of the process.
//
// Owns the thread, its inbox and the order in which it looks after the copies. Knows no request
// beyond its Job. The one idea: everything that changes a sequence happens on this thread, so other
// threads only leave messages; and it sleeps whenever no copy has a step due.
//
// A call into a plugin that never returns takes the thread with it. The watchdog sees that, and a
// fresh thread goes on with the copies of all other plugins, after it has ended what ran on this
// one.
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
#include "engine/schedule/watchdog.h"
#include "hal/host/result.h"

namespace pn::engine {

uint64_t now_ns();  // monotonic

class Scheduler {
 public:
  explicit Scheduler(uint64_t call_deadline_ns = kCallDeadlineNs);
  ~Scheduler();  // ends what is alive with Code::cancelled

  // A plugin from which a call did not return; on the watchdog's thread, before its requests end.
  // Set before the first add().
  std::function<void(const pn_plugin*)> plugin_hung;
  Watchdog& watchdog() { return watchdog_; }

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

  struct Loop {  // what one thread works on
    std::shared_ptr<hal::CallWatch> watch = std::make_shared<hal::CallWatch>();
    std::vector<PluginGroup> groups;
    std::vector<Message> taken;
    std::vector<std::shared_ptr<Runner>> orphans;  // of a plugin that hangs: to be ended first
    uint64_t next_idle_check_ns = 0;
    std::thread thread;
  };

  void post(Message message);
  void start(std::shared_ptr<Loop> loop);
  void run(Loop& loop);
  void give_up(const pn_plugin* api);
  bool hangs(const pn_plugin* api);
  bool take_messages(Loop& loop);
  void handle(Loop& loop, Message& message);
  bool look_after(PluginGroup& group);
  void check_idle_dies(Loop& loop);
  void sleep(const Loop& loop, bool busy);
  uint64_t nap(const Loop& loop) const;

  std::mutex mutex_;
  std::condition_variable wake_;     // the thread's
  std::condition_variable removed_;  // who waits in remove(), or for the end
  std::vector<Message> inbox_;       // guarded by mutex_
  uint64_t removals_ = 0;            // asked for, guarded by mutex_
  uint64_t removals_done_ = 0;
  bool stop_ = false;
  bool ended_ = false;          // the thread is past its last plugin call
  std::shared_ptr<Loop> loop_;  // of the thread that works; guarded by mutex_
  std::vector<const pn_plugin*> hung_;
  std::atomic<bool> has_mail_{false};
  std::atomic<uint64_t> next_id_{1};
  Watchdog watchdog_;
};

}  // namespace pn::engine
