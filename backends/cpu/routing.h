// SPDX-License-Identifier: Apache-2.0
//
// A routed row, from ROUTER to EXPERTS: `used` choices in falling order of score. It stays inside a
// program, so its form is nobody else's business.
#pragma once

#include "backends/cpu/ops.h"

namespace pn::cpu {

inline constexpr uint32_t kUsedMax = 64;

struct Choice {
  int32_t expert;
  float weight;
};

inline Choice* choices_of(const Run& run, uint16_t slot, int64_t t) {
  return reinterpret_cast<Choice*>(run.slot(slot).row(t));
}

}  // namespace pn::cpu
