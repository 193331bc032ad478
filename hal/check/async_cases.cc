// SPDX-License-Identifier: Apache-2.0
//
// Group async: queues. Time is used in one way only: as a share of work that was measured just
// before, so a slow machine slows both.
#include <thread>

#include "hal/check/contract.h"
#include "hal/check/long_work.h"
#include "hal/check/tiny_model.h"
#include "hal/check/trial.h"

namespace pn::check {

namespace {

const Result<void> kDone;

Result<void> order(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  constexpr uint64_t kPart = 4096;
  constexpr uint32_t kSteps = 64;
  PN_TRY(hal::Buffer buffer, side->place((kSteps + 1) * kPart));
  for (int round = 0; round < (bench.quick() ? 10 : 50); ++round) {
    PN_TRY(side->fill(buffer, 0));
    const std::vector<uint8_t> mark(kPart, static_cast<uint8_t>(round + 1));
    PN_TRY(side->write(buffer, 0, mark.data(), kPart));
    // A chain: part i is copied to part i + 1; any two swapped break it. Cut into submits of 1..4.
    uint64_t last = 0;
    for (uint32_t i = 0; i < kSteps;) {
      std::vector<pn_command> commands;
      for (uint32_t n = 0; n <= i % 4 && i < kSteps; ++n, ++i)
        commands.push_back(
            copy_of(buffer.slice(i * kPart, kPart), buffer.slice((i + 1) * kPart, kPart)));
      pn_submit s{};
      s.struct_size = sizeof s;
      s.command_count = static_cast<uint32_t>(commands.size());
      s.commands = commands.data();
      s.value = last = side->next_value();
      while (true) {
        PN_TRY(const bool taken, side->queue().submit(s));
        if (taken) break;
        std::this_thread::yield();
      }
    }
    PN_TRY(const bool done, side->queue().wait(last, kPatience));
    if (!bench.expect(done, "round {}: not complete after a minute", round)) return {};
    PN_TRY(side->queue().query());
    std::vector<uint8_t> got(kPart);
    PN_TRY(side->read(buffer, kSteps * kPart, got.data(), kPart));
    if (!bench.expect(got == mark, "round {}: a chain of copies arrives broken", round)) return {};
  }
  return {};
}

// Of five rounds the best: a thread may lose its core at any moment, but hardly five times.
Result<void> submit(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const LongWork work, long_work(*side, 40));
  if (work.ms < 20) return bench.note(fmt::format("too fast to tell ({:.1f} ms)", work.ms)), kDone;
  double share = 1;
  for (int i = 0; i < 5; ++i) {
    const pn_submit s = work.submit(side->next_value());
    const auto start = Clock::now();
    PN_TRY(side->queue().submit(s));
    const double returned = ms_since(start);
    PN_TRY(side->queue().wait(s.value, kPatience));
    share = std::min(share, returned / ms_since(start));
  }
  bench.expect(share < 0.5, "queue_submit returns after {:.0f} % of the work", share * 100);
  bench.note(fmt::format("returns after {:.2f} % of work of {:.0f} ms", share * 100, work.ms));
  return {};
}

Result<void> query(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const LongWork work, long_work(*side, 40));
  double share = 1;
  for (int i = 0; i < 5; ++i) {
    const pn_submit s = work.submit(side->next_value());
    PN_TRY(side->queue().submit(s));
    const auto start = Clock::now();
    PN_TRY(pn_progress last, side->queue().query());
    const double answered = ms_since(start);
    while (last.completed < s.value && ms_since(start) < 60000) {
      PN_TRY(const pn_progress next, side->queue().query());
      bench.expect(next.completed >= last.completed, "progress goes back from {} to {}",
                   last.completed, next.completed);
      last = next;
    }
    bench.expect(last.completed == s.value, "completed {}, wanted {}", last.completed, s.value);
    share = std::min(share, answered / ms_since(start));
  }
  if (work.ms >= 20)
    bench.expect(share < 0.5, "queue_query answers after {:.0f} % of the work", share * 100);
  return {};
}

