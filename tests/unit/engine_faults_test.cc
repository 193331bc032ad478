// SPDX-License-Identifier: Apache-2.0
//
// The scheduler when the scripted die fails: nothing suspect is given out, everybody hears of it
// once, and what can go on goes on.
#include <doctest/doctest.h>

#include <thread>

#include "tests/support/chaos_rig.h"

using namespace pn;
using namespace pn::engine;
using namespace pn::test;

namespace {

std::shared_ptr<Collector> start(Scheduler& scheduler, const std::shared_ptr<Runner>& runner,
                                 std::vector<int32_t> prompt, uint32_t max_tokens) {
  auto sink = std::make_shared<Collector>();
  auto job = fake_job(std::move(prompt), max_tokens, sink);
  job->setup.adapter = PN_NONE;
  REQUIRE(scheduler.submit(runner, std::move(job), 64).has_value());
  return sink;
}

bool waits_for(const std::function<bool()>& what) {
  for (int i = 0; i < 2000 && !what(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return what();
}

}  // namespace

TEST_CASE("faults: a lost die ends running and waiting requests, and refuses new ones") {
  ChaosRig rig({{"lose_step", "6"}, {"by_hand", "yes"}, {"poison", "yes"}}, 1);
  Scheduler scheduler;
  auto runner = scheduler.add(rig.instance->copy());
  auto running = start(scheduler, runner, {1}, 100);
  auto waiting = start(scheduler, runner, {2}, 100);
  rig.hand->allow(1000);
  REQUIRE(running->wait());
  REQUIRE(waiting->wait());
  for (auto& sink : {running, waiting}) {
    CHECK(sink->end().reason == Finish::error);
    REQUIRE(sink->end().error.has_value());
    CHECK(sink->end().error->code == Code::device_lost);
    CHECK(sink->end().error->message.find("the script takes die 0 away") != std::string::npos);
    CHECK(sink->times_ended() == 1);
  }
  std::vector<int32_t> got = running->ids();
  CHECK(got.size() >= 3);  // what was read before, and nothing once the loss is known
  CHECK(got.size() <= 5);
  CHECK(got == rig.answer({1}, got.size()));
  auto late = std::make_shared<Collector>();
  Result<uint64_t> refused = scheduler.submit(runner, fake_job({3}, 1, late), 64);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == Code::device_lost);
}

TEST_CASE("faults: a failed queue ends what ran on it and is replaced") {
  ChaosRig rig({{"fail_step", "4"}, {"fail_op", "7"}, {"by_hand", "yes"}}, 1);
  Scheduler scheduler;
  auto runner = scheduler.add(rig.instance->copy());
  auto running = start(scheduler, runner, {1}, 100);
  auto waiting = start(scheduler, runner, {2}, 10);
  rig.hand->allow(1000);
  REQUIRE(running->wait());
  CHECK(running->end().reason == Finish::error);
  CHECK(running->end().error->code == Code::failed);
  CHECK(running->end().error->message.find("fails step 4 in op 7") != std::string::npos);
  CHECK(running->ids() == rig.answer({1}, 3));
  REQUIRE(waiting->wait());
  CHECK(waiting->end().reason == Finish::length);
  CHECK(waiting->ids() == rig.answer({2}, 10));
}

TEST_CASE("faults: a die that fails the rebuild, too, is given up") {
  ChaosRig rig({{"fail_step", "4"}, {"fail_build", "2"}}, 1);
  Scheduler scheduler;
  auto runner = scheduler.add(rig.instance->copy());
  auto running = start(scheduler, runner, {1}, 100);
  REQUIRE(running->wait());
  CHECK(running->end().error->code == Code::failed);
  REQUIRE(waits_for([&] { return runner->counts.lost.load(); }));
}

TEST_CASE("faults: logits that are not finite end that sequence alone") {
  ChaosRig rig({{"nan_step", "3"}, {"by_hand", "yes"}});
  Scheduler scheduler;
  auto runner = scheduler.add(rig.instance->copy());
  auto one = start(scheduler, runner, {1}, 10);
  rig.hand->allow(1000);
  REQUIRE(one->wait());
  CHECK(one->end().reason == Finish::error);
  CHECK(one->end().error->code == Code::failed);
  CHECK(one->ids() == rig.answer({1}, 2));
  auto two = start(scheduler, runner, {2}, 10);
  REQUIRE(two->wait());
  CHECK(two->ids() == rig.answer({2}, 10));
}

TEST_CASE("faults: late steps and full queues change no text") {
  ChaosRig rig({{"step_ns", "200us"},
                {"jitter_ns", "300us"},
                {"late_every", "5"},
                {"late_ns", "3ms"},
                {"full_every", "3"}});
  Scheduler scheduler;
  auto runner = scheduler.add(rig.instance->copy());
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int32_t i = 0; i < 12; ++i) sinks.push_back(start(scheduler, runner, {i, i + 1, 7}, 20));
  for (int32_t i = 0; i < 12; ++i) {
    REQUIRE(sinks[static_cast<size_t>(i)]->wait());
    CHECK(sinks[static_cast<size_t>(i)]->ids() == rig.answer({i, i + 1, 7}, 20));
  }
}

