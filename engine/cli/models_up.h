// SPDX-License-Identifier: Apache-2.0
//
// From profile and flags to a Service with its models, for run, serve and bench.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/cli/args.h"
#include "engine/cli/host.h"
#include "engine/service/service.h"

namespace pn::cli {

// What the profile and flags ask for: file, name, die and sizes of each model; the demo model when
// nothing is named.
Result<std::vector<profile::Model>> wanted_models(const Host& host);

// One model's place and sizes. A die that fails its self-check is left out, told in `notes`, unless
// the profile says require_all.
Result<engine::ModelConfig> place(const Args& args, const Host& host, const profile::Model& model,
                                  std::vector<std::string>& notes);

// Places each model on a die and starts loading in the background.
Result<std::unique_ptr<engine::Service>> start_models(const Args& args, const Host& host,
                                                      const std::vector<profile::Model>& models);

// Shows progress until nothing loads. The first model that failed is the error; Ctrl-C cancels.
Result<void> wait_models(engine::Service& service);

}  // namespace pn::cli