// All arrays are overwritten as soon as queue_submit is back.
Result<void> borrow_once(Bench& bench, Rig* rig) {
  Side& side = rig->side();
  Steps steps;
  deal_pages(rig->plan(), &steps);
  for (uint32_t lane = 0; lane < 3; ++lane) prompt(&steps, lane, 0, 12, bench.seed(lane));
  PN_TRY(rig->run(steps, 1));
  std::vector<std::vector<float>> want;
  for (uint32_t r = 0; r < 3; ++r) want.push_back(rig->row(steps, r).logits);
  PN_TRY(side.fill(rig->results(), 0));
  PN_TRY(const LongWork work, long_work(side, 30));
  const pn_submit before = work.submit(side.next_value());
  PN_TRY(side.queue().submit(before));  // so that the run is still to come
  Steps borrowed = steps;
  rig->aim(&borrowed);
  pn_command command = rig->command(1);
  pn_step step = borrowed.view();
  pn_submit s{};
  s.struct_size = sizeof s;
  s.command_count = s.step_count = 1;
  s.commands = &command;
  s.steps = &step;
  s.value = side.next_value();
  pn_point wait{side.queue().handle(), before.value};
  s.wait_count = 1;
  s.waits = &wait;
  PN_TRY(side.queue().submit(s));
  const uint64_t value = s.value;
  std::memset(borrowed.tokens.data(), 0xff, borrowed.tokens.size() * 4);
  std::memset(borrowed.entries.data(), 0xff, borrowed.entries.size() * sizeof(pn_entry));
  std::memset(borrowed.pages.data(), 0xff, borrowed.pages.size() * sizeof(pn_pages));
  std::memset(borrowed.rows.data(), 0xff, borrowed.rows.size() * sizeof(pn_row));
  std::memset(&command, 0xff, sizeof command);
  std::memset(&step, 0xff, sizeof step);
  std::memset(&wait, 0xff, sizeof wait);
  std::memset(&s, 0xff, sizeof s);
  PN_TRY(const bool done, side.queue().wait(value, kPatience));
  bench.expect(done, "not complete after a minute");
  PN_TRY(side.queue().query());
  Steps rows = steps;
  rig->aim(&rows);
  for (uint32_t r = 0; r < 3; ++r)
    bench.close(rig->row(rows, r).logits, want[r], rig->tolerance(),
                "arrays were read after queue_submit had returned: row " + std::to_string(r));
  return {};
}

Result<void> borrowed(Bench& bench) {
  PN_TRY(auto rig, model_rig(bench));
  for (int i = 0; rig != nullptr && i < 3; ++i) PN_TRY(borrow_once(bench, rig.get()));
  return {};
}

Result<void> full(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const LongWork work, long_work(*side, 60));
  PN_TRY(hal::Buffer target, side->place(4096));
  PN_TRY(side->fill(target, 0));
  PN_TRY(hal::Buffer marks, side->place(64 * 4096));
  for (uint32_t i = 0; i < 64; ++i) {
    const std::vector<uint8_t> mark(4096, static_cast<uint8_t>(i + 1));
    PN_TRY(side->write(marks, i * 4096, mark.data(), mark.size()));
  }
  pn_submit s = work.submit(side->next_value());
  PN_TRY(side->queue().submit(s));
  uint32_t taken = 1;
  uint64_t last = s.value;
  pn_status status = PN_OK;
  for (; taken < 64; ++taken) {
    const pn_command c = copy_of(marks.slice(taken * 4096, 4096), target.all());
    pn_submit more{};
    more.struct_size = sizeof more;
    more.command_count = 1;
    more.commands = &c;
    more.value = last + 1;
    pn_error err = new_error();
    status = side->table().queue_submit(side->queue().handle(), &more, &err);
    if (status != PN_OK) break;
    last = more.value;
  }
  bench.expect(status == PN_OK || status == PN_NOT_READY,
               "a full queue: status {}, wanted "
               "PN_NOT_READY",
               status);
  bench.expect(taken >= 8, "a queue of depth 8 is full after {} submits", taken);
  PN_TRY(const bool done, side->queue().wait(last, kPatience));
  bench.expect(done, "not complete after a minute");
  PN_TRY(const pn_progress progress, side->queue().query());
  bench.expect(progress.completed == last, "completed {}, the last that was taken is {}",
               progress.completed, last);
  for (uint64_t used = s.value; used < last; ++used) side->next_value();
  std::vector<uint8_t> got(1);
  PN_TRY(side->read(target, 0, got.data(), 1));
  bench.expect(got[0] == taken - 1 + 1, "the last submit that was taken wrote {}, found {}", taken,
               got[0]);
  if (status == PN_OK) bench.note("never full: submits complete before they return");
  return side->copy(marks.slice(0, 4096), target.all());  // and it takes submits again
}

