// SPDX-License-Identifier: Apache-2.0
//
// Model copies on the fake die: what is refused and why, and that every byte lands where the
// program reads it, with and without staging.
#include "engine/plan/instance.h"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <thread>

#include "tests/support/fake_copy.h"
#include "tests/support/fake_model.h"

using namespace pn;
using namespace pn::engine;
using namespace pn::test;

namespace {

FakePlugin& fresh(const std::function<void(FakePlugin::Knobs&)>& knobs = [](FakePlugin::Knobs&) {
}) {
  FakePlugin::instance().reset();
  FakePlugin::instance().set(knobs);
  return FakePlugin::instance();
}

InstanceOptions named(const std::string& name) {
  InstanceOptions options;
  options.model = name;
  options.threads = 3;
  return options;
}

std::string refusal(const ModelSpec& spec, const InstanceOptions& options) {
  auto instance = Instance::plan(model_of(spec), fake_die(), options);
  return instance ? "" : instance.error().message;
}

void check_bytes(const arch::Model& model, FakePlugin& plugin) {
  arch::PlanOptions want;
  want.context = 64;
  want.shapes = {{1, 1, 1, 64}};
  Result<arch::Plan> plan = model.plan(want);
  REQUIRE(plan.has_value());
  std::vector<pn_slice> slices = plugin.weight_slices();
  REQUIRE(slices.size() == plan->weights.size());
  for (uint32_t i = 0; i < slices.size(); ++i) {
    const arch::Source& source = plan->sources[i];
    const auto* from = reinterpret_cast<const std::byte*>(source_bytes(source));
    std::vector<std::byte> bytes = plugin.weight_bytes(i);
    REQUIRE(bytes.size() >= source_size(source));
    for (uint64_t b = 0; b < source_size(source); ++b) {
      if ((from[b] ^ std::byte{0x5a}) != bytes[b]) {
        FAIL_CHECK(source.name << " differs at byte " << b);
        break;
      }
    }
  }
}

}  // namespace

TEST_CASE("instance: every weight arrives, in place and through staging") {
  for (bool visible : {true, false}) {
    for (const char* type : {"F32", "Q8_0"}) {
      FakePlugin& plugin = fresh([&](FakePlugin::Knobs& k) { k.device_visible = visible; });
      ModelSpec spec;
      spec.name = "arrives";
      spec.type = type;
      spec.layers = 3;
      spec.vocab = 8192;
      auto model = model_of(spec);
      auto instance = Instance::plan(model, fake_die(), named("arrives"));
      REQUIRE_MESSAGE(instance.has_value(), instance.error().message);
      LoadProgress progress;
      Result<void> loaded = (*instance)->load(progress);
      REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
      CHECK(progress.done.load() == progress.total.load());
      CHECK(progress.total.load() <= (*instance)->need().weights);
      check_bytes(*model, plugin);
      CHECK((plugin.counters().copies > 0) == !visible);
      for (const std::string& rule : plugin.counters().broken) FAIL_CHECK(rule);
    }
  }
}

TEST_CASE("instance: tied matrices share one slice") {
  FakePlugin& plugin = fresh();
  ModelSpec spec;
  spec.name = "tied";
  spec.tied = true;
  auto instance = Instance::plan(model_of(spec), fake_die(), named("tied"));
  REQUIRE_MESSAGE(instance.has_value(), instance.error().message);
  LoadProgress progress;
  REQUIRE((*instance)->load(progress).has_value());
  spec.tied = false;
  auto untied = Instance::plan(model_of(spec), fake_die(), named("untied"));
  REQUIRE(untied.has_value());
  uint64_t table = 512ull * 256 * 4;
  CHECK((*untied)->need().weights - (*instance)->need().weights >= table);
  check_bytes((*instance)->model(), plugin);
}

TEST_CASE("instance: a loaded copy answers through the scheduler") {
  fresh();
  ModelSpec spec;
  auto instance = Instance::plan(model_of(spec), fake_die(), named("tiny"));
  REQUIRE(instance.has_value());
  LoadProgress progress;
  REQUIRE((*instance)->load(progress).has_value());
  {
    Scheduler scheduler;
    auto runner = scheduler.add((*instance)->copy());
    auto sink = std::make_shared<Collector>();
    std::vector<int32_t> prompt(700, 3);
    REQUIRE(scheduler.submit(runner, fake_job(prompt, 30, sink), 4).has_value());
    REQUIRE(sink->wait());
    CHECK(sink->ids() == fake_answer(prompt, 30));
    scheduler.remove(runner);
  }
  for (const std::string& rule : FakePlugin::instance().counters().broken) FAIL_CHECK(rule);
}

TEST_CASE("instance: the context is the model's, at most 8192, unless it is asked for") {
  fresh();
  ModelSpec spec;
  spec.name = "context";
  auto instance = Instance::plan(model_of(spec), fake_die(), named("context"));
  CHECK((*instance)->context() == 1024);
  InstanceOptions options = named("context");
  options.context = 100;
  instance = Instance::plan(model_of(spec), fake_die(), options);
  CHECK((*instance)->context() == 100);
  CHECK((*instance)->need().pages == 8);  // 2 pages of 64 for each of 4 slots
  options.context = 1025;
  CHECK(refusal(spec, options).find("trained for 1024") != std::string::npos);
  spec.name = "long";
  spec.context = 100000;
  instance = Instance::plan(model_of(spec), fake_die(), named("long"));
  CHECK((*instance)->context() == 8192);
}

