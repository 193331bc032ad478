// SPDX-License-Identifier: Apache-2.0
//
// The scheduler on the fake plugin: answers do not depend on the company they are computed in,
// limits hold, and what was asked to stop stops.
#include "engine/schedule/scheduler.h"

#include <doctest/doctest.h>

#include <numeric>
#include <random>
#include <thread>

#include "tests/support/fake_copy.h"

using namespace pn;
using namespace pn::engine;
using namespace pn::test;

namespace {

struct Rig {
  explicit Rig(
      const FakeShape& shape = {},
      const std::function<void(FakePlugin::Knobs&)>& knobs = [](FakePlugin::Knobs&) {}) {
    FakePlugin::instance().reset();
    FakePlugin::instance().set(knobs);
    scheduler = std::make_unique<Scheduler>();
    runner = scheduler->add(fake_copy(shape));
  }
  ~Rig() {
    scheduler.reset();
    for (const std::string& rule : FakePlugin::instance().counters().broken) FAIL_CHECK(rule);
  }
  uint64_t start(std::vector<int32_t> prompt, uint32_t max_tokens,
                 const std::shared_ptr<Collector>& sink) {
    Result<uint64_t> id =
        scheduler->submit(runner, fake_job(std::move(prompt), max_tokens, sink), 64);
    REQUIRE(id.has_value());
    return *id;
  }
  std::unique_ptr<Scheduler> scheduler;
  std::shared_ptr<Runner> runner;
};

std::vector<int32_t> prompt_of(uint32_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt(n);
  for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 97);
  return prompt;
}

}  // namespace

TEST_CASE("scheduler: one request gives the ids of the model and ends at its length") {
  Rig rig;
  auto sink = std::make_shared<Collector>();
  rig.start({1, 2, 3}, 20, sink);
  REQUIRE(sink->wait());
  CHECK(sink->ids() == fake_answer({1, 2, 3}, 20));
  CHECK(sink->end().reason == Finish::length);
  CHECK(sink->end().completion_tokens == 20);
  CHECK(FakePlugin::instance().counters().prompt_tokens == 3);  // ids were fed on the device
}

TEST_CASE("scheduler: a stop ends it, and the row computed past it is dropped") {
  Rig rig;
  std::vector<int32_t> whole = fake_answer({5, 6}, 30);
  auto sink = std::make_shared<Collector>(whole[9]);
  rig.start({5, 6}, 30, sink);
  REQUIRE(sink->wait());
  CHECK(sink->ids() == fake_answer({5, 6}, 30, whole[9]));
  CHECK(sink->end().reason == Finish::stop);
  CHECK(sink->times_ended() == 1);
}

TEST_CASE("scheduler: no room for an answer ends as length without a step") {
  Rig rig;
  auto sink = std::make_shared<Collector>();
  rig.start({1}, 0, sink);
  REQUIRE(sink->wait());
  CHECK(sink->end().reason == Finish::length);
  CHECK(FakePlugin::instance().counters().steps == 0);
}

TEST_CASE("scheduler: random mixes answer as each request alone") {
  std::mt19937 random(11);
  for (int mix = 0; mix < 40; ++mix) {
    FakeShape shape;
    shape.lanes = 1 + random() % 6;
    shape.tokens = 16u << (random() % 4);
    shape.tokens = std::max(shape.tokens, shape.lanes);
    shape.reuse = random() % 2 == 0;
    if (random() % 2 == 0) shape.pages = 16 + random() % 16;
    Rig rig(shape, [&](FakePlugin::Knobs& k) {
      k.step_ns = random() % 3 == 0 ? 20'000 : 0;
      if (random() % 4 == 0) k.step_bytes_max = 2048 + shape.lanes * 256;
    });
    struct One {
      std::vector<int32_t> prompt;
      uint32_t max_tokens;
      int32_t stop;
      std::shared_ptr<Collector> sink;
      bool cancelled = false;
    };
    std::vector<One> all;
    for (int i = 0; i < 12; ++i) {
      One one;
      // A few common beginnings, so that reuse happens.
      one.prompt = prompt_of(random() % 100, random() % 3);
      std::vector<int32_t> tail = prompt_of(1 + random() % 60, random());
      one.prompt.insert(one.prompt.end(), tail.begin(), tail.end());
      one.max_tokens = 1 + random() % 80;
      one.stop = random() % 2 == 0 ? static_cast<int32_t>(random() % 97) : -1;
      one.sink = std::make_shared<Collector>(one.stop);
      uint64_t id = rig.start(one.prompt, one.max_tokens, one.sink);
      if (random() % 5 == 0) {
        rig.scheduler->cancel(id);
        one.cancelled = true;
      }
      all.push_back(std::move(one));
    }
    for (One& one : all) {
      REQUIRE(one.sink->wait());
      std::vector<int32_t> want = fake_answer(one.prompt, one.max_tokens, one.stop);
      std::vector<int32_t> got = one.sink->ids();
      if (one.cancelled) want.resize(std::min(want.size(), got.size()));
      CHECK(got == want);
      CHECK(one.sink->times_ended() == 1);
    }
  }
}

