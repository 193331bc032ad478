// SPDX-License-Identifier: Apache-2.0
//
// Look at the mail, ask the plugins what is complete, submit what can run, sleep. A sleep ends when
// a message comes or the earliest step of any copy is due.
#include "engine/schedule/scheduler.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "hal/host/plugin.h"

namespace pn::engine {
namespace {

// An idle die says only through memory_status that it was lost.
constexpr uint64_t kIdleCheckNs = 1'000'000'000ull;

// How long the end of the process waits for a call that hangs.
constexpr uint64_t kLastCallNs = 2'000'000'000ull;

Error hung_error(const Copy& copy) {
  return {Code::device_lost,
          copy.die + ", which ran " + copy.model +
              ", did not return from a call: its plugin is lost until pantheon is restarted",
          ""};
}

// What a thread that hangs may still touch, kept for good.
void keep(std::shared_ptr<void> what) {
  static auto* kept = new std::vector<std::shared_ptr<void>>;
  kept->push_back(std::move(what));
}

}  // namespace

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

Scheduler::Scheduler(uint64_t call_deadline_ns) : watchdog_(call_deadline_ns) {
  inbox_.reserve(256);
  start(std::make_shared<Loop>());
}

Scheduler::~Scheduler() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  has_mail_.store(true, std::memory_order_release);
  wake_.notify_all();
  watchdog_.hurry(kLastCallNs);
  removed_.wait(lock, [this] { return ended_; });
  std::shared_ptr<Loop> last = loop_;
  lock.unlock();
  watchdog_.remove(last->watch);
  last->thread.join();
}

void Scheduler::start(std::shared_ptr<Loop> loop) {
  loop->taken.reserve(256);
  watchdog_.add(loop->watch, [this](const pn_plugin* api) { give_up(api); });
  Loop* raw = loop.get();
  std::lock_guard lock(mutex_);
  loop_ = std::move(loop);
  raw->thread = std::thread([this, raw] { run(*raw); });
}

// The thread is in a call of `api` and will not come back: its books are ours. Whatever the plugin
// may still write to (progress arrays, a runner's step) lives on.
void Scheduler::give_up(const pn_plugin* api) {
  if (plugin_hung) plugin_hung(api);
  auto fresh = std::make_shared<Loop>();
  std::shared_ptr<Loop> stuck;
  {
    std::lock_guard lock(mutex_);
    stuck = loop_;
    hung_.push_back(api);
  }
  stuck->thread.detach();
  for (PluginGroup& group : stuck->groups) {
    if (group.api != api) {
      fresh->groups.push_back(std::move(group));
      group = PluginGroup{};
    } else {
      fresh->orphans.insert(fresh->orphans.end(), group.runners.begin(), group.runners.end());
    }
  }
  keep(stuck);
  start(std::move(fresh));
}

std::shared_ptr<Runner> Scheduler::add(Copy copy) {
  auto runner = std::make_shared<Runner>(std::move(copy));
  post({Message::kAdd, runner, nullptr});
  return runner;
}

void Scheduler::remove(const std::shared_ptr<Runner>& runner) {
  std::unique_lock lock(mutex_);
  uint64_t ticket = ++removals_;
  inbox_.push_back({Message::kRemove, runner, nullptr});
  has_mail_.store(true, std::memory_order_release);
  wake_.notify_all();
  removed_.wait(lock, [&] { return removals_done_ >= ticket; });
}

Result<uint64_t> Scheduler::submit(const std::shared_ptr<Runner>& runner, std::unique_ptr<Job> job,
                                   uint32_t waiting_max) {
  auto& counts = runner->counts;
  if (counts.lost.load(std::memory_order_acquire)) {
    return fail(Code::device_lost, runner->copy().die + ", which ran " + runner->copy().model +
                                       ", was lost; reload the model");
  }
  uint32_t limit = runner->copy().lanes + waiting_max;
  if (counts.outstanding.fetch_add(1, std::memory_order_relaxed) >= limit) {
    counts.outstanding.fetch_sub(1, std::memory_order_relaxed);
    return fail(Code::busy,
                runner->copy().model + " runs " + std::to_string(runner->copy().lanes) +
                    " requests and has " + std::to_string(waiting_max) +
                    " waiting, its limit: try again later, or raise slots or queue_max",
                "capacity_busy");
  }
  uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
  job->id = id;
  job->arrived_ns = now_ns();
  post({Message::kJob, runner, std::move(job)});
  return id;
}

void Scheduler::cancel(uint64_t id) { post({Message::kCancel, nullptr, nullptr, id}); }

void Scheduler::cancel_all() { post({Message::kCancelAll, nullptr, nullptr}); }

uint64_t Scheduler::cpu_ns() const {
  clockid_t clock;
  timespec time{};
  auto* self = const_cast<Scheduler*>(this);
  std::lock_guard lock(self->mutex_);
  if (pthread_getcpuclockid(loop_->thread.native_handle(), &clock) != 0) return 0;
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000ull +
         static_cast<uint64_t>(time.tv_nsec);
}

void Scheduler::post(Message message) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
    has_mail_.store(true, std::memory_order_release);
  }
  wake_.notify_one();
}

void Scheduler::run(Loop& loop) {
  pthread_setname_np(pthread_self(), "pn-scheduler");
  prctl(PR_SET_TIMERSLACK, 1000UL);  // 1 us: naps of 20 us are not stretched to 70
  hal::ServingThread serving;
  hal::CallWatch::set_of_thread(loop.watch.get());
  for (const auto& runner : loop.orphans) {
    runner->fail(hung_error(runner->copy()));
  }
  loop.orphans.clear();
  while (take_messages(loop)) {
    bool changed = false;
    bool busy = false;
    for (PluginGroup& group : loop.groups) {
      changed |= look_after(group);
      for (const auto& runner : group.runners) busy |= runner->busy();
    }
    if (!busy) check_idle_dies(loop);
    if (!changed) sleep(loop, busy);
  }
  loop.groups.clear();  // ends what is alive
  std::lock_guard lock(mutex_);
  ended_ = true;
  removed_.notify_all();
}

