// SPDX-License-Identifier: Apache-2.0
//
// Makes the Service: models loaded in the background, one scheduler for all of them.
//
// Owns the configuration types. Knows no profile and no HTTP: the caller has loaded the plugins and
// says which model goes to which die.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/service/generate.h"
#include "hal/host/hal.h"
#include "hal/host/result.h"

namespace pn::engine {

struct ModelConfig {
  std::string name;  // empty: the file's name without folder and ending
  std::vector<std::string> aliases;
  std::string file;
  std::shared_ptr<hal::Plugin> plugin;
  uint32_t device = 0;             // index into plugin->devices()
  uint64_t budget = 0;             // bytes of that die for all models together; 0: what it has free
  uint32_t context = 0;            // tokens of one sequence; 0: min(model, 8192)
  uint32_t slots = 4;              // sequences alive at once
  uint32_t kv_type = PN_TYPE_F16;  // or PN_TYPE_F32
  uint32_t loss = PN_LOSS_BOUNDED;                // what layout conversion may lose at most
  uint32_t load_threads = 0;                      // 0: one a core
  uint32_t queue_max = 64;                        // requests that may wait for a slot
  uint64_t stall_ns = 30'000'000'000ull;          // a load without a byte for so long has failed
  uint64_t step_deadline_ns = 60'000'000'000ull;  // a step at least this late is a lost die
};

struct ServiceConfig {
  std::vector<ModelConfig> models;  // the first one answers requests that name none
  std::vector<std::string> notes;   // what is not as it should be: dies that were left out
  uint64_t call_deadline_ns = 10'000'000'000ull;  // a call into a plugin that takes longer hangs
};

// Opens the dies and starts loading, in order, in the background. Errors: no model, a name or alias
// given twice, a model without a plugin. A die or file that cannot be opened is that model's
// failure: see models().
Result<std::unique_ptr<Service>> make_service(ServiceConfig config);

}  // namespace pn::engine
