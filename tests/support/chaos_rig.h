// SPDX-License-Identifier: Apache-2.0
//
// A small random model on a scripted die inside the test binary, loaded by the real Instance.
//
// Owns plugin, die and copy in the order that they end. At its end the plugin must have nothing
// left and nothing to complain of, unless it was abandoned.
#pragma once

#include "engine/plan/instance.h"
#include "tests/support/chaos_plugin.h"
#include "tests/support/fake_copy.h"
#include "tests/support/fake_model.h"

namespace pn::test {

struct ChaosRig {
  explicit ChaosRig(const hal::Options& options, uint32_t slots = 4) {
    plugin = chaos_plugin(options);
    hand = &chaos_hand(*plugin);
    auto die = std::make_shared<engine::Die>();
    auto device = hal::Device::open(plugin, 0);
    REQUIRE_MESSAGE(device.has_value(), device.error().message);
    die->device = std::move(*device);
    die->id = die->device.id();
    ModelSpec spec;
    spec.name = "chaos";
    spec.context = 256;
    engine::InstanceOptions wanted;
    wanted.model = "scripted";
    wanted.slots = slots;
    wanted.threads = 1;
    auto planned = engine::Instance::plan(model_of(spec), die, wanted);
    REQUIRE_MESSAGE(planned.has_value(), planned.error().message);
    instance = std::move(*planned);
    engine::LoadProgress progress;
    auto loaded = instance->load(progress);
    REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  }
  ~ChaosRig() {
    const bool left = plugin->abandoned();
    instance.reset();
    if (left) {  // somebody hangs in it for good; the next test loads it again all the same
      static auto* kept = new std::vector<std::shared_ptr<hal::Plugin>>;
      kept->push_back(plugin);
      plugin->table().shutdown(0);
      return;
    }
    plugin.reset();
    const chaos_counts end = chaos_counts_of(*hand);
    CHECK(end.devices + end.buffers + end.programs + end.queues + end.device_bytes == 0);
    CHECK(end.host_faults == 0);
  }
  // What it draws after a prompt that runs alone.
  std::vector<int32_t> answer(std::vector<int32_t> prompt, size_t count) const {
    const size_t given = prompt.size();
    while (prompt.size() < given + count) {
      prompt.push_back(chaos_next(1, prompt.data(), prompt.size(), instance->vocab()));
    }
    return {prompt.begin() + static_cast<ptrdiff_t>(given), prompt.end()};
  }

  std::shared_ptr<hal::Plugin> plugin;
  const chaos_control* hand = nullptr;
  std::unique_ptr<engine::Instance> instance;
};

}  // namespace pn::test
