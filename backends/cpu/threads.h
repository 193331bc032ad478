// SPDX-License-Identifier: Apache-2.0
//
// The threads of a die: one leader that serves the queues, and helpers that join it in a run.
//
// Owns the threads, their barrier and how they sleep. Knows no ops: a run is one function that all
// threads execute together. The one idea: threads spin for at most 20 us where the next work is a
// few microseconds away, and sleep on a futex otherwise, so that decode does not pay a wake-up a
// barrier and an idle server costs nothing.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace pn::cpu {

inline constexpr uint64_t kSpinNs = 20'000;

void futex_wait(std::atomic<uint32_t>* word, uint32_t seen, uint64_t timeout_ns = 0);
void futex_wake_all(std::atomic<uint32_t>* word);

// A word that one side bumps and others wait for: spin, then sleep; waking costs a system call
// only when somebody sleeps.
class Signal {
 public:
  uint32_t read() const { return word_.load(std::memory_order_acquire); }
  void bump();
  // Returns once the word differs from `seen`, or (timeout_ns not 0) about timeout_ns later.
  void await(uint32_t seen, uint64_t spin_ns, uint64_t timeout_ns = 0);

 private:
  alignas(64) std::atomic<uint32_t> word_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
};

// All threads of a team in one function: thread 0 is the caller of Team::run.
class Team {
 public:
  using Body = void (*)(void* argument, uint32_t thread);

  // cpus: where helpers may run; pin: thread i on cpus[i % size] alone. first_name: N of the first
  // helper's "pn-cpu-N". False when the system refuses a thread; nothing is left then.
  bool start(uint32_t threads, const std::vector<int>& cpus, bool pin, uint32_t first_name);
  void stop();  // joins the helpers
  ~Team() { stop(); }

  uint32_t size() const { return size_; }
  // [leader] Runs body on every thread and returns when all are through.
  void run(Body body, void* argument);
  // [inside body] Returns when every thread has come here; writes before it are visible after it.
  void barrier();

 private:
  struct Helper {
    Team* team = nullptr;
    uint32_t thread = 0;
    uint32_t name = 0;
    pthread_t handle = {};
  };
  static void* helper_main(void* self);
  void help(uint32_t thread);

  uint32_t size_ = 1;
  std::vector<Helper> helpers_;
  std::atomic<bool> stopping_{false};
  Body body_ = nullptr;
  void* argument_ = nullptr;
  Signal start_;
  Signal gate_;  // of the barrier
  alignas(64) std::atomic<uint32_t> arrived_{0};
};

// Names the calling thread pn-cpu-N.
void name_thread(uint32_t number);
// A joinable thread with a 1 MiB stack and all signals blocked; false when refused.
bool spawn_thread(pthread_t* out, void* (*main)(void*), void* argument);

}  // namespace pn::cpu
