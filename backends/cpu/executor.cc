// SPDX-License-Identifier: Apache-2.0
//
// The leader of a die: takes submits off the rings and runs them with the team. See queue.h.
#include <algorithm>
#include <cstring>

#include "backends/cpu/error.h"
#include "backends/cpu/queue.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

// Below this a copy is over before a helper is awake (50 us at 10 GB/s).
constexpr uint64_t kTeamCopyBytes = uint64_t{1} << 20;

// Bumped when any queue completes or fails, for leaders that wait on another die's queue.
Signal* progress() {
  static Signal signal;
  return &signal;
}

// 1 every wait is met, 0 not yet, -1 one can never be.
int waits_met(const Submit& submit) {
  for (uint32_t i = 0; i < submit.wait_count; ++i) {
    const Queue* other = state()->queues.find(submit.waits[i].queue.id);
    if (other == nullptr) return -1;
    if (other->completed.load(std::memory_order_acquire) >= submit.waits[i].value) continue;
    return other->state.load(std::memory_order_acquire) == PN_QUEUE_OK ? 0 : -1;
  }
  return 1;
}

}  // namespace

std::unique_ptr<Executor> Executor::start(const Die& die, uint32_t threads, bool pin,
                                          uint32_t first_name) {
  auto executor = std::make_unique<Executor>();
  executor->name_ = first_name;
  // Threads stay on their node where there are several (memory is there); on one core each only
  // when the profile says so.
  std::vector<int> cpus;
  if (pin)
    cpus = die.node.cores;
  else if (state()->machine.nodes.size() > 1)
    cpus = die.node.cpus;
  if (!executor->team_.start(threads, cpus, pin, first_name + 1)) return nullptr;
  if (!spawn_thread(&executor->leader_, leader_main, executor.get())) return nullptr;
  executor->led_ = true;
  if (!cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t c = 0; c < cpus.size(); ++c)
      if (!pin || c == 0) CPU_SET(cpus[c], &set);
    pthread_setaffinity_np(executor->leader_, sizeof(set), &set);
  }
  return executor;
}

Executor::~Executor() {
  stopping_.store(true, std::memory_order_release);
  work_.bump();
  if (led_) pthread_join(leader_, nullptr);
}

bool Executor::attach(Queue* queue) {
  for (auto& slot : queues_) {
    Queue* empty = nullptr;
    if (slot.compare_exchange_strong(empty, queue)) return true;
  }
  return false;
}

void Executor::detach(Queue* queue) {
  queue->closing.store(true, std::memory_order_release);
  work_.bump();
  for (auto& slot : queues_) {
    // The leader clears the slot last, and then does not touch the queue again.
    for (uint32_t seen = retired_.read(); slot.load(std::memory_order_acquire) == queue;
         seen = retired_.read())
      retired_.await(seen, 0);
  }
}

void* Executor::leader_main(void* self) {
  auto* executor = static_cast<Executor*>(self);
  name_thread(executor->name_);
  executor->lead();
  return nullptr;
}

void Executor::lead() {
  bool warm = false;  // the last round ran something: the next submit may be a moment away
  for (;;) {
    const uint32_t seen = work_.read();
    const uint32_t progressed = progress()->read();
    if (stopping_.load(std::memory_order_acquire)) return;
    bool ran = false, blocked = false;
    for (auto& slot : queues_) {
      Queue* queue = slot.load(std::memory_order_acquire);
      if (queue == nullptr) continue;
      if (queue->closing.load(std::memory_order_acquire)) {
        slot.store(nullptr, std::memory_order_release);
        retired_.bump();
        continue;
      }
      const Served served = serve(queue);
      ran = ran || served == Served::ran;
      blocked = blocked || served == Served::blocked;
    }
    if (!ran && blocked)
      progress()->await(progressed, kSpinNs, 1'000'000);
    else if (!ran)
      work_.await(seen, warm ? kSpinNs : 0);
    warm = ran;
  }
}

Executor::Served Executor::serve(Queue* queue) {
  const uint64_t tail = queue->tail.load(std::memory_order_relaxed);
  if (tail == queue->head.load(std::memory_order_acquire)) return Served::nothing;
  if (queue->state.load(std::memory_order_relaxed) != PN_QUEUE_OK) {
    // What stands behind a failed submit fails in order: it is dropped.
    queue->tail.store(tail + 1, std::memory_order_release);
    return Served::ran;
  }
  const Submit& submit = queue->ring[tail % queue->depth];
  const int met = waits_met(submit);
  if (met == 0) return Served::blocked;
  pn_error error = {};
  error.struct_size = sizeof(error);
  pn_status status = PN_OK;
  if (met < 0)
    status = fail(&error, PN_FAILED, "a queue that this submit waits for has failed");
  else
    status = execute(submit, &error);
  if (status == PN_OK)
    queue->completed.store(submit.value, std::memory_order_release);
  else
    fail_queue(queue, error);
  queue->tail.store(tail + 1, std::memory_order_release);
  queue->done.bump();
  progress()->bump();
  return Served::ran;
}

void Executor::fail_queue(Queue* queue, const pn_error& error) {
  queue->error = error;
  queue->error.scope = PN_SCOPE_QUEUE;
  queue->state.store(PN_QUEUE_FAILED, std::memory_order_release);
}

pn_status Executor::execute(const Submit& submit, pn_error* err) {
  for (uint32_t i = 0; i < submit.work_count; ++i) {
    const Work& work = submit.works[i];
    pn_status status = PN_OK;
    if (work.kind == PN_CMD_COPY)
      copy(work);
    else if (work.kind == PN_CMD_RUN)
      status = work.program->run(team_, work.step, err);
    else
      status = work.program->sample(team_, work.step, err);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

void Executor::copy(const Work& work) {
  const std::byte* source_end = work.source + work.bytes;
  const bool apart = source_end <= work.target || work.target + work.bytes <= work.source;
  if (work.bytes < kTeamCopyBytes || team_.size() == 1 || !apart) {
    memmove(work.target, work.source, work.bytes);
    return;
  }
  struct Shared {
    const Work& work;
    uint64_t part;
  } shared = {work, (work.bytes / team_.size() + 4095) / 4096 * 4096};
  team_.run(
      [](void* argument, uint32_t thread) {
        const Shared& all = *static_cast<Shared*>(argument);
        const uint64_t from = std::min(all.work.bytes, thread * all.part);
        const uint64_t to = std::min(all.work.bytes, from + all.part);
        memcpy(all.work.target + from, all.work.source + from, to - from);
      },
      &shared);
}

}  // namespace pn::cpu
