// SPDX-License-Identifier: Apache-2.0
//
// See host_queue.h.
#include "hal/proxy/host_queue.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <chrono>

#include "hal/proxy/step_wire.h"
#include "hal/proxy/wire.h"

namespace pn::proxy {

namespace {

constexpr uint64_t kSleepNs = 500'000'000;  // of an idle submitter between looks at stop_
constexpr uint64_t kWaitNs = 50'000'000;    // of one queue_wait
constexpr auto kRetry = std::chrono::microseconds(200);

}  // namespace

HostQueue::HostQueue(Objects& objects, Table<HostQueue>& queues, pn_queue handle, Ring ring)
    : objects_(objects), queues_(queues), handle_(handle), ring_(std::move(ring)) {
  submitter_ = std::thread([this] { submit_loop(); });
  completer_ = std::thread([this] { complete_loop(); });
}

HostQueue::~HostQueue() {
  stop_.store(true);
  ring_.wake_consumer();
  changed_.notify_all();
  submitter_.join();
  completer_.join();
  objects_.api().queue_destroy(handle_);
}

void HostQueue::submit_loop() {
  ::pthread_setname_np(::pthread_self(), "pn-submit");
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  while (!stop_.load()) {
    std::byte* record = ring_.next(kSleepNs);
    if (record == nullptr) continue;
    if (!failed()) take(record);
    ring_.pop();
  }
}

void HostQueue::take(std::byte* record) {
  pn_submit* submit = open_record(record);
  pn_error err = no_error();
  MirrorWork mirrors = mirrored_slices(objects_, *submit);
  if (!await_waits(*submit, &err)) return fail(err);
  translate(submit);
  copy_inputs(mirrors.in);
  {
    std::lock_guard lock(mutex_);
    submitting_ = {submit->value, std::move(mirrors.out)};
  }
  const pn_status status = submit_now(*submit, &err);
  {
    std::lock_guard lock(mutex_);
    if (status == PN_OK && submitting_.value != 0) pending_.push_back(std::move(submitting_));
    submitting_ = {};
  }
  if (status == PN_NOT_READY) return;  // stopped
  if (status != PN_OK) {
    err.code = status;
    return fail(err);
  }
  handed_.store(submit->value, std::memory_order_release);
  settle();
  std::lock_guard lock(mutex_);
  if (!pending_.empty()) changed_.notify_all();
}

// Every wait was submitted before, to a ring at least: whoever is behind is waited for.
bool HostQueue::await_waits(const pn_submit& submit, pn_error* err) {
  for (uint32_t i = 0; i < submit.wait_count; ++i) {
    const auto other = queues_.find(submit.waits[i].queue.id);
    while (other != nullptr && other.get() != this && !stop_.load() &&
           other->handed_.load(std::memory_order_acquire) < submit.waits[i].value) {
      if (other->failed()) {
        *err = other->ring_.words().error;
        return false;
      }
      std::this_thread::sleep_for(kRetry);
    }
  }
  return true;
}

// From the server's handles to the plugin's, in place.
void HostQueue::translate(pn_submit* submit) {
  auto* waits = const_cast<pn_point*>(submit->waits);
  for (uint32_t i = 0; i < submit->wait_count; ++i) {
    const auto other = queues_.find(waits[i].queue.id);
    waits[i].queue = other ? other->handle_ : pn_queue{};
  }
  auto* commands = const_cast<pn_command*>(submit->commands);
  for (uint32_t i = 0; i < submit->command_count; ++i) {
    commands[i].source = objects_.slice(commands[i].source);
    commands[i].target = objects_.slice(commands[i].target);
    commands[i].program = objects_.program(commands[i].program.id);
  }
  for (uint32_t i = 0; i < submit->step_count; ++i) {
    const pn_step& step = submit->steps[i];
    auto* lanes = const_cast<pn_lane*>(step.lanes);
    for (uint32_t j = 0; j < step.lane_count; ++j) lanes[j].bias = objects_.slice(lanes[j].bias);
    auto* rows = const_cast<pn_row*>(step.rows);
    for (uint32_t j = 0; j < step.row_count; ++j) {
      rows[j].mask = objects_.slice(rows[j].mask);
      rows[j].target = objects_.slice(rows[j].target);
    }
  }
}

void HostQueue::copy_inputs(const std::vector<MirrorSlice>& in) {
  if (in.empty()) return;
  std::lock_guard lock(mutex_);
  for (const MirrorSlice& slice : in) {
    bool due = false;
    for (const Pending& pending : pending_)
      for (const MirrorSlice& out : pending.out) due = due || overlap(slice, out);
    if (!due) copy_in(slice);
  }
}

// PN_NOT_READY only when the queue is being destroyed.
pn_status HostQueue::submit_now(const pn_submit& submit, pn_error* err) {
  for (;;) {
    since_.store(monotonic_ns(), std::memory_order_relaxed);
    const pn_status status = objects_.api().queue_submit(handle_, &submit, err);
    since_.store(0, std::memory_order_relaxed);
    if (status != PN_NOT_READY || stop_.load()) return status;
    settle();
    std::this_thread::sleep_for(kRetry);
  }
}

void HostQueue::complete_loop() {
  ::pthread_setname_np(::pthread_self(), "pn-complete");
  while (!stop_.load()) {
    uint64_t value = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::nanoseconds(kSleepNs),
                        [this] { return stop_.load() || !pending_.empty(); });
      if (stop_.load() || pending_.empty()) continue;
      value = pending_.front().value;
    }
    pn_error err = no_error();
    objects_.api().queue_wait({handle_, value}, kWaitNs, &err);
    settle();
    if (failed()) std::this_thread::sleep_for(kRetry);
  }
}

