// SPDX-License-Identifier: Apache-2.0
//
// From what a user asked of sampling to the setup of a lane.
//
// Owns the ranges and the mapping. Knows no formula: pn_lane states them, and the plugin computes
// them. The one idea: a value that is accepted acts on the device exactly as written; what the
// plugin does not offer is refused by name, never left out.
#pragma once

#include <pantheon/sampler.h>
#include <pantheon/step.h>

#include <cstdint>

#include "engine/service/generate.h"
#include "hal/host/result.h"

namespace pn::engine {

struct SamplingLimits {
  pn_sampler_info sampler{};  // all zero: the plugin does not sample
  uint32_t vocab = 0;
  uint32_t context = 0;   // tokens a lane may hold
  uint32_t bias_max = 0;  // pairs
  const char* die = "";   // for messages
};

// Candidates that a request may ask for, whatever the plugin offers.
inline constexpr uint32_t kTopLogprobsMax = 20;

// Errors carry the parameter's name in Error::param: temperature, top_p, ...
Result<pn_lane> lane_setup(const SamplingParams& params, const SamplingLimits& limits);
// How many candidates a row has to bring for this many top logprobs.
Result<uint32_t> row_candidates(uint32_t top_logprobs, const SamplingLimits& limits);

}  // namespace pn::engine
