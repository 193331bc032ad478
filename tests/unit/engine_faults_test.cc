// SPDX-License-Identifier: Apache-2.0
//
// The scheduler when the fake plugin fails: nothing suspect is given out, everybody hears of it
// once, and what can go on goes on.
#include <doctest/doctest.h>

#include <thread>

#include "tests/support/fake_copy.h"

using namespace pn;
using namespace pn::engine;
using namespace pn::test;

namespace {

std::shared_ptr<Collector> start(Scheduler& scheduler, const std::shared_ptr<Runner>& runner,
                                 std::vector<int32_t> prompt, uint32_t max_tokens) {
  auto sink = std::make_shared<Collector>();
  auto job = fake_job(std::move(prompt), max_tokens, sink);
  REQUIRE(scheduler.submit(runner, std::move(job), 64).has_value());
  return sink;
}

FakePlugin& fresh(const std::function<void(FakePlugin::Knobs&)>& knobs) {
  FakePlugin::instance().reset();
  FakePlugin::instance().set(knobs);
  return FakePlugin::instance();
}

}  // namespace

TEST_CASE("faults: a lost die ends running and waiting requests, and refuses new ones") {
  fresh([](FakePlugin::Knobs& k) {
    k.lose_at = 6;
    k.by_hand = true;
  });
  FakeShape shape;
  shape.lanes = 1;
  Scheduler scheduler;
  auto runner = scheduler.add(fake_copy(shape));
  auto running = start(scheduler, runner, {1}, 100);
  auto waiting = start(scheduler, runner, {2}, 100);
  FakePlugin::instance().complete(1000);
  REQUIRE(running->wait());
  REQUIRE(waiting->wait());
  for (auto& sink : {running, waiting}) {
    CHECK(sink->end().reason == Finish::error);
    REQUIRE(sink->end().error.has_value());
    CHECK(sink->end().error->code == Code::device_lost);
    CHECK(sink->end().error->message.find("pulled out") != std::string::npos);
    CHECK(sink->times_ended() == 1);
  }
  std::vector<int32_t> got = running->ids();
  CHECK(got.size() >= 3);  // what was read before, and nothing once the loss is known
  CHECK(got.size() <= 5);
  CHECK(got == fake_answer({1}, static_cast<uint32_t>(got.size())));
  auto late = std::make_shared<Collector>();
  Result<uint64_t> refused = scheduler.submit(runner, fake_job({3}, 1, late), 64);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == Code::device_lost);
}

TEST_CASE("faults: a failed queue ends what ran on it and is replaced") {
  fresh([](FakePlugin::Knobs& k) {
    k.fail_at = 4;
    k.by_hand = true;
  });
  FakeShape shape;
  shape.lanes = 1;
  Scheduler scheduler;
  auto runner = scheduler.add(fake_copy(shape));
  auto running = start(scheduler, runner, {1}, 100);
  auto waiting = start(scheduler, runner, {2}, 10);
  FakePlugin::instance().complete(1000);
  REQUIRE(running->wait());
  CHECK(running->end().reason == Finish::error);
  CHECK(running->end().error->code == Code::failed);
  CHECK(running->end().error->message.find("a kernel trapped") != std::string::npos);
  CHECK(running->ids() == fake_answer({1}, 3));
  REQUIRE(waiting->wait());
  CHECK(waiting->end().reason == Finish::length);
  CHECK(waiting->ids() == fake_answer({2}, 10));
}

TEST_CASE("faults: logits that are not finite end that sequence alone") {
  fresh([](FakePlugin::Knobs& k) {
    k.nan_at = 3;
    k.by_hand = true;
  });
  Scheduler scheduler;
  auto runner = scheduler.add(fake_copy({}));
  auto one = start(scheduler, runner, {1}, 10);
  FakePlugin::instance().complete(1000);
  REQUIRE(one->wait());
  CHECK(one->end().reason == Finish::error);
  CHECK(one->end().error->code == Code::failed);
  CHECK(one->ids() == fake_answer({1}, 2));
  auto two = start(scheduler, runner, {2}, 10);
  REQUIRE(two->wait());
  CHECK(two->ids() == fake_answer({2}, 10));
}

TEST_CASE("faults: a step that never completes is a lost die after its deadline") {
  fresh([](FakePlugin::Knobs& k) { k.by_hand = true; });
  Copy copy = fake_copy({});
  copy.step_deadline_ns = 50'000'000;
  Scheduler scheduler;
  auto runner = scheduler.add(std::move(copy));
  auto sink = start(scheduler, runner, {1}, 10);
  REQUIRE(sink->wait(5000));
  CHECK(sink->end().error->code == Code::device_lost);
  CHECK(sink->ids().empty());
}

TEST_CASE("faults: a die lost while idle is noticed within two seconds") {
  fresh([](FakePlugin::Knobs&) {});
  Scheduler scheduler;
  auto runner = scheduler.add(fake_copy({}));
  FakePlugin::instance().set([](FakePlugin::Knobs& k) { k.lost = true; });
  for (int i = 0; i < 250 && !runner->counts.lost.load(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(runner->counts.lost.load());
}

TEST_CASE("faults: the end of the scheduler ends every request once") {
  fresh([](FakePlugin::Knobs& k) { k.by_hand = true; });
  std::vector<std::shared_ptr<Collector>> sinks;
  {
    Scheduler scheduler;
    auto runner = scheduler.add(fake_copy({}));
    for (int i = 0; i < 10; ++i) sinks.push_back(start(scheduler, runner, {i}, 10));
  }
  for (auto& sink : sinks) {
    CHECK(sink->times_ended() == 1);
    CHECK(sink->end().error->code == Code::cancelled);
  }
}
