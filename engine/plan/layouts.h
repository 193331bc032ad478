// SPDX-License-Identifier: Apache-2.0
//
// Which bytes every weight of a plan becomes on a die.
//
// Owns the choice of layouts. Knows the plugin only through pantheon.layout/1. The one idea: the
// plugin's own order of preference counts, cut off at what the user allows to be lost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hal/host/hal.h"
#include "hal/host/result.h"
#include "models/arch/plan.h"

namespace pn::engine {

struct WeightLayouts {
  std::optional<hal::Layout> convert;     // none: the source's bytes go up as they are
  std::vector<pn_layout_choice> choices;  // one a weight of the plan
  std::vector<uint32_t> shares;           // index of the weight whose slice it shares, or its own
};

// Writes layout and heap into plan.weights. loss: PN_LOSS_*, the most that is allowed.
Result<WeightLayouts> choose_layouts(const hal::Device& device, uint32_t heap, uint32_t loss,
                                     arch::Plan& plan);

// The first byte of a weight as the file or the model gives it, and how many there are.
const std::byte* source_bytes(const arch::Source& source);
uint64_t source_size(const arch::Source& source);

}  // namespace pn::engine
