// SPDX-License-Identifier: Apache-2.0
//
// The host profile: which plugins a machine uses, what they may take, which models it serves.
//
// Owns the YAML text, its checks, the search order, and flag > environment > profile > default with
// the origin of each value. Knows no plugin: options go to them as text. The one idea: every key is
// known, checked and acts, or is refused with its line; nothing is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hal/host/result.h"

namespace pn::profile {

struct Amount {  // of memory: 1GiB, 500MB, 1073741824, 80%
  uint64_t bytes = 0;
  double percent = -1;  // of the die's total; negative: `bytes` counts

  uint64_t of(uint64_t total) const;
  std::string text() const;
};
Result<Amount> parse_amount(const std::string& text);

using Options = std::vector<std::pair<std::string, std::string>>;

struct Plugin {
  std::string name;       // name, alias, or a path
  bool required = false;  // no usable die: an error, not a line in the log
  bool isolated = false;  // isolation: process
  Options options;        // as text, in the order given
};

struct DieRule {      // the first that matches wins
  std::string match;  // "tt:*", "cpu:0"
  std::optional<Amount> reserve;
  std::optional<Amount> bytes;  // no more than this, whatever the die has
};

enum class Lossy { none, bounded, allowed };

struct Model {
  std::string name;
  std::string file;
  std::vector<std::string> aliases;
  uint32_t copies = 1;
  std::vector<std::string> dies;  // at most one pattern in this version; empty: placed
  uint32_t context = 0;           // 0: min(model, 8192)
  uint32_t slots = 4;
  Lossy lossy = Lossy::none;
};

struct Server {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  uint64_t call_deadline_s = 10;  // a call into a plugin that takes longer hangs
};

struct Profile {
  std::string path;                 // empty: none was found
  std::vector<std::string> looked;  // files asked for, in order, up to the one that was found
  std::vector<std::string> plugin_dirs;
  std::vector<Plugin> plugins;     // empty: every installed plugin that has a usable die
  bool plugins_from_flag = false;  // --backend-plugin replaced the set
  std::vector<Plugin> configured;  // as the file has them: they keep their options
  std::vector<DieRule> dies;
  std::vector<Model> models;
  Server server;
  bool require_all = false;  // a die that fails its self-check is an error, not left out
  Amount reserve{uint64_t{1} << 30, -1};  // per die, where no rule says otherwise
  std::string fallback = "never";
  // dotted key -> "default", "profile FILE:LINE", "environment NAME", "flag --name"
  std::map<std::string, std::string> origins;

  Options overrides;  // from flags, for every plugin in use, over its own options

  // What a plugin gets. names: as it was asked for, and the name and aliases in its note.
  Options options_for(const std::vector<std::string>& names) const;
  // Whether it runs in a process of its own; names as above.
  bool isolated(const std::vector<std::string>& names) const;
  const DieRule* rule_for(const std::string& die) const;  // nullptr: none matches
  // What the die manager may use of a die with `total` bytes, before what others hold.
  uint64_t budget(const std::string& die, uint64_t total) const;
};

// What this invocation says itself.
struct Flags {
  std::optional<std::string> profile;        // --profile FILE
  std::vector<std::string> backend_plugins;  // --backend-plugin, in order
  std::vector<std::string> models;           // --model FILE: replaces the profile's models
  std::optional<std::string> host;
  std::optional<uint16_t> port;
  std::optional<uint32_t> context;     // --context: of every model
  std::optional<Amount> device_bytes;  // --device-bytes: of every die
  std::optional<uint32_t> threads;     // --threads: option `threads` of the plugins in use
};

// The name that a file has when nobody gives it one: without folder and .gguf.
std::string model_name(const std::string& file);

// nullptr when unset. Tests give their own.
using Environment = std::function<const char*(const char*)>;
Environment process_environment();

// The file, the environment, the flags. Without a file: defaults, and `looked` says where it was
// looked for. Environment: PANTHEON_PROFILE, PANTHEON_HOST, PANTHEON_PORT,
// PANTHEON_BACKEND_PLUGIN (comma-separated), PN_DIE_RESERVE_BYTES.
Result<Profile> load(const Flags& flags, const Environment& env);

// One text. The error lists every problem, "FILE:LINE:COLUMN: ..." each on its line.
Result<Profile> parse(const std::string& text, const std::string& file);

// Models pinned to a plugin that is not among `names` (names and aliases of those in use).
Result<void> check_pins(const Profile& profile, const std::vector<std::string>& names);

struct Shown {
  std::string key;    // models[0].context
  std::string value;  // 8192
  std::string origin;
};
// The effective profile, every key, in the order of the file format.
std::vector<Shown> show(const Profile& profile);

// '*' any run of characters, '?' one.
bool matches(const std::string& pattern, const std::string& text);

}  // namespace pn::profile
