// SPDX-License-Identifier: Apache-2.0
//
// Profile and flags -> Service; see models_up.h.
#include "engine/cli/models_up.h"

#include <fmt/format.h>

#include <algorithm>

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

struct Bound {
  Die die;
  uint64_t budget = 0;
};

// The first die for the model that passes its own check, before any weight goes there; and what the
// profile leaves of it: its rule, or the reserve, against the die's own total.
Result<Bound> bind_die(const Host& host, const profile::Model& model,
                       std::vector<std::string>& notes) {
  const std::string pattern = model.dies.empty() ? "*" : model.dies[0];
  for (Unfit unfit;;) {
    PN_TRY(const Die die, choose_die(host, pattern, model.name, unfit));
    PN_TRY(const hal::Device device, hal::Device::open(die.plugin, die.index));
    const Result<void> checked = device.self_check();
    if (checked) {
      PN_TRY(const pn_memory_status memory, device.memory_status());
      return Bound{die, host.profile.budget(die.id, memory.total)};
    }
    const std::string note = fmt::format("{} is unusable: {}", die.id, checked.error().message);
    if (host.profile.require_all) {
      return fail(Code::failed, note + ": the profile says require_all", die.id);
    }
    unfit[die.id] = checked.error().message;
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  }
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

Result<engine::ModelConfig> place(const Args& args, const Host& host, const profile::Model& model,
                                  std::vector<std::string>& notes) {
  PN_TRY(const Bound bound, bind_die(host, model, notes));
  const Die& die = bound.die;
  engine::ModelConfig config;
  config.name = model.name;
  config.aliases = model.aliases;
  config.file = model.file;
  config.plugin = die.plugin;
  config.device = die.index;
  config.budget = bound.budget;
  config.context = model.context;
  config.slots = args.slots.value_or(model.slots);
  config.kv_type = args.kv == "f32" ? PN_TYPE_F32 : PN_TYPE_F16;
  config.loss = loss_of(model.lossy);
  return config;
}

Result<std::unique_ptr<engine::Service>> start_models(const Args& args, const Host& host,
                                                      const std::vector<profile::Model>& models) {
  engine::ServiceConfig config;
  config.call_deadline_ns = host.profile.server.call_deadline_s * 1'000'000'000;
  for (const profile::Model& model : models) {
    PN_TRY(engine::ModelConfig one, place(args, host, model, config.notes));
    config.models.push_back(std::move(one));
  }
  for (const std::string& note : config.notes) log_line(args.log_json, "warning", note);
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
