// SPDX-License-Identifier: Apache-2.0
//
// The commands: each reads Args, prints, and gives an exit code.
#pragma once

#include <string>

#include "engine/cli/args.h"
#include "hal/host/note.h"

namespace pn::cli {

int run_command(const Args& args);
int serve_command(const Args& args);
int bench_command(const Args& args);
int devices_command(const Args& args);
int models_command(const Args& args);
int plugin_command(const Args& args);
int plugin_new_command(const Args& args);
int plugin_check_command(const Args& args);
// What the last check of this build said: "not checked", "passed 88/88 on 2026-11-30", ...
std::string conformance_text(const hal::Note& note);
int profile_command(const Args& args);
int doctor_command(const Args& args);
int version_command(const Args& args);
int backend_command(const Args& args);

}  // namespace pn::cli