Result<void> waits(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(LongWork work, long_work(*side, 20));
  PN_TRY(hal::Queue other, side->device().create_queue(PN_QUEUE_TRANSFER, 8));
  PN_TRY(hal::Buffer target, side->place(4096));
  for (uint64_t round = 1; round <= 5; ++round) {
    const std::vector<uint8_t> mark(4096, static_cast<uint8_t>(round));
    PN_TRY(side->write(work.a, kWorkBytes - 4096, mark.data(), mark.size()));
    PN_TRY(side->fill(work.b, 0));
    PN_TRY(side->fill(target, 0));
    const pn_submit first = work.submit(side->next_value());
    PN_TRY(side->queue().submit(first));
    const pn_point wait{side->queue().handle(), first.value};
    const pn_command c = copy_of(work.b.slice(kWorkBytes - 4096, 4096), target.all());
    pn_submit second{};
    second.struct_size = sizeof second;
    second.wait_count = second.command_count = 1;
    second.waits = &wait;
    second.commands = &c;
    second.value = round;
    PN_TRY(other.submit(second));
    PN_TRY(const bool done, other.wait(round, kPatience));
    if (!bench.expect(done, "the waiter is not complete after a minute")) return {};
    PN_TRY(other.query());
    std::vector<uint8_t> got(4096);
    PN_TRY(side->read(target, 0, got.data(), got.size()));
    bench.expect(got == mark, "round {}: the waiter ran before what it waits for", round);
  }
  return {};
}

// A run on pages that its lane was never given fails its queue, or is refused at once.
pn_status failing_submit(Rig& rig, uint64_t value, std::span<const pn_point> waits) {
  Steps steps;
  steps.lane(0);
  const int32_t ids[] = {1};
  steps.entry(0, 0, ids);
  const pn_command command = rig.command();
  const pn_step step = steps.view();
  pn_submit s{};
  s.struct_size = sizeof s;
  s.command_count = s.step_count = 1;
  s.commands = &command;
  s.steps = &step;
  s.wait_count = static_cast<uint32_t>(waits.size());
  s.waits = waits.data();
  s.value = value;
  pn_error err = new_error();
  return rig.side().table().queue_submit(rig.side().queue().handle(), &s, &err);
}

Result<void> failed_wait(Bench& bench) {
  PN_TRY(auto rig, model_rig(bench));
  if (rig == nullptr) return {};
  Side& side = rig->side();
  PN_TRY(const LongWork work, long_work(side, 30));
  PN_TRY(hal::Queue other, side.device().create_queue(PN_QUEUE_TRANSFER, 8));
  PN_TRY(hal::Buffer target, side.place(4096));
  PN_TRY(side.fill(target, 0));
  PN_TRY(side.queue().submit(work.submit(side.next_value())));
  const uint64_t value = side.next_value();
  if (failing_submit(*rig, value, {}) != PN_OK)
    return bench.unsupported("the plugin refuses at submit what would fail a queue"), kDone;
  const pn_point wait{side.queue().handle(), value};
  const pn_command c = copy_of(work.a.slice(0, 4096), target.all());
  pn_submit s{};
  s.struct_size = sizeof s;
  s.wait_count = s.command_count = 1;
  s.waits = &wait;
  s.commands = &c;
  s.value = 1;
  const auto taken = other.submit(s);
  if (taken) {
    const auto done = other.wait(1, kPatience);
    bench.expect(!done, "a submit that waits for a failed queue completes");
    PN_TRY(const pn_progress progress, other.query());
    bench.expect(progress.state != PN_QUEUE_OK && progress.completed == 0,
                 "the waiter's queue is in state {} with {} completed", progress.state,
                 progress.completed);
    std::vector<uint8_t> got(1);
    std::memcpy(got.data(), target.host() != nullptr ? target.host() : "", 1);
    bench.expect(got[0] == 0, "the waiter of a failed queue ran all the same");
  }
  PN_TRY(const pn_progress failed, side.queue().query());
  bench.expect(failed.state != PN_QUEUE_OK && failed.completed < value,
               "the failed queue is in state {} with {} completed", failed.state, failed.completed);
  return {};
}