bool Scheduler::hangs(const pn_plugin* api) {
  std::lock_guard lock(mutex_);
  return std::find(hung_.begin(), hung_.end(), api) != hung_.end();
}

// False when the scheduler is to stop.
bool Scheduler::take_messages(Loop& loop) {
  if (!has_mail_.load(std::memory_order_acquire)) return true;
  bool stop = false;
  {
    std::lock_guard lock(mutex_);
    std::swap(inbox_, loop.taken);
    has_mail_.store(false, std::memory_order_relaxed);
    stop = stop_;
  }
  for (Message& message : loop.taken) handle(loop, message);
  loop.taken.clear();
  return !stop;
}

void Scheduler::handle(Loop& loop, Message& message) {
  switch (message.kind) {
    case Message::kAdd: {
      const pn_plugin* api = message.runner->copy().api;
      if (hangs(api)) {
        message.runner->fail(hung_error(message.runner->copy()));
        break;
      }
      auto at = std::find_if(loop.groups.begin(), loop.groups.end(),
                             [api](const PluginGroup& group) { return group.api == api; });
      if (at == loop.groups.end()) {
        at = loop.groups.insert(loop.groups.end(), PluginGroup{.api = api});
      }
      at->runners.push_back(std::move(message.runner));
      at->queues.reserve(at->runners.size());
      at->asked.reserve(at->runners.size());
      at->progress.resize(at->runners.size());
      break;
    }
    case Message::kRemove: {
      message.runner->fail(
          {Code::cancelled, message.runner->copy().model + " was taken out of service", ""});
      for (PluginGroup& group : loop.groups) std::erase(group.runners, message.runner);
      message.runner.reset();
      std::lock_guard lock(mutex_);
      ++removals_done_;
      removed_.notify_all();
      break;
    }
    case Message::kJob:
      message.runner->enqueue(std::move(message.job));
      break;
    case Message::kCancel:
      for (PluginGroup& group : loop.groups) {
        for (const auto& runner : group.runners) runner->cancel(message.id);
      }
      break;
    case Message::kCancelAll:
      for (PluginGroup& group : loop.groups) {
        for (const auto& runner : group.runners) runner->cancel_all();
      }
      break;
  }
}

bool Scheduler::look_after(PluginGroup& group) {
  group.queues.clear();
  group.asked.clear();
  for (const auto& runner : group.runners) {
    if (!runner->busy()) continue;
    group.queues.push_back(runner->copy().queue);
    group.asked.push_back(runner.get());
  }
  bool changed = false;
  if (!group.queues.empty()) {
    pn_error error{};
    error.struct_size = sizeof(error);
    auto count = static_cast<uint32_t>(group.queues.size());
    pn_status status = PN_OK;
    {
      const hal::WatchedCall watched(group.api, group.asked.front()->copy().patience);
      status = group.api->queue_query(count, group.queues.data(), group.progress.data(), &error);
    }
    uint64_t now = now_ns();
    for (uint32_t i = 0; i < count; ++i) {
      if (status < 0) {
        group.asked[i]->fail(
            {Code::device_lost,
             group.asked[i]->copy().die + " cannot be asked for its progress: " + error.message,
             ""},
            error.recovery);
        changed = true;
      } else {
        changed |= group.asked[i]->collect(group.progress[i], now);
      }
    }
  }
  uint64_t now = now_ns();
  for (const auto& runner : group.runners) changed |= runner->pump(now);
  return changed;
}

void Scheduler::check_idle_dies(Loop& loop) {
  uint64_t now = now_ns();
  if (now < loop.next_idle_check_ns) return;
  loop.next_idle_check_ns = now + kIdleCheckNs;
  for (PluginGroup& group : loop.groups) {
    for (const auto& runner : group.runners) {
      if (runner->failed()) continue;
      pn_memory_status memory{};
      memory.struct_size = sizeof(memory);
      pn_error error{};
      error.struct_size = sizeof(error);
      pn_status status = PN_OK;
      {
        const hal::WatchedCall watched(group.api, runner->copy().patience);
        status = group.api->memory_status(runner->copy().device, &memory, &error);
      }
      if (status != PN_DEVICE_LOST) continue;
      runner->fail({Code::device_lost, runner->copy().die + " was lost: " + error.message, ""},
                   error.recovery);
    }
  }
}

void Scheduler::sleep(const Loop& loop, bool busy) {
  uint64_t ns = busy ? nap(loop) : kIdleCheckNs;
  if (ns == 0) {
    sched_yield();  // due within 50 us; whoever computes goes first
    return;
  }
  std::unique_lock lock(mutex_);
  if (!busy && loop.groups.empty()) {
    wake_.wait(lock, [this] { return !inbox_.empty() || stop_; });
    return;
  }
  wake_.wait_for(lock, std::chrono::nanoseconds(ns), [this] { return !inbox_.empty() || stop_; });
}

uint64_t Scheduler::nap(const Loop& loop) const {
  uint64_t now = now_ns();
  uint64_t ns = kIdleCheckNs;
  for (const PluginGroup& group : loop.groups) {
    for (const auto& runner : group.runners) {
      if (runner->busy()) ns = std::min(ns, runner->nap_ns(now));
    }
  }
  return ns;
}

}  // namespace pn::engine
