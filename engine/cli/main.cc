// SPDX-License-Identifier: Apache-2.0
//
// The program: one command, one exit code.
#include <fmt/format.h>

#include <exception>

#include "engine/cli/args.h"
#include "engine/cli/commands.h"
#include "engine/cli/terminal.h"
#include "hal/host/plugin.h"

namespace {

struct Command {
  const char* name;
  int (*run)(const pn::cli::Args&);
};

constexpr Command kCommands[] = {
    {"run", pn::cli::run_command},         {"serve", pn::cli::serve_command},
    {"bench", pn::cli::bench_command},     {"devices", pn::cli::devices_command},
    {"models", pn::cli::models_command},   {"plugin", pn::cli::plugin_command},
    {"profile", pn::cli::profile_command}, {"doctor", pn::cli::doctor_command},
    {"version", pn::cli::version_command}, {"backend", pn::cli::backend_command},
};

int dispatch(const pn::cli::Args& args) {
  pn::hal::set_log_sink([json = args.log_json, verbose = args.verbose](
                            uint32_t level, const std::string& plugin, const char* text) {
    const bool bug = level == PN_LOG_HOST_BUG || level == PN_LOG_PLUGIN_BUG;
    const uint32_t shown = verbose >= 2 ? PN_LOG_DEBUG : verbose == 1 ? PN_LOG_INFO : PN_LOG_WARN;
    if (!bug && level < shown) return;
    static const char* const names[] = {"debug", "info",     "warning",
                                        "error", "host bug", "plugin bug"};
    const char* name = level < std::size(names) ? names[level] : "error";
    pn::cli::log_line(json, name, fmt::format("{}: {}: {}", plugin, name, text));
  });
  for (const Command& command : kCommands)
    if (args.command == command.name) return command.run(args);
  return pn::cli::kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  // Third-party code may throw where no caller caught it; the last word is a message, not a core.
  try {
    const pn::cli::Parsed parsed = pn::cli::parse_args(argc, argv);
    return parsed.exit ? *parsed.exit : dispatch(parsed.args);
  } catch (const std::bad_alloc&) {
    pn::cli::print_err("pantheon: out of memory");
    return pn::cli::kMemory;
  } catch (const std::exception& e) {
    pn::cli::print_err(fmt::format("pantheon: unexpected error: {}", e.what()));
    return pn::cli::kFailed;
  }
}