Result<void> early(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  constexpr uint64_t kBytes = 4 << 20;
  PN_TRY(hal::Buffer from, side->results(kBytes));
  PN_TRY(hal::Buffer to, side->results(kBytes));
  auto* a = static_cast<uint8_t*>(from.host());
  auto* b = static_cast<uint8_t*>(to.host());
  for (int round = 1; round <= (bench.quick() ? 20 : 100); ++round) {
    const uint64_t bytes = round % 2 != 0 ? kBytes : 4096;
    std::memset(a, round, bytes);
    const pn_command c = copy_of(from.slice(0, bytes), to.slice(0, bytes));
    pn_submit s{};
    s.struct_size = sizeof s;
    s.command_count = 1;
    s.commands = &c;
    s.value = side->next_value();
    PN_TRY(side->queue().submit(s));
    const auto start = Clock::now();
    pn_progress progress{};
    while (progress.completed < s.value && ms_since(start) < 60000) {
      PN_TRY(progress, side->queue().query());
    }
    bool there = true;
    for (uint64_t i = bytes; i > 0 && there; i -= std::min<uint64_t>(i, 512))
      there = b[i - 1] == static_cast<uint8_t>(round);
    if (!bench.expect(there, "round {}: complete is said before {} bytes are there", round, bytes))
      break;
  }
  return {};
}

// Waits of 10 ms on longer work; of three the one that came back first.
Result<void> timeout(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const LongWork work, long_work(*side, 120));
  const pn_submit s = work.submit(side->next_value());
  PN_TRY(side->queue().submit(s));
  const pn_point point{side->queue().handle(), s.value};
  double shortest = 1e9;
  for (int i = 0; i < 3; ++i) {
    pn_error err = new_error();
    const auto start = Clock::now();
    const pn_status status = side->table().queue_wait(point, 10'000'000, &err);
    if (status == PN_NOT_READY) shortest = std::min(shortest, ms_since(start));
    PN_TRY(const pn_progress progress, side->queue().query());
    bench.expect(status == PN_NOT_READY || progress.completed >= s.value,
                 "a wait of 10 ms on work of {:.0f} ms: status {}", work.ms, status);
  }
  bench.expect(shortest >= 9, "a wait of 10 ms gives up after {:.2f} ms", shortest);
  PN_TRY(const bool done, side->queue().wait(s.value, kPatience));
  bench.expect(done, "not complete after a minute");
  return {};
}

Result<void> destroy(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(LongWork work, long_work(*side, 60));
  PN_TRY(hal::Queue queue, side->device().create_queue(PN_QUEUE_RUN, 8));
  for (uint64_t value = 1; value <= 3; ++value) PN_TRY(queue.submit(work.submit(value)));
  queue = {};  // drops or finishes what is outstanding
  PN_TRY(side->fill(work.b, 0x77));
  std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<int64_t>(work.ms) + 20));
  std::vector<uint8_t> got(kWorkBytes);
  PN_TRY(side->read(work.b, 0, got.data(), got.size()));
  for (uint64_t i = 0; i < got.size(); i += 512)
    if (!bench.expect(got[i] == 0x77, "work goes on after queue_destroy has returned")) break;
  return {};
}

constexpr Case kCases[] = {
    {"async/order", "submit.h", "commands and submits keep their order", order},
    {"async/submit", "queue_submit", "does not wait for the work", submit},
    {"async/borrowed", "R1", "arrays are read before queue_submit returns", borrowed},
    {"async/full", "queue_submit", "PN_NOT_READY when full, nothing done", full},
    {"async/query", "queue_query", "does not block; progress never goes back", query},
    {"async/waits", "pn_submit", "work starts after what it waits for", waits},
    {"async/failed_wait", "pn_submit", "a failed wait fails the waiter", failed_wait},
    {"async/early", "queue_query", "complete means that results are there", early},
    {"async/timeout", "queue_wait", "PN_NOT_READY when the time is over", timeout},
    {"async/destroy", "queue_destroy", "nothing is touched after it", destroy},
};

}  // namespace

std::span<const Case> async_cases() { return kCases; }

}  // namespace pn::check