// What the plugin has completed becomes visible: first the bytes, then the value.
void HostQueue::settle() {
  std::lock_guard lock(mutex_);
  pn_progress progress{};
  pn_error err = no_error();
  if (failed()) return pending_.clear();
  const pn_status status = objects_.api().queue_query(1, &handle_, &progress, &err);
  if (status != PN_OK) {
    err.code = status;
    return ring_.fail(PN_QUEUE_FAILED, err);
  }
  while (!pending_.empty() && pending_.front().value <= progress.completed) {
    for (const MirrorSlice& slice : pending_.front().out) copy_out(slice);
    pending_.pop_front();
  }
  if (submitting_.value != 0 && submitting_.value <= progress.completed) {
    for (const MirrorSlice& slice : submitting_.out) copy_out(slice);
    submitting_ = {};
  }
  if (progress.completed != ring_.words().completed.load(std::memory_order_relaxed))
    ring_.advance(progress.completed);
  if (progress.state == PN_QUEUE_OK) return;
  const pn_status told = objects_.api().queue_error(handle_, &err);
  if (err.code == PN_OK)
    err.code = progress.state == PN_QUEUE_LOST ? PN_DEVICE_LOST : told < 0 ? told : PN_FAILED;
  ring_.fail(progress.state, err);
  pending_.clear();
}

// A submit that the plugin refuses fails the queue, since the server has gone on; what was accepted
// before it runs to its end first.
void HostQueue::fail(const pn_error& error) {
  for (bool due = true; due && !stop_.load();) {
    settle();
    {
      std::lock_guard lock(mutex_);
      due = !pending_.empty();
    }
    if (due) std::this_thread::sleep_for(kRetry);
  }
  std::lock_guard lock(mutex_);
  pn_error said = error;
  if (said.scope == PN_SCOPE_CALL) said.scope = PN_SCOPE_QUEUE;
  ring_.fail(said.code == PN_DEVICE_LOST ? PN_QUEUE_LOST : PN_QUEUE_FAILED, said);
  pending_.clear();
}

}  // namespace pn::proxy
