// SPDX-License-Identifier: Apache-2.0
//
// Where the profile is found, and flag > environment > profile > default.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/profile/profile.h"

namespace pn::profile {

namespace {

std::string get(const Environment& env, const char* name) {
  const char* value = env(name);
  return value == nullptr ? "" : value;
}

std::string host_name(const Environment& env) {
  const std::string told = get(env, "HOSTNAME");
  if (!told.empty()) return told;
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The folders, the user's first. Nothing is taken from the working directory.
std::vector<std::string> config_dirs(const Environment& env) {
  std::vector<std::string> dirs;
  const std::string xdg = get(env, "XDG_CONFIG_HOME"), home = get(env, "HOME");
  if (!xdg.empty() && xdg[0] == '/') {
    dirs.push_back(xdg + "/pantheon");
  } else if (!home.empty() && home[0] == '/') {
    dirs.push_back(home + "/.config/pantheon");
  }
  dirs.emplace_back(PN_SYSCONF_DIR "/pantheon");
  if (dirs.back() != "/etc/pantheon") dirs.emplace_back("/etc/pantheon");
  return dirs;
}

Result<std::string> read_text(const std::string& path, const char* asked_by) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.is_open() || in.bad()) {
    return fail(errno == ENOENT ? Code::not_found : Code::failed,
                "profile " + path + " (" + asked_by + "): " + std::strerror(errno), "profile");
  }
  return text;
}

Result<Profile> from_file(const std::string& path, const char* asked_by) {
  PN_TRY(std::string text, read_text(path, asked_by));
  return parse(text, path);
}

Result<Profile> find_and_parse(const Flags& flags, const Environment& env) {
  if (flags.profile) return from_file(*flags.profile, "--profile");
  const std::string named = get(env, "PANTHEON_PROFILE");
  if (!named.empty()) return from_file(named, "PANTHEON_PROFILE");
  std::vector<std::string> looked;
  const std::string host = host_name(env);
  for (const std::string& dir : config_dirs(env)) {
    for (const std::string& name : {host + ".yaml", std::string("profile.yaml")}) {
      looked.push_back(dir + "/" + name);
      if (::access(looked.back().c_str(), F_OK) != 0) continue;
      PN_TRY(Profile profile, from_file(looked.back(), "found"));
      profile.looked = looked;
      return profile;
    }
  }
  Profile none;
  none.looked = looked;
  return none;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// Named plugins keep the profile's options; all others are left out of this run.
void replace_plugins(Profile* profile, const std::vector<std::string>& names,
                     const std::string& origin) {
  std::vector<Plugin> chosen;
  for (const std::string& name : names) {
    Plugin plugin;
    plugin.name = name;
    for (const Plugin& known : profile->configured) {
      if (known.name == name) plugin = known;
    }
    plugin.required = true;  // asked for by name
    profile->origins["plugins." + name] = origin;
    profile->origins["plugins." + name + ".required"] = origin;
    chosen.push_back(std::move(plugin));
  }
  profile->plugins = std::move(chosen);
  profile->plugins_from_flag = true;
}

void set_reserve(Profile* profile, const Amount& amount, const std::string& origin) {
  profile->reserve = amount;
  profile->origins["reserve"] = origin;
  for (size_t i = 0; i < profile->dies.size(); ++i) {
    profile->dies[i].reserve = amount;
    profile->origins["dies[" + std::to_string(i) + "].reserve"] = origin;
  }
}

void cap_dies(Profile* profile, const Amount& amount, const std::string& origin) {
  DieRule rest;
  rest.match = "*";
  profile->dies.push_back(rest);
  for (size_t i = 0; i < profile->dies.size(); ++i) {
    profile->dies[i].bytes = amount;
    profile->origins["dies[" + std::to_string(i) + "].bytes"] = origin;
  }
  profile->origins["dies[" + std::to_string(profile->dies.size() - 1) + "].match"] = origin;
}

Result<void> apply_environment(const Environment& env, Profile* profile) {
  const std::string host = get(env, "PANTHEON_HOST"), port = get(env, "PANTHEON_PORT");
  const std::string plugins = get(env, "PANTHEON_BACKEND_PLUGIN");
  const std::string reserve = get(env, "PN_DIE_RESERVE_BYTES");
  if (!host.empty()) {
    profile->server.host = host;
    profile->origins["server.host"] = "environment PANTHEON_HOST";
  }
  if (!port.empty()) {
    char* end = nullptr;
    const unsigned long n = std::strtoul(port.c_str(), &end, 10);
    if (*end != 0 || port[0] < '0' || port[0] > '9' || n > 65535) {
      return fail(Code::invalid,
                  "PANTHEON_PORT: expected a number from 0 to 65535, found '" + port + "'",
                  "PANTHEON_PORT");
    }
    profile->server.port = static_cast<uint16_t>(n);
    profile->origins["server.port"] = "environment PANTHEON_PORT";
  }
  if (!plugins.empty()) {
    replace_plugins(profile, split(plugins), "environment PANTHEON_BACKEND_PLUGIN");
  }
  if (!reserve.empty()) {
    Result<Amount> amount = parse_amount(reserve);
    if (!amount) {
      return fail(Code::invalid, "PN_DIE_RESERVE_BYTES: " + amount.error().message,
                  "PN_DIE_RESERVE_BYTES");
    }
    set_reserve(profile, *amount, "environment PN_DIE_RESERVE_BYTES");
  }
  return {};
}

Result<void> replace_models(const std::vector<std::string>& files, Profile* profile) {
  profile->models.clear();
  for (const std::string& file : files) {
    Model model;
    model.file = file;
    model.name = model_name(file);
    for (const Model& other : profile->models) {
      if (other.name != model.name) continue;
      return fail(Code::invalid,
                  "--model " + file + ": its name '" + model.name + "' is that of " + other.file +
                      " too: give one of them a name in a profile",
                  "model");
    }
    const std::string key = "models[" + std::to_string(profile->models.size()) + "]";
    std::erase_if(profile->origins,
                  [&](const auto& o) { return o.first.rfind(key + ".", 0) == 0; });
    profile->origins[key + ".file"] = profile->origins[key + ".name"] = "flag --model";
    profile->models.push_back(std::move(model));
  }
  return {};
}

Result<void> apply_flags(const Flags& flags, Profile* profile) {
  if (!flags.backend_plugins.empty()) {
    replace_plugins(profile, flags.backend_plugins, "flag --backend-plugin");
  }
  if (!flags.models.empty()) PN_TRY(replace_models(flags.models, profile));
  if (flags.host) {
    profile->server.host = *flags.host;
    profile->origins["server.host"] = "flag --host";
  }
  if (flags.port) {
    profile->server.port = *flags.port;
    profile->origins["server.port"] = "flag --port";
  }
  for (size_t i = 0; flags.context && i < profile->models.size(); ++i) {
    profile->models[i].context = *flags.context;
    profile->origins["models[" + std::to_string(i) + "].context"] = "flag --context";
  }
  if (flags.threads) {
    profile->overrides.emplace_back("threads", std::to_string(*flags.threads));
    profile->origins["options.threads"] = "flag --threads";
  }
  if (flags.device_bytes) cap_dies(profile, *flags.device_bytes, "flag --device-bytes");
  return {};
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

std::string model_name(const std::string& file) {
  std::string name = file.substr(file.rfind('/') + 1);
  for (const char* suffix : {".gguf", ".fttw"}) {
    if (name.size() > 5 && name.ends_with(suffix)) return name.substr(0, name.size() - 5);
  }
  return name;
}

Result<Profile> load(const Flags& flags, const Environment& env) {
  PN_TRY(Profile profile, find_and_parse(flags, env));
  PN_TRY(apply_environment(env, &profile));
  PN_TRY(apply_flags(flags, &profile));
  return profile;
}

}  // namespace pn::profile
