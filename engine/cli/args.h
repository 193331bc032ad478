// SPDX-License-Identifier: Apache-2.0
//
// The command line as data.
//
// Owns names, ranges and help texts of commands and flags (CLI11 in args.cc only). Knows no
// profile: what is absent here stays absent, so that flag over environment over profile over
// default can be settled in one place (host.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pn::cli {

// Stable: scripts rely on these numbers (docs/commands.md).
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,  // an operation failed while running
  kUsage = 2,   // command line or profile is wrong
  kPlugin = 3,  // a plugin or die that was asked for is not to be had
  kModel = 4,   // a model file is refused
  kMemory = 5,  // it does not fit
  kPort = 6,    // the port is taken
  kInterrupted = 130,
};

struct Args {
  std::string command;     // "run", "serve", "devices", "models", "bench", "plugin", ...
  std::string subcommand;  // of models, plugin, profile
  std::vector<std::string> operands;

  std::optional<std::string> profile;
  std::vector<std::string> plugins;  // --backend-plugin, in order
  bool backend = false;              // --backend: say what would be used, and end
  bool json = false;
  int verbose = 0;
  bool log_json = false;

  std::vector<std::string> models;    // --model
  std::optional<std::string> prompt;  // -p
  std::optional<std::string> system;
  uint32_t tokens = 0;  // -n, 0: until the end of the context
  std::optional<float> temperature, top_p, min_p;
  std::optional<uint32_t> top_k;
  std::optional<uint64_t> seed;
  bool raw = false;  // no chat template
  bool ignore_eos = false;
  std::optional<uint32_t> context;  // tokens
  std::optional<uint32_t> slots;    // sequences alive at once
  std::optional<uint32_t> threads;
  std::optional<std::string> kv;  // f16, f32

  std::optional<std::string> host;
  std::optional<uint16_t> port;

  uint32_t batch = 1;            // bench: sequences that decode together
  uint32_t prompt_tokens = 512;  // bench
  uint32_t decode_tokens = 128;  // bench
  uint32_t rounds = 3;           // bench

  // plugin check; --seed is sampling's
  bool list = false, quick = false, in_process = false, isolated = false;
  std::vector<std::string> only;            // groups and cases
  std::vector<std::string> plugin_options;  // KEY=VALUE
  std::string reference;                    // name or path
  uint32_t deadline = 120;                  // s a case
  std::string run_case;                     // a child of plugin check
};

struct Parsed {
  Args args;
  std::optional<int> exit;  // help or a usage error was printed: end with this
};

Parsed parse_args(int argc, char** argv);

}  // namespace pn::cli