TEST_CASE("instance: refusals carry the plugin's reason, the tensor, or a setting that works") {
  ModelSpec spec;
  spec.name = "refused";
  fresh([](FakePlugin::Knobs& k) { k.unsupported = "no kernel for heads of 32"; });
  CHECK(refusal(spec, named("m")).find("no kernel for heads of 32") != std::string::npos);

  fresh([](FakePlugin::Knobs& k) { k.lossy_only = true; });
  std::string text = refusal(spec, named("m"));
  CHECK(text.find("token_embd.weight") != std::string::npos);
  CHECK(text.find("lossy: allowed") != std::string::npos);
  InstanceOptions lossy = named("m");
  lossy.loss = PN_LOSS_LOSSY;
  CHECK(refusal(spec, lossy).empty());

  fresh([](FakePlugin::Knobs& k) { k.tied = false; });
  spec.tied = true;
  CHECK(refusal(spec, named("m")).find("no layout serves a table and a matrix") !=
        std::string::npos);
  spec.tied = false;

  fresh([](FakePlugin::Knobs& k) { k.memory_free = 100; });
  CHECK(refusal(spec, named("m")).find("smaller file") != std::string::npos);

  fresh([](FakePlugin::Knobs& k) { k.features = 0; });
  CHECK(refusal(spec, named("m")).find("does not draw tokens") != std::string::npos);

  fresh([](FakePlugin::Knobs& k) { k.step_bytes_max = 600; });
  CHECK(refusal(spec, named("m")).find("steps of at most 600 bytes") != std::string::npos);

  fresh();
  InstanceOptions none = named("m");
  none.slots = 0;
  CHECK(refusal(spec, none).find("slots is 0") != std::string::npos);
}

TEST_CASE("instance: memory that suffices by the refusal's word does suffice") {
  ModelSpec spec;
  spec.name = "fits";
  uint64_t need = 0;
  fresh();
  {
    auto instance = Instance::plan(model_of(spec), fake_die(), named("m"));
    need = (*instance)->need().total();
  }
  fresh([&](FakePlugin::Knobs& k) { k.memory_free = need; });
  CHECK(refusal(spec, named("m")).empty());
  fresh([&](FakePlugin::Knobs& k) { k.memory_free = need - 1; });
  std::string text = refusal(spec, named("m"));
  CHECK(text.find("context 960 with 4 slots would fit") != std::string::npos);
  InstanceOptions smaller = named("m");
  smaller.context = 960;
  CHECK(refusal(spec, smaller).empty());
}

TEST_CASE("instance: a load that is cancelled ends, one that stalls says where") {
  FakePlugin& plugin = fresh([](FakePlugin::Knobs& k) { k.convert_hangs = true; });
  ModelSpec spec;
  spec.name = "stalls";
  auto instance = Instance::plan(model_of(spec), fake_die(), named("m"));
  REQUIRE(instance.has_value());
  LoadProgress progress;
  progress.stall_ns = 100'000'000;
  std::string told;
  progress.stalled = [&](const Error& error) {
    told = error.message;
    plugin.set([](FakePlugin::Knobs& k) { k.convert_hangs = false; });
  };
  Result<void> loaded = (*instance)->load(progress);
  REQUIRE_FALSE(loaded.has_value());
  CHECK(told.find("no byte was loaded for") != std::string::npos);
  CHECK(told.find(" of the file") != std::string::npos);
  CHECK(loaded.error().message == told);

  instance = Instance::plan(model_of(spec), fake_die(), named("m"));
  LoadProgress cancelled;
  cancelled.cancel.store(true);
  plugin.set([](FakePlugin::Knobs& k) { k.convert_hangs = true; });
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    plugin.set([](FakePlugin::Knobs& k) { k.convert_hangs = false; });
  });
  loaded = (*instance)->load(cancelled);
  release.join();
  REQUIRE_FALSE(loaded.has_value());
  CHECK(loaded.error().code == Code::cancelled);
}

TEST_CASE("instance: a failed queue is replaced together with its program") {
  FakePlugin& plugin = fresh([](FakePlugin::Knobs& k) { k.fail_at = 3; });
  ModelSpec spec;
  auto instance = Instance::plan(model_of(spec), fake_die(), named("tiny"));
  REQUIRE(instance.has_value());
  LoadProgress progress;
  REQUIRE((*instance)->load(progress).has_value());
  Scheduler scheduler;
  auto runner = scheduler.add((*instance)->copy());
  auto first = std::make_shared<Collector>();
  REQUIRE(scheduler.submit(runner, fake_job({1, 2}, 30, first), 4).has_value());
  REQUIRE(first->wait());
  CHECK(first->end().error->code == Code::failed);
  auto second = std::make_shared<Collector>();
  REQUIRE(scheduler.submit(runner, fake_job({3}, 30, second), 4).has_value());
  REQUIRE(second->wait());
  CHECK(second->ids() == fake_answer({3}, 30));
  scheduler.remove(runner);
  for (const std::string& rule : plugin.counters().broken) FAIL_CHECK(rule);
}