TEST_CASE("faults: a step that never completes is a lost die after its deadline") {
  ChaosRig rig(hal::Options{{"by_hand", "yes"}});
  Copy copy = rig.instance->copy();
  copy.step_deadline_ns = 50'000'000;
  Scheduler scheduler;
  auto runner = scheduler.add(std::move(copy));
  auto sink = start(scheduler, runner, {1}, 10);
  REQUIRE(sink->wait());
  CHECK(sink->end().error->code == Code::device_lost);
  CHECK(sink->ids().empty());
}

TEST_CASE("faults: a die lost while idle is noticed") {
  ChaosRig rig(hal::Options{});
  Scheduler scheduler;
  auto runner = scheduler.add(rig.instance->copy());
  rig.hand->lose(0);
  CHECK(waits_for([&] { return runner->counts.lost.load(); }));
}

TEST_CASE("faults: a call that never returns ends its requests; the scheduler goes on (A26)") {
  for (const char* call : {"queue_query:7", "queue_submit:5"}) {
    CAPTURE(std::string(call));
    ChaosRig rig(hal::Options{{"hang", call}}, 1);
    FakePlugin::instance().reset();
    Scheduler scheduler(200'000'000);
    std::atomic<int> hung{0};
    scheduler.plugin_hung = [&](const pn_plugin* api) {
      CHECK(api == &rig.plugin->table());
      rig.plugin->abandon();
      ++hung;
    };
    auto other = scheduler.add(fake_copy({}));
    auto runner = scheduler.add(rig.instance->copy());
    auto running = start(scheduler, runner, {1}, 100);
    auto waiting = start(scheduler, runner, {2}, 100);
    REQUIRE(running->wait());
    REQUIRE(waiting->wait());
    for (auto& sink : {running, waiting}) {
      REQUIRE(sink->end().error.has_value());
      CHECK(sink->end().error->code == Code::device_lost);
      CHECK(sink->times_ended() == 1);
    }
    CHECK(hung == 1);
    CHECK(running->ids() == rig.answer({1}, running->ids().size()));
    auto well = start(scheduler, other, {5}, 10);
    REQUIRE(well->wait());
    CHECK(well->ids() == fake_answer({5}, 10));
    CHECK_FALSE(scheduler.submit(runner, fake_job({3}, 1, well), 64).has_value());
    CHECK_FALSE(rig.instance->die().device.memory_status().has_value());  // not called any more
    scheduler.remove(runner);
  }
}

TEST_CASE("faults: the end of the scheduler ends every request once") {
  ChaosRig rig(hal::Options{{"by_hand", "yes"}});
  std::vector<std::shared_ptr<Collector>> sinks;
  {
    Scheduler scheduler;
    auto runner = scheduler.add(rig.instance->copy());
    for (int i = 0; i < 10; ++i) sinks.push_back(start(scheduler, runner, {i}, 10));
  }
  for (auto& sink : sinks) {
    CHECK(sink->times_ended() == 1);
    CHECK(sink->end().error->code == Code::cancelled);
  }
}
