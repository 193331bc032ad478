// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: what the clock brings about. One loop takes whatever is due, earliest first, over
// all queues of all dies; so queues overtake each other as their times say, and one queue never
// overtakes itself.
#include <algorithm>

#include "plugins/chaos/chaos.h"

namespace chaos {
namespace {

constexpr size_t kEventsMax = 1 << 20;

void record(const Queue& queue, uint64_t value, uint32_t outcome) {
  State& s = state();
  --s.counts.outstanding;
  if (s.events.size() < kEventsMax) {
    s.events.push_back({queue.id, value, s.now(), outcome, 0});
  }
}

void fail_queue(Queue& queue, uint32_t to_state, const pn_error& error) {
  queue.state = to_state;
  queue.error = error;
  const uint32_t first = to_state == PN_QUEUE_LOST ? CHAOS_LOST : CHAOS_FAILED;
  if (!queue.work.empty()) {
    record(queue, queue.work.front().value, first);
    queue.work.pop_front();
  }
  drop(queue, to_state == PN_QUEUE_LOST ? CHAOS_LOST : CHAOS_DROPPED);
}

// Takes complete waits off the list; what waits for a queue that failed before has failed.
void look_at_waits(Work& work) {
  State& s = state();
  std::erase_if(work.waits, [&](const pn_point& point) {
    const Queue& other = s.queues.at(point.queue.id);
    if (other.completed >= point.value) {
      work.submitted_at = std::max(work.submitted_at, other.done_at);
      return true;
    }
    work.wait_failed = work.wait_failed || other.state != PN_QUEUE_OK;
    return false;
  });
}

bool held_by_script(Queue& queue) {
  State& s = state();
  const Work& work = queue.work.front();
  if (!work.runs) return false;
  const Die& die = s.dies[queue.die];
  const uint64_t hang = s.of(die).hang_step;
  queue.stuck = hang != 0 && die.runs + 1 == hang && !s.release;
  return queue.stuck || (s.options.by_hand != 0 && s.allowed == 0);
}

// Whether the first work of the queue has a time at which it is done.
bool has_due(Queue& queue) {
  if (queue.state != PN_QUEUE_OK || queue.work.empty()) return false;
  if (state().dies[queue.die].lost) return false;
  Work& work = queue.work.front();
  look_at_waits(work);
  if (work.wait_failed) {
    pn_error error = make_error(PN_FAILED, "a queue that this one waits for has failed");
    error.scope = PN_SCOPE_QUEUE;
    fail_queue(queue, PN_QUEUE_FAILED, error);
    return false;
  }
  if (!work.waits.empty() || held_by_script(queue)) return false;
  if (work.due == 0) work.due = std::max(work.submitted_at, queue.done_at) + work.takes_ns;
  return true;
}

void lose_queue(Queue& queue) {
  pn_error error = make_error(PN_DEVICE_LOST, "the script takes the queue away");
  error.scope = PN_SCOPE_QUEUE;
  fail_queue(queue, PN_QUEUE_LOST, error);
}

// Scripted misfortune of the RUN that is next. False: there was one, and the queue has settled.
bool survives(Queue& queue) {
  State& s = state();
  Die& die = s.dies[queue.die];
  const DieOptions& o = s.of(die);
  ++die.runs;
  if (die.runs == o.fail_step) {
    std::string text = "the script fails step " + std::to_string(die.runs);
    if (o.fail_op != UINT64_MAX) text += " in op " + std::to_string(o.fail_op);
    pn_error error = make_error(PN_FAILED, text);
    error.scope = PN_SCOPE_QUEUE;
    error.recovery = PN_RECOVER_NONE;
    fail_queue(queue, PN_QUEUE_FAILED, error);
    return false;
  }
  if (die.runs != o.lose_step) return true;
  if (o.lose_scope == PN_SCOPE_QUEUE) {
    lose_queue(queue);
  } else {
    lose(die);
  }
  return false;
}

void finish(Queue& queue) {
  State& s = state();
  const uint64_t due = queue.work.front().due;
  const bool runs = queue.work.front().runs;
  if (runs && !survives(queue)) return;
  if (runs && s.options.by_hand != 0) --s.allowed;
  pn_error error{};
  if (!execute(queue, queue.work.front(), &error)) {
    fail_queue(queue, PN_QUEUE_FAILED, error);
    return;
  }
  queue.completed = queue.work.front().value;
  queue.done_at = due;
  record(queue, queue.completed, CHAOS_DONE);
  queue.work.pop_front();
}

void settle_losses() {
  State& s = state();
  const uint64_t now = s.now();
  for (Die& die : s.dies) {
    const DieOptions& o = s.of(die);
    if (o.lose_ns != 0 && now >= o.lose_ns && !die.lost_on_time) {
      die.lost_on_time = true;
      lose(die);
    }
  }
  for (auto& [id, queue] : s.queues) {
    const Die& die = s.dies[queue.die];
    if (!die.lost || queue.state != PN_QUEUE_OK) continue;
    if (now < die.lost_at + s.of(die).settle_ns) continue;
    poison(die,
           kHostHeap);  // not before it is said: results of complete steps may be read till then
    fail_queue(queue, PN_QUEUE_LOST, die.loss);
  }
}

}  // namespace

void drop(Queue& queue, uint32_t outcome) {
  for (const Work& work : queue.work) record(queue, work.value, outcome);
  queue.work.clear();
}

void forget_queue(const Queue& queue) {
  for (auto& [id, other] : state().queues) {
    for (Work& work : other.work) {
      std::erase_if(work.waits, [&](const pn_point& point) {
        if (point.queue.id != queue.id) return false;
        if (point.value > queue.completed) work.wait_failed = true;
        return true;
      });
    }
  }
}

void lose(Die& first) {
  State& s = state();
  const DieOptions& o = s.of(first);
  const uint64_t per_card = s.options.dies_per_card;
  auto domain = [&](const Die& die) -> uint64_t {
    return s.options.resets == 0 ? die.index : s.options.resets == 1 ? die.index / per_card : 0;
  };
  pn_error error =
      make_error(PN_DEVICE_LOST, "the script takes die " + std::to_string(first.index) + " away");
  error.scope = static_cast<uint32_t>(o.lose_scope);
  error.recovery = static_cast<uint32_t>(o.lose_recovery);
  for (Die& die : s.dies) {
    const bool hit = die.index == first.index || o.lose_scope == PN_SCOPE_PLUGIN ||
                     (o.lose_scope == PN_SCOPE_RESET_DOMAIN && domain(die) == domain(first));
    if (!hit || die.lost) continue;
    die.lost = true;
    die.lost_at = s.now();
    die.loss = error;
    poison(die, kDeviceHeap);
  }
}

void settle() {
  State& s = state();
  for (;;) {
    settle_losses();
    const uint64_t now = s.now();
    Queue* next = nullptr;
    bool failed = false;
    for (auto& [id, queue] : s.queues) {
      const uint32_t before = queue.state;
      const bool due = has_due(queue);
      failed = failed || queue.state != before;  // who waits for it fails in the next round
      if (!due || queue.work.front().due > now) continue;
      if (next == nullptr || queue.work.front().due < next->work.front().due) next = &queue;
    }
    if (next == nullptr && !failed) return;
    if (next != nullptr) finish(*next);
  }
}

uint64_t next_due() {
  State& s = state();
  uint64_t next = UINT64_MAX;
  for (auto& [id, queue] : s.queues) {
    const Die& die = s.dies[queue.die];
    if (has_due(queue)) next = std::min(next, queue.work.front().due);
    if (die.lost && queue.state == PN_QUEUE_OK) {
      next = std::min(next, die.lost_at + s.of(die).settle_ns);
    }
  }
  for (const Die& die : s.dies) {
    const uint64_t at = s.of(die).lose_ns;
    if (at != 0 && !die.lost_on_time) next = std::min(next, at);
  }
  return next;
}

}  // namespace chaos
