// SPDX-License-Identifier: Apache-2.0
//
// A look every twentieth of the deadline, at most four a second: 0.3 us each on Zen 3.
#include "engine/schedule/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

namespace pn::engine {
namespace {

constexpr uint64_t kLooks = 20;  // of the same call before it is given up
constexpr uint64_t kLookMinNs = 5'000'000;

}  // namespace

Watchdog::Watchdog(uint64_t deadline_ns) : deadline_ns_(deadline_ns) {
  thread_ = std::thread([this] { loop(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::add(std::shared_ptr<hal::CallWatch> watch, GiveUp give_up) {
  std::lock_guard lock(mutex_);
  entries_.push_back({std::move(watch), std::move(give_up), 0, 0});
}

void Watchdog::remove(const std::shared_ptr<hal::CallWatch>& watch) {
  std::unique_lock lock(mutex_);
  quiet_.wait(lock, [this] { return !giving_up_; });
  std::erase_if(entries_, [&](const Entry& entry) { return entry.watch == watch; });
}

void Watchdog::hurry(uint64_t deadline_ns) {
  std::lock_guard lock(mutex_);
  deadline_ns_ = std::min(deadline_ns_, deadline_ns);
  wake_.notify_all();
}

// Moves what is given up out of the list.
void Watchdog::look(std::vector<Entry>& late) {
  for (Entry& entry : entries_) {
    const uint64_t state = entry.watch->state();
    const bool inside = state % 2 == 1;
    entry.looks = inside && state == entry.seen ? entry.looks + 1 : 0;
    entry.seen = state;
    if (entry.looks < kLooks * entry.watch->patience()) continue;
    if (entry.watch->give_up(state)) late.push_back(std::move(entry));
  }
  std::erase_if(entries_, [](const Entry& entry) { return !entry.watch; });
}

void Watchdog::loop() {
  pthread_setname_np(pthread_self(), "pn-watchdog");
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::vector<Entry> late;
    look(late);
    giving_up_ = !late.empty();
    if (giving_up_) {
      lock.unlock();  // give_up() may add what replaces it
      for (Entry& entry : late) entry.give_up(entry.watch->api());
      lock.lock();
      giving_up_ = false;
      quiet_.notify_all();
      continue;
    }
    wake_.wait_for(lock, std::chrono::nanoseconds(std::max(deadline_ns_ / kLooks, kLookMinNs)));
  }
}

}  // namespace pn::engine