TEST_CASE("scheduler: two steps are queued, never more") {
  Rig rig({}, [](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto sink = std::make_shared<Collector>();
  rig.start({1, 2, 3}, 6, sink);
  for (int i = 0; i < 200 && FakePlugin::instance().counters().steps < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(FakePlugin::instance().counters().steps == 2);
  FakePlugin::instance().complete(100);
  REQUIRE(sink->wait());
  CHECK(FakePlugin::instance().counters().most_queued == 2);
  CHECK(sink->ids() == fake_answer({1, 2, 3}, 6));
}

TEST_CASE("scheduler: a long prompt holds decoders up by one bounded chunk at most") {
  FakeShape shape;
  shape.context = 4096;
  shape.tokens = 512;
  shape.page_tokens = 64;
  Rig rig(shape, [](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto decoder = std::make_shared<Collector>();
  rig.start({1}, 1000, decoder);
  FakePlugin::instance().complete(5);
  REQUIRE(decoder->wait_tokens(5));
  auto long_one = std::make_shared<Collector>();
  rig.start(prompt_of(2000, 1), 4, long_one);
  // Every step advances the decoder, whatever the prompt does beside it.
  for (size_t i = 0; i < 30; ++i) {
    size_t before = decoder->ids().size();
    FakePlugin::instance().complete(1);
    REQUIRE(decoder->wait_tokens(before + 1));
  }
  FakePlugin::instance().complete(100000);
  REQUIRE(long_one->wait());
  CHECK(long_one->ids() == fake_answer(prompt_of(2000, 1), 4));
  CHECK(FakePlugin::instance().counters().most_tokens <= kChunkBesideDecode + shape.lanes);
}

TEST_CASE("scheduler: an idle die takes a prompt in the largest chunks") {
  FakeShape shape;
  shape.context = 2048;
  shape.tokens = 512;
  shape.page_tokens = 64;
  Rig rig(shape);
  auto sink = std::make_shared<Collector>();
  rig.start(prompt_of(1030, 1), 1, sink);
  REQUIRE(sink->wait());
  CHECK(FakePlugin::instance().counters().steps == 3);
  CHECK(FakePlugin::instance().counters().most_tokens == 512);
}

TEST_CASE("scheduler: cancel while waiting runs nothing, while running ends within a step") {
  FakeShape shape;
  shape.lanes = 1;
  Rig rig(shape, [](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto first = std::make_shared<Collector>();
  auto second = std::make_shared<Collector>();
  auto third = std::make_shared<Collector>();
  uint64_t first_id = rig.start({1}, 100, first);
  uint64_t second_id = rig.start(prompt_of(40, 2), 100, second);
  rig.start({3}, 3, third);
  FakePlugin::instance().complete(4);
  REQUIRE(first->wait_tokens(4));
  rig.scheduler->cancel(second_id);
  REQUIRE(second->wait());
  CHECK(second->end().reason == Finish::cancelled);
  CHECK(second->ids().empty());
  rig.scheduler->cancel(first_id);
  REQUIRE(first->wait());  // although its queued steps have not completed
  CHECK(first->end().reason == Finish::cancelled);
  uint64_t steps = FakePlugin::instance().counters().steps;
  FakePlugin::instance().complete(100);
  REQUIRE(third->wait());
  CHECK(third->ids() == fake_answer({3}, 3));
  CHECK(FakePlugin::instance().counters().steps <= steps + 3);
  CHECK(FakePlugin::instance().counters().prompt_tokens == 2);  // none of the second's 40
  rig.scheduler->cancel(12345);                                 // unknown: nothing
}

TEST_CASE("scheduler: a prompt that is cancelled stops after the chunk that runs") {
  FakeShape shape;
  shape.context = 4096;
  shape.tokens = 64;
  Rig rig(shape, [](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto sink = std::make_shared<Collector>();
  uint64_t id = rig.start(prompt_of(2000, 4), 10, sink);
  FakePlugin::instance().complete(3);
  for (int i = 0; i < 1000 && FakePlugin::instance().counters().steps < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  rig.scheduler->cancel(id);
  REQUIRE(sink->wait());
  FakePlugin::instance().complete(100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(FakePlugin::instance().counters().steps == 4);
}

TEST_CASE("scheduler: the line is bounded, and first come is first served") {
  FakeShape shape;
  shape.lanes = 1;
  Rig rig(shape, [](FakePlugin::Knobs& k) { k.by_hand = true; });
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    auto job = fake_job({i}, 2, sinks.back());
    Result<uint64_t> id = rig.scheduler->submit(rig.runner, std::move(job), 3);
    if (i < 4) {
      CHECK(id.has_value());
    } else {
      REQUIRE_FALSE(id.has_value());
      CHECK(id.error().code == Code::busy);
      CHECK(id.error().param == "capacity_busy");
    }
  }
  FakePlugin::instance().complete(100);
  for (int i = 0; i < 4; ++i) REQUIRE(sinks[static_cast<size_t>(i)]->wait());
  for (int i = 1; i < 4; ++i) {
    CHECK(sinks[static_cast<size_t>(i)]->order() > sinks[static_cast<size_t>(i - 1)]->order());
  }
  auto late = std::make_shared<Collector>();
  CHECK(rig.scheduler->submit(rig.runner, fake_job({9}, 1, late), 3).has_value());
  REQUIRE(late->wait());
}

TEST_CASE("scheduler: when pages run out the first in line waits and nobody overtakes it") {
  FakeShape shape;
  shape.lanes = 3;
  shape.pages = 8;  // 128 tokens in all
  shape.reuse = false;
  Rig rig(shape, [](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto big = std::make_shared<Collector>();
  auto second = std::make_shared<Collector>();
  auto small = std::make_shared<Collector>();
  rig.start(prompt_of(80, 1), 10, big);     // 6 pages
  rig.start(prompt_of(60, 2), 10, second);  // 5 pages: has to wait
  rig.start({1}, 1, small);                 // 1 page: would fit
  FakePlugin::instance().complete(5);
  REQUIRE(big->wait_tokens(1));
  CHECK(rig.runner->counts.running.load() == 1);
  CHECK_FALSE(small->has_ended());
  FakePlugin::instance().complete(1000);
  REQUIRE(big->wait());
  REQUIRE(second->wait());
  REQUIRE(small->wait());
  CHECK(second->ids() == fake_answer(prompt_of(60, 2), 10));
}

TEST_CASE("scheduler: an equal beginning is read from the cache, and changes no id") {
  FakeShape shape;
  shape.lanes = 2;
  Rig rig(shape);
  std::vector<int32_t> base = prompt_of(64, 8);
  auto first = std::make_shared<Collector>();
  rig.start(base, 20, first);
  REQUIRE(first->wait());
  CHECK(first->end().cached_tokens == 0);
  // The conversation goes on: prompt, answer and more.
  std::vector<int32_t> next = base;
  for (int32_t id : first->ids()) next.push_back(id);
  next.push_back(3);
  auto second = std::make_shared<Collector>();
  rig.start(next, 20, second);
  REQUIRE(second->wait());
  CHECK(second->end().cached_tokens == 80);  // 83 known positions, in full pages of 16
  CHECK(second->ids() == fake_answer(next, 20));
  // The whole prompt is cached, and the last token runs all the same.
  auto third = std::make_shared<Collector>();
  rig.start(base, 5, third);
  REQUIRE(third->wait());
  CHECK(third->end().cached_tokens == 48);
  CHECK(third->ids() == fake_answer(base, 5));
}

TEST_CASE("scheduler: biases reach the lane that asked, directly or through staging") {
  for (bool staged : {false, true}) {
    FakeShape shape;
    shape.staged_bias = staged;
    Rig rig(shape, [&](FakePlugin::Knobs& k) { k.device_visible = !staged; });
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 12; ++i) {
      sinks.push_back(std::make_shared<Collector>());
      auto job = fake_job({i, 1}, 3, sinks.back());
      if (i % 3 != 0) job->bias = {{50 + i, 100.0f}};
      REQUIRE(rig.scheduler->submit(rig.runner, std::move(job), 64).has_value());
    }
    for (int i = 0; i < 12; ++i) {
      REQUIRE(sinks[static_cast<size_t>(i)]->wait());
      std::vector<int32_t> want =
          i % 3 != 0 ? std::vector<int32_t>(3, 50 + i) : fake_answer({i, 1}, 3);
      CHECK(sinks[static_cast<size_t>(i)]->ids() == want);
    }
    CHECK((FakePlugin::instance().counters().copies > 0) == staged);
  }
}

TEST_CASE("scheduler: an idle one sleeps") {
  Rig rig;
  auto sink = std::make_shared<Collector>();
  rig.start({1}, 5, sink);
  REQUIRE(sink->wait());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  uint64_t before = rig.scheduler->cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(rig.scheduler->cpu_ns() - before < 5'000'000);  // 1 % of a core
}

TEST_CASE("scheduler: removing a copy ends what it ran") {
  Rig rig({}, [](FakePlugin::Knobs& k) { k.by_hand = true; });
  auto sink = std::make_shared<Collector>();
  rig.start({1}, 5, sink);
  rig.scheduler->remove(rig.runner);
  CHECK(sink->has_ended());
  CHECK(sink->end().reason == Finish::error);
}
