// SPDX-License-Identifier: Apache-2.0
//
// Predicted time of a run at a shape, for placement. Knows plans and two rates of this machine.
#pragma once

#include "backends/cpu/program.h"

namespace pn::cpu {

pn_cost predict(const Plan& plan, const Compiled& code, const pn_shape& shape, uint32_t threads);

}  // namespace pn::cpu
