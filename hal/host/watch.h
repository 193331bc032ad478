// SPDX-License-Identifier: Apache-2.0
//
// One thread's calls into plugins, as they look from outside.
//
// Owns one word a thread: a count that is odd while the thread is inside a plugin. Knows no clock
// and no limit. The one idea: a call that never returns cannot be ended, only given up: who watches
// swaps the word, and if the call does return after all, its thread parks for good and touches
// nothing, since somebody else does its work by then.
//
// enter() and leave() are two writes to a word that nobody else writes: no lock on the step path.
#pragma once

#include <pantheon/plugin.h>

#include <atomic>
#include <cstdint>

namespace pn::hal {

// An isolated plugin has deadlines of its own, after which its process is ended and the call
// returns.
inline constexpr uint32_t kIsolatedPatience = 30;

class CallWatch {
 public:
  // The thread's own. Calls may be nested: the outer one counts.
  void enter(const pn_plugin* api, uint32_t patience);
  void leave();
  static CallWatch* of_thread();  // nullptr: nobody watches this thread
  static void set_of_thread(CallWatch* watch);

  // Who watches. Odd: inside a call, and the same number for as long as it lasts.
  uint64_t state() const { return state_.load(std::memory_order_acquire); }
  const pn_plugin* api() const { return api_.load(std::memory_order_relaxed); }
  uint32_t patience() const { return patience_.load(std::memory_order_relaxed); }
  // True: the call was given up and its thread never comes back.
  bool give_up(uint64_t seen) { return state_.compare_exchange_strong(seen, kGivenUp); }

 private:
  static constexpr uint64_t kGivenUp = UINT64_MAX - 1;
  std::atomic<uint64_t> state_{0};
  std::atomic<const pn_plugin*> api_{nullptr};
  std::atomic<uint32_t> patience_{1};
  uint64_t count_ = 0;
  uint32_t depth_ = 0;
};

// Around a call into a plugin; nothing when nobody watches. patience: how many times the usual
// limit it may take.
class WatchedCall {
 public:
  explicit WatchedCall(const pn_plugin* api, uint32_t patience = 1)
      : WatchedCall(CallWatch::of_thread(), api, patience) {}
  WatchedCall(CallWatch* watch, const pn_plugin* api, uint32_t patience = 1) : watch_(watch) {
    if (watch_ != nullptr) watch_->enter(api, patience);
  }
  ~WatchedCall() {
    if (watch_ != nullptr) watch_->leave();
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  CallWatch* watch_;
};

}  // namespace pn::hal
