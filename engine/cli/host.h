// SPDX-License-Identifier: Apache-2.0
//
// This host as one invocation sees it: the effective profile, the plugins it uses, their dies.
//
// Owns which plugins are used (flag over environment over profile over what is installed) and the
// one line that says so. Names no plugin itself. Nothing falls back: what was named and cannot be
// had is an error.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cli/args.h"
#include "engine/profile/profile.h"
#include "hal/host/hal.h"
#include "hal/host/result.h"

namespace pn::cli {

struct Die {
  std::shared_ptr<hal::Plugin> plugin;
  uint32_t index = 0;  // into plugin->devices()
  std::string id;      // "cpu:0"
  pn_device_info info;
  bool usable() const { return info.state == PN_STATE_READY; }
};

struct Host {
  profile::Profile profile;
  std::vector<std::shared_ptr<hal::Plugin>> plugins;
  std::vector<Die> dies;           // of these plugins, usable or not
  std::string choice;              // which plugins are used and why, one line
  std::vector<std::string> notes;  // plugins that were left out, each with its reason
};

Result<profile::Profile> load_profile(const Args& args);
hal::Search search_of(const profile::Profile& profile);
Result<Host> open_host(const Args& args);
// Dies that turned out not to work when they were bound: id -> why.
using Unfit = std::map<std::string, std::string>;
// The first usable die that matches `pattern` ("*": any); the error lists all dies and why not.
Result<Die> choose_die(const Host& host, const std::string& pattern, const std::string& model,
                       const Unfit& unfit = {});
// The bundled demo model: beside the sources when run in place, else where it is installed.
Result<std::string> demo_model();

}  // namespace pn::cli
