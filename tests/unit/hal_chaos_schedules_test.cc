// SPDX-License-Identifier: Apache-2.0
//
// A thousand seeded schedules through the host's wrapper, on the scripted plugin's virtual clock:
// submits, waits across queues, failures, losses, refusals, destruction in the midst of it.
//
// Each schedule ends with: every submit settled once; behind a failure everything failed, in order;
// nothing of a lost scope can be read; every handle is freed; the plugin saw no rule broken.
// PN_CHAOS_SEED=n runs schedule n alone, PN_CHAOS_SCHEDULES=n that many.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "hal/host/hal.h"
#include "tests/support/chaos_plugin.h"
#include "tests/support/tiny_plan.h"

namespace {

using namespace pn;
using namespace pn::test;

constexpr uint32_t kRecords = 256;  // of one queue: a submit has its own
constexpr uint64_t kStride = 64;
constexpr int kPattern = 0x5a;
constexpr int kActions = 60;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t next() {  // xorshift*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  uint64_t below(uint64_t n) { return next() % n; }
  bool chance(uint64_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

struct Expected {  // of one submit
  int32_t id = -1;
  uint32_t record = 0;
};

// One queue and what runs on it. Members in the order that the contract asks for.
struct Line {
  uint32_t die = 0;
  uint32_t kind = PN_QUEUE_RUN;
  hal::Buffer pool, results;
  const std::byte* raw = nullptr;  // of results, whatever the wrapper says later
  hal::Program program;
  hal::Queue queue;
  uint64_t id = 0;
  uint64_t submitted = 0;
  uint64_t completed = 0;
  uint32_t state = PN_QUEUE_OK;
  std::map<uint64_t, Expected> runs;  // by value
  std::vector<int32_t> lane[2];       // ids that stand in the pages
};

class Schedule {
 public:
  using Census = std::map<uint32_t, uint64_t>;  // outcome -> submits
  explicit Schedule(uint64_t seed) : random_(seed), seed_(seed) {}
  void run(Census& census);

 private:
  hal::Options options();
  void open();
  void add_line(uint32_t die, uint32_t kind);
  void act();
  void submit_run(Line& line);
  void submit_copy(Line& line);
  void send(Line& line, const pn_command& command, const pn_step* step, const Expected& expected);
  std::vector<pn_point> some_points();
  void look(Line& line);
  void look_at_records(Line& line);
  void wait_somewhere();
  void buy_and_give();
  void destroy_one();
  void settle_all();
  void check_events(Census& census);
  Line* any_line();

  Random random_;
  uint64_t seed_;
  std::shared_ptr<hal::Plugin> plugin_;
  const chaos_control* hand_ = nullptr;
  std::vector<hal::Device> devices_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::map<uint64_t, uint64_t> accepted_;  // queue id -> submits that were accepted
  TinyPlan tiny_;
};

hal::Options Schedule::options() {
  hal::Options o = {{"clock", "virtual"}, {"seed", std::to_string(seed_)}, {"poison", "yes"}};
  auto add = [&](const char* key, const std::string& value) { o.emplace_back(key, value); };
  const char* groups[] = {"die", "card", "all"};
  const char* scopes[] = {"queue", "device", "reset_domain", "plugin"};
  add("cards", std::to_string(1 + random_.below(2)));
  add("dies_per_card", std::to_string(1 + random_.below(2)));
  add("resets", groups[random_.below(3)]);
  add("peers", groups[random_.below(3)]);
  add("tick_ns", std::to_string(random_.below(3) * 500));
  add("step_ns", std::to_string(random_.below(5000)));
  add("copy_ns", std::to_string(random_.below(3000)));
  add("jitter_ns", std::to_string(random_.below(8000)));
  add("lose_scope", scopes[random_.below(4)]);
  add("settle_ns", std::to_string(random_.below(2) * 20000));
  if (random_.chance(30)) add("late_every", std::to_string(1 + random_.below(5)));
  if (random_.chance(30)) add("late_ns", std::to_string(random_.below(100000)));
  if (random_.chance(30)) add("full_every", std::to_string(2 + random_.below(4)));
  if (random_.chance(40)) add("die0.fail_step", std::to_string(1 + random_.below(12)));
  if (random_.chance(30)) add("die0.lose_step", std::to_string(1 + random_.below(20)));
  if (random_.chance(10)) add("die0.lose_ns", std::to_string(1 + random_.below(200000)));
  if (random_.chance(20)) add("oom_at", std::to_string(1 + random_.below(8)));
  if (random_.chance(20)) add("build_ns", std::to_string(random_.below(10000)));
  if (random_.chance(10)) add("die0.fail_build", std::to_string(1 + random_.below(2)));
  if (random_.chance(20)) add("slow_free_ns", std::to_string(random_.below(100000)));
  return o;
}

// A refusal of the script leaves a line out; that is part of the schedule.
void Schedule::add_line(uint32_t die, uint32_t kind) {
  auto line = std::make_unique<Line>();
  const hal::Device& device = devices_[die];
  line->die = die;
  line->kind = kind;
  auto pool = device.create_buffer(0, 1 << 16);
  if (!pool) return;
  line->pool = std::move(*pool);
  auto results = device.create_buffer(1, kRecords * kStride);
  if (!results) return;
  line->results = std::move(*results);
  if (line->results.host() == nullptr) return;  // lost meanwhile
  line->raw = static_cast<std::byte*>(line->results.host());
  std::memset(line->results.host(), kPattern, kRecords * kStride);
  auto report = device.query(tiny_.plan);
  if (!report) return;
  const uint64_t pages = uint64_t{TinyPlan::kLanes} * TinyPlan::kContext / TinyPlan::kPageTokens;
  const std::vector<pn_binding> bindings = {
      {PN_BIND_WEIGHT, 0, 0, 0, line->pool.slice(0, 8 * TinyPlan::kVocab * 4)},
      {PN_BIND_CACHE, 0, 0, 0, line->pool.slice(4096, report->unit_bytes[0] * pages)},
      {PN_BIND_SCRATCH, 0, 0, 0, line->pool.slice(16384, 4096)},
      {PN_BIND_IDS, 0, 0, 0, line->pool.slice(32768, 8)}};
  if (kind == PN_QUEUE_RUN) {
    auto program = device.create_program(tiny_.plan, bindings);
    if (!program) return;
    line->program = std::move(*program);
    for (;;) {
      auto status = line->program.status();
      if (!status) return;
      if (status->state == PN_PROGRAM_READY) break;
      hand_->advance(2000);
    }
  }
  auto queue = device.create_queue(kind, 8 + static_cast<uint32_t>(random_.below(3)) * 8);
  if (!queue) return;
  line->queue = std::move(*queue);
  line->id = line->queue.handle().id;
  lines_.push_back(std::move(line));
}

void Schedule::open() {
  plugin_ = chaos_plugin(options());
  hand_ = &chaos_hand(*plugin_);
  auto infos = plugin_->devices();
  REQUIRE(infos);
  for (uint32_t i = 0; i < infos->size(); ++i) {
    auto device = hal::Device::open(plugin_, i);
    if (!device) {  // lost before it was opened
      CHECK(device.error().code == Code::device_lost);
      devices_.emplace_back();
      continue;
    }
    devices_.push_back(std::move(*device));
  }
  for (uint32_t i = 0; i < infos->size(); ++i) {
    if (!devices_[i]) continue;
    add_line(i, PN_QUEUE_RUN);
    if (random_.chance(50)) add_line(i, PN_QUEUE_RUN);
    add_line(i, PN_QUEUE_TRANSFER);
  }
}

Line* Schedule::any_line() {
  return lines_.empty() ? nullptr : lines_[random_.below(lines_.size())].get();
}

std::vector<pn_point> Schedule::some_points() {
  std::vector<pn_point> points;
  for (uint64_t n = random_.below(3); n > 0; --n) {
    const Line* other = any_line();
    if (other->submitted == 0) continue;
    points.push_back({other->queue.handle(), 1 + random_.below(other->submitted)});
  }
  return points;
}

void Schedule::send(Line& line, const pn_command& command, const pn_step* step,
                    const Expected& expected) {
  const std::vector<pn_point> waits = some_points();
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.wait_count = static_cast<uint32_t>(waits.size());
  submit.waits = waits.data();
  submit.command_count = 1;
  submit.commands = &command;
  submit.step_count = step != nullptr ? 1 : 0;
  submit.steps = step;
  submit.value = line.submitted + 1;
  auto accepted = line.queue.submit(submit);
  if (!accepted) {  // only a queue or die that has failed may refuse
    const bool known =
        accepted.error().code == Code::failed || accepted.error().code == Code::device_lost;
    CHECK_MESSAGE(known, accepted.error().message);
    return;
  }
  if (!*accepted) return;
  line.submitted = submit.value;
  ++accepted_[line.id];
  if (step == nullptr) return;
  line.runs[submit.value] = expected;
}

void Schedule::submit_run(Line& line) {
  if (line.submitted + 1 >= kRecords) return;
  const auto lane = static_cast<uint32_t>(random_.below(2));
  std::vector<int32_t>& ids = line.lane[lane];
  const bool fresh = ids.empty() || ids.size() + 8 > TinyPlan::kContext;
  std::vector<int32_t> known = fresh ? std::vector<int32_t>{} : ids;
  const bool fed = !fresh && random_.chance(70);
  std::vector<int32_t> tokens(fed ? 0 : 1 + random_.below(4));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random_.below(TinyPlan::kVocab));
  const uint32_t count = fed ? 1 : static_cast<uint32_t>(tokens.size());

  // The pages of a lane are its own; all are given with its setup.
  pn_lane setup{};
  setup.struct_size = sizeof setup;
  setup.lane = lane;
  setup.flags = PN_LANE_RESET;
  setup.adapter = PN_NONE;
  setup.top_p = setup.repeat_penalty = 1;
  const uint32_t per_lane = TinyPlan::kContext / TinyPlan::kPageTokens;
  const pn_pages pages = {0, lane, 0, lane * per_lane, per_lane, 0};
  // The last id that was drawn is in known already, for its place in the row; a fed entry writes
  // it.
  const uint32_t position = static_cast<uint32_t>(known.size()) - (fresh ? 0 : 1);
  if (!fresh && !fed) known.pop_back();  // other tokens go in its place
  known.insert(known.end(), tokens.begin(), tokens.end());
  const pn_entry entry = {lane, count, 0, position, PN_NONE, PN_NONE, 0, fed ? PN_ENTRY_FEED : 0u};
  Expected expected;
  expected.record = static_cast<uint32_t>(line.submitted + 1);
  expected.id = chaos_next(seed_, known.data(), known.size(), TinyPlan::kVocab);
  const pn_slice target = line.results.slice(expected.record * kStride, sizeof(pn_result));
  const pn_row row = {0, count - 1, PN_ROW_SAMPLE, 0, 0, PN_MASK_NONE, 0, 0, {}, target};
  const pn_step step = {sizeof step,
                        static_cast<uint32_t>(tokens.size()),
                        fresh ? 1u : 0u,
                        fresh ? 1u : 0u,
                        1,
                        1,
                        tokens.data(),
                        &setup,
                        &pages,
                        &entry,
                        &row};
  pn_command command{};
  command.kind = PN_CMD_RUN;
  command.program = line.program.handle();
  const uint64_t before = line.submitted;
  send(line, command, &step, expected);
  if (line.submitted == before) return;
  known.push_back(expected.id);
  ids = std::move(known);
}

void Schedule::submit_copy(Line& line) {
  pn_command command{};
  command.kind = PN_CMD_COPY;
  command.source = line.pool.slice(40960, 256);
  command.target = line.pool.slice(49152, 256);
  send(line, command, nullptr, {});
}

// What a reader may do: read a record once its value is complete and the queue is well.
void Schedule::look_at_records(Line& line) {
  const void* host = line.results.host();
  if (line.state == PN_QUEUE_LOST) {
    const bool queue_alone = line.queue.failure().scope == PN_SCOPE_QUEUE;
    CHECK((host == nullptr || queue_alone));
  }
  for (const auto& [value, expected] : line.runs) {
    pn_result result;
    std::memcpy(&result, line.raw + expected.record * kStride, sizeof result);
    if (value <= line.completed) {
      if (line.state == PN_QUEUE_OK) CHECK(result.id == expected.id);
      continue;
    }
    // Never an output that nobody said was complete: the pattern, or what the loss left.
    int32_t pattern = 0, poison = 0;
    std::memset(&pattern, kPattern, sizeof pattern);
    std::memset(&poison, 0xdb, sizeof poison);
    CHECK((result.id == pattern || result.id == poison));
  }
}

void Schedule::look(Line& line) {
  auto progress = line.queue.query();
  REQUIRE_MESSAGE(progress, progress.error().message);
  CHECK(progress->completed >= line.completed);
  CHECK(progress->completed <= line.submitted);
  if (line.state != PN_QUEUE_OK) {
    CHECK(progress->state >= line.state);  // a failed queue may be lost, nothing gets well
    CHECK(progress->completed == line.completed);
  }
  line.completed = progress->completed;
  line.state = progress->state;
  if (line.results.host() == nullptr) CHECK(line.state == PN_QUEUE_LOST);
  const pn_error error = line.queue.failure();
  if (line.state == PN_QUEUE_FAILED) CHECK(error.code == PN_FAILED);
  if (line.state == PN_QUEUE_OK) CHECK(error.code == PN_OK);
  look_at_records(line);
}

void Schedule::wait_somewhere() {
  Line& line = *any_line();
  if (line.submitted == 0) return;
  const uint64_t value = 1 + random_.below(line.submitted);
  auto waited = line.queue.wait(value, random_.below(50000));
  look(line);
  if (!waited) {
    CHECK(line.state != PN_QUEUE_OK);
  } else if (*waited) {
    CHECK(line.completed >= value);
  }
}

void Schedule::buy_and_give() {
  const hal::Device& device = devices_[random_.below(devices_.size())];
  if (!device) return;
  const uint32_t heap = static_cast<uint32_t>(random_.below(2));
  const uint64_t bytes = 1 + random_.below(1 << 20);
  const uint64_t before = chaos_counts_of(*hand_).device_bytes;
  auto bought = device.create_buffer(heap, bytes);
  if (bought) return;
  const bool known =
      bought.error().code == Code::out_of_memory || bought.error().code == Code::device_lost;
  CHECK_MESSAGE(known, bought.error().message);
  CHECK(chaos_counts_of(*hand_).device_bytes == before);
}

void Schedule::destroy_one() {
  if (lines_.size() < 2) return;
  const size_t at = random_.below(lines_.size());
  Line& line = *lines_[at];
  line.queue = {};
  line.program = {};
  lines_.erase(lines_.begin() + static_cast<ptrdiff_t>(at));
}

void Schedule::act() {
  const uint64_t what = random_.below(100);
  Line& line = *any_line();
  if (what < 45) {
    line.kind == PN_QUEUE_RUN ? submit_run(line) : submit_copy(line);
  } else if (what < 60) {
    look(line);
  } else if (what < 75) {
    hand_->advance(random_.below(20000));
  } else if (what < 85) {
    wait_somewhere();
  } else if (what < 92) {
    buy_and_give();
  } else if (what < 95) {
    destroy_one();
  } else if (what < 96) {
    hand_->lose(line.die);
  }
}

void Schedule::settle_all() {
  for (int round = 0; round < 2000; ++round) {
    bool settled = chaos_counts_of(*hand_).outstanding == 0;
    for (auto& line : lines_) {
      look(*line);
      settled = settled && (line->state != PN_QUEUE_OK || line->completed == line->submitted);
    }
    if (settled) return;
    hand_->advance(10000);
  }
  FAIL_CHECK("a queue does not settle");
}

// Every accepted submit settled once and in order; nothing is done behind a failure.
void Schedule::check_events(Census& census) {
  std::map<uint64_t, uint64_t> last, seen;
  std::map<uint64_t, uint32_t> outcome;
  for (const chaos_event& event : chaos_events_of(*hand_)) {
    ++census[event.outcome];
    CHECK(event.value == last[event.queue] + 1);
    last[event.queue] = event.value;
    ++seen[event.queue];
    if (outcome[event.queue] != CHAOS_DONE) {
      CHECK(event.outcome == (outcome[event.queue] == CHAOS_LOST ? CHAOS_LOST : CHAOS_DROPPED));
    } else if (event.outcome != CHAOS_DONE) {
      outcome[event.queue] = event.outcome;
    }
  }
  CHECK(seen == accepted_);
}

void Schedule::run(Census& census) {
  open();
  for (int i = 0; i < kActions && !lines_.empty(); ++i) act();
  settle_all();
  CHECK(chaos_counts_of(*hand_).outstanding == 0);
  lines_.clear();
  const chaos_counts empty = chaos_counts_of(*hand_);
  CHECK(empty.buffers + empty.programs + empty.queues == 0);
  devices_.clear();
  REQUIRE(plugin_->shutdown(1'000'000'000));
  const chaos_counts end = chaos_counts_of(*hand_);
  CHECK(end.devices + end.device_bytes + end.hung == 0);
  CHECK(end.host_faults == 0);
  check_events(census);
}

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Either side's misbehaviour, told by the plugin itself or by the validation layer, is a failure.
void run_schedules(uint64_t most) {
  hal::set_log_sink([](uint32_t level, const std::string&, const char* text) {
    if (level == PN_LOG_HOST_BUG || level == PN_LOG_PLUGIN_BUG) FAIL_CHECK(std::string(text));
  });
  const bool one = std::getenv("PN_CHAOS_SEED") != nullptr;
  const uint64_t first = number_of("PN_CHAOS_SEED", 1);
  const uint64_t count = one ? 1 : number_of("PN_CHAOS_SCHEDULES", most);
  Schedule::Census census;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);  // PN_CHAOS_SEED=seed runs it alone
    Schedule(seed).run(census);
  }
  for (uint32_t outcome : {CHAOS_DONE, CHAOS_FAILED, CHAOS_DROPPED, CHAOS_LOST}) {
    CAPTURE(outcome);
    if (count >= 1000) CHECK(census[outcome] > 100);
  }
  hal::set_log_sink({});
}

}  // namespace

TEST_CASE(
    "chaos: a thousand schedules settle, fail in order, leak nothing, give out nothing lost") {
  run_schedules(1000);
}

TEST_CASE("chaos: the validation layer has nothing to say about them") {
  ::setenv("PANTHEON_HAL_VALIDATE", "1", 1);
  run_schedules(200);
  ::unsetenv("PANTHEON_HAL_VALIDATE");
}
