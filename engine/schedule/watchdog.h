// SPDX-License-Identifier: Apache-2.0
//
// Sees a call into a plugin that does not return, and takes its thread's work away from it.
//
// Owns one thread and the list of what it watches. Knows no copy and no request: what happens after
// a call was given up is the caller's affair. The one idea: time is counted in looks, not read from
// a clock, so a process that was stopped for a minute does not find its plugins dead.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hal/host/watch.h"

namespace pn::engine {

// A call costs microseconds by contract, a rebuild up to 10 s; far below a client's timeout.
inline constexpr uint64_t kCallDeadlineNs = 10'000'000'000ull;

class Watchdog {
 public:
  explicit Watchdog(uint64_t deadline_ns);
  ~Watchdog();

  // Called once, on the watchdog's thread, after the call was taken from its thread, which never
  // comes back. What that thread held (locks, memory that the plugin may still write) stays held.
  using GiveUp = std::function<void(const pn_plugin* api)>;
  void add(std::shared_ptr<hal::CallWatch> watch, GiveUp give_up);
  // On return give_up is not running and will not be called. Not from within it.
  void remove(const std::shared_ptr<hal::CallWatch>& watch);
  // The process wants to end: waits no longer than this from now on.
  void hurry(uint64_t deadline_ns);

 private:
  struct Entry {
    std::shared_ptr<hal::CallWatch> watch;
    GiveUp give_up;
    uint64_t seen = 0;
    uint64_t looks = 0;  // that found the same call
  };
  void loop();
  void look(std::vector<Entry>& late);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable quiet_;
  std::vector<Entry> entries_;  // guarded by mutex_, as is what follows
  uint64_t deadline_ns_;
  bool giving_up_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pn::engine
