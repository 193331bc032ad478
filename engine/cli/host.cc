// SPDX-License-Identifier: Apache-2.0
//
// Profile, plugins and dies of one invocation; see host.h.
#include "engine/cli/host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <climits>
#include <filesystem>

#include "engine/cli/paths.h"

namespace pn::cli {

namespace {

const char* state_text(const Die& die) {
  switch (die.info.state) {
    case PN_STATE_READY:
      return "ready";
    case PN_STATE_IN_USE:
      return "in use";
    case PN_STATE_LOST:
      return "lost";
    default:
      return "absent";
  }
}

// A die on no bus is the host's own processor: used when no accelerator is there.
bool is_host_processor(const std::vector<Die>& dies) {
  for (const Die& die : dies)
    if (die.info.pci_domain != PN_NONE) return false;
  return true;
}

bool has_usable(const std::vector<Die>& dies) {
  for (const Die& die : dies)
    if (die.usable()) return true;
  return false;
}

Result<std::vector<Die>> dies_of(const std::shared_ptr<hal::Plugin>& plugin) {
  PN_TRY(const std::vector<pn_device_info> infos, plugin->devices());
  std::vector<Die> dies;
  for (uint32_t i = 0; i < infos.size(); ++i)
    dies.push_back({plugin, i, fmt::format("{}:{}", plugin->name(), i), infos[i]});
  return dies;
}

void add(Host& host, const std::shared_ptr<hal::Plugin>& plugin, const std::vector<Die>& dies) {
  host.plugins.push_back(plugin);
  host.dies.insert(host.dies.end(), dies.begin(), dies.end());
}

std::string first_reason(const std::vector<Die>& dies) {
  for (const Die& die : dies)
    if (die.info.reason[0]) return die.info.reason;
  return "it reports no die";
}

// Resolves first: options may stand under any name that the plugin answers to.
Result<std::shared_ptr<hal::Plugin>> load(const profile::Profile& profile,
                                          const std::string& asked) {
  const hal::Search search = search_of(profile);
  PN_TRY(const hal::Candidate found, hal::resolve(asked, search));
  std::vector<std::string> names = {asked};
  if (found.note) {
    names.push_back(found.note->name);
    names.insert(names.end(), found.note->aliases.begin(), found.note->aliases.end());
  }
  hal::LoadRequest request;
  request.plugin = asked;
  request.options = profile.options_for(names);
  request.search = search;
  request.isolated = profile.isolated(names);
  return hal::Plugin::load(request);
}

Result<void> use_named(Host& host, const profile::Plugin& named, bool must) {
  auto plugin = load(host.profile, named.name);
  if (!plugin) {
    if (must) return tl::unexpected<Error>(plugin.error());
    host.notes.push_back(plugin.error().message);
    return {};
  }
  PN_TRY(const std::vector<Die> dies, dies_of(*plugin));
  if (!has_usable(dies) && must)
    return fail(Code::not_found, fmt::format("plugin {} has no usable die: {}", (*plugin)->name(),
                                             first_reason(dies)));
  add(host, *plugin, dies);
  return {};
}

// Neither profile nor flag names plugins: every installed one with a usable die.
Result<void> use_installed(Host& host) {
  struct Found {
    std::shared_ptr<hal::Plugin> plugin;
    std::vector<Die> dies;
  };
  std::vector<Found> accelerators, processors;
  for (const hal::Candidate& c : hal::discover(search_of(host.profile)).candidates) {
    if (c.state == hal::CandidateState::shadowed) continue;
    if (c.state == hal::CandidateState::refused) {
      host.notes.push_back(fmt::format("{}: refused: {}", c.path, c.reason));
      continue;
    }
    if (c.note && c.note->only_when_named)
      continue;  // plugins that teach and test are used when named
    auto plugin = load(host.profile, c.path);
    if (!plugin) {
      host.notes.push_back(plugin.error().message);
      continue;
    }
    PN_TRY(std::vector<Die> dies, dies_of(*plugin));
    if (!has_usable(dies)) {
      host.notes.push_back(fmt::format("{}: {}", (*plugin)->name(), first_reason(dies)));
      continue;
    }
    (is_host_processor(dies) ? processors : accelerators).push_back({*plugin, std::move(dies)});
  }
  for (const Found& f : accelerators.empty() ? processors : accelerators)
    add(host, f.plugin, f.dies);
  return {};
}

std::string describe_choice(const Host& host, const std::string& why) {
  std::vector<std::string> names;
  for (const auto& plugin : host.plugins) {
    int dies = 0;
    std::string device;
    for (const Die& die : host.dies)
      if (die.plugin == plugin && die.usable()) ++dies, device = die.info.name;
    const hal::Isolation* isolation = plugin->isolation();
    const std::string where =
        isolation != nullptr ? fmt::format(", in process {}", isolation->pid()) : "";
    names.push_back(fmt::format("{} ({} {}, {}{})", plugin->name(), dies,
                                dies == 1 ? "die" : "dies", device, where));
  }
  return fmt::format("using {}: {}", fmt::join(names, ", "), why);
}

profile::Flags flags_of(const Args& args) {
  profile::Flags flags;
  flags.profile = args.profile;
  flags.backend_plugins = args.plugins;
  flags.models = args.models;
  flags.host = args.host;
  flags.port = args.port;
  flags.context = args.context;
  flags.threads = args.threads;
  return flags;
}

}  // namespace

Result<profile::Profile> load_profile(const Args& args) {
  return profile::load(flags_of(args), profile::process_environment());
}

hal::Search search_of(const profile::Profile& profile) {
  hal::Search search;
  search.dirs = profile.plugin_dirs;
  return search;
}

Result<Host> open_host(const Args& args) {
  Host host;
  PN_TRY(host.profile, load_profile(args));
  const bool flagged = host.profile.plugins_from_flag;
  std::string why = "named by --backend-plugin";
  if (!flagged && !host.profile.plugins.empty()) why = "named by " + host.profile.path;
  if (host.profile.plugins.empty()) {
    why = "installed and usable; no profile and no --backend-plugin names others";
    PN_TRY(use_installed(host));
  }
  for (const profile::Plugin& named : host.profile.plugins)
    PN_TRY(use_named(host, named, flagged || named.required));
  if (!has_usable(host.dies)) {
    std::vector<std::string> lines = host.notes;
    for (const Die& die : host.dies)
      lines.push_back(
          fmt::format("{} ({}): {}: {}", die.id, die.info.name, state_text(die), die.info.reason));
    return fail(Code::not_found, fmt::format("no plugin with a usable die:\n  {}\nsee pantheon "
                                             "plugin list and pantheon devices",
                                             fmt::join(lines, "\n  ")));
  }
  std::vector<std::string> names;
  for (const auto& plugin : host.plugins) {
    names.push_back(plugin->name());
    for (const std::string& alias : plugin->note().aliases) names.push_back(alias);
  }
  for (const Die& die : host.dies) names.push_back(die.info.uid);
  PN_TRY(profile::check_pins(host.profile, names));
  host.choice = describe_choice(host, why);
  return host;
}

Result<Die> choose_die(const Host& host, const std::string& pattern, const std::string& model,
                       const Unfit& unfit) {
  std::string seen;
  for (const Die& die : host.dies) {
    if (!profile::matches(pattern, die.id) && !profile::matches(pattern, die.info.uid)) continue;
    const auto found = unfit.find(die.id);
    if (die.usable() && found == unfit.end()) return die;
    seen += fmt::format("\n  {} ({}): {}: {}", die.id, die.info.name,
                        die.usable() ? "unusable" : state_text(die),
                        die.usable() ? found->second : die.info.reason);
  }
  if (seen.empty())
    for (const Die& die : host.dies) seen += fmt::format("\n  {} ({})", die.id, die.info.name);
  return fail(
      Code::not_found,
      fmt::format("{} wants a die like \"{}\" and none is usable; found:{}", model, pattern, seen));
}

Result<std::string> demo_model() {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  // Only BUILD/pantheon may look at the sources that the build was configured from.
  const bool in_place = fs::exists(self.parent_path() / "build.ninja", ec);
  std::vector<fs::path> places = {
      self.parent_path().parent_path() / "share/pantheon/models/pantheon-demo.gguf",
      fs::path(data_dir()) / "models/pantheon-demo.gguf"};
  if (in_place)
    places.insert(places.begin(), fs::path(source_root()) / "models/demo/pantheon-demo.gguf");
  std::string tried;
  for (const fs::path& place : places) {
    if (fs::exists(place, ec)) return place.string();
    tried += "\n  " + place.string();
  }
  return fail(Code::not_found,
              "the bundled demo model is in none of these places; name a model "
              "with --model FILE:" +
                  tried);
}

}  // namespace pn::cli
