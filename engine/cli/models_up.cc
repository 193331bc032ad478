// SPDX-License-Identifier: Apache-2.0
//
// Profile and flags -> Service; see models_up.h.
#include "engine/cli/models_up.h"

#include <fmt/format.h>

#include "engine/cli/terminal.h"

namespace pn::cli {

namespace {

uint32_t loss_of(profile::Lossy lossy) {
  switch (lossy) {
    case profile::Lossy::none:
      return PN_LOSS_NONE;
    case profile::Lossy::bounded:
      return PN_LOSS_BOUNDED;
    case profile::Lossy::allowed:
      return PN_LOSS_LOSSY;
  }
  return PN_LOSS_NONE;
}

// What the profile leaves of a die: its rule, or the reserve, against the die's own total.
Result<uint64_t> budget_of(const Host& host, const Die& die) {
  PN_TRY(const hal::Device device, hal::Device::open(die.plugin, die.index));
  PN_TRY(const pn_memory_status memory, device.memory_status());
  return host.profile.budget(die.id, memory.total);
}

}  // namespace

Result<std::vector<profile::Model>> wanted_models(const Host& host) {
  if (!host.profile.models.empty()) return host.profile.models;
  profile::Model demo;
  demo.name = "pantheon-demo";
  demo.aliases = {"default"};
  PN_TRY(demo.file, demo_model());
  return std::vector<profile::Model>{std::move(demo)};
}

Result<engine::ModelConfig> place(const Args& args, const Host& host, const profile::Model& model) {
  PN_TRY(const Die die, choose_die(host, model.dies.empty() ? "*" : model.dies[0], model.name));
  engine::ModelConfig config;
  config.name = model.name;
  config.aliases = model.aliases;
  config.file = model.file;
  config.plugin = die.plugin;
  config.device = die.index;
  PN_TRY(config.budget, budget_of(host, die));
  config.context = model.context;
  config.slots = args.slots.value_or(model.slots);
  config.kv_type = args.kv == "f32" ? PN_TYPE_F32 : PN_TYPE_F16;
  config.loss = loss_of(model.lossy);
  return config;
}

Result<std::unique_ptr<engine::Service>> start_models(const Args& args, const Host& host,
                                                      const std::vector<profile::Model>& models) {
  engine::ServiceConfig config;
  for (const profile::Model& model : models) {
    PN_TRY(engine::ModelConfig one, place(args, host, model));
    config.models.push_back(std::move(one));
  }
  return engine::make_service(std::move(config));
}

Result<void> wait_models(engine::Service& service) {
  Progress progress("loading");
  for (;;) {
    bool loading = false;
    uint64_t done = 0, total = 0;
    std::optional<engine::ModelStatus> failed;
    for (const engine::ModelStatus& m : service.models()) {
      loading = loading || m.state == engine::ModelState::loading;
      done += m.bytes_done;
      total += m.bytes_total;
      if (m.state == engine::ModelState::failed && !failed) failed = m;
    }
    progress.update(done, total);
    if (!loading && failed)
      return fail(failed->no_memory ? Code::out_of_memory : Code::unsupported, failed->error);
    if (!loading) return {};
    if (interrupted()) return fail(Code::cancelled, "interrupted while loading");
    service.wait_loaded(50'000'000);
  }
}

}  // namespace pn::cli
