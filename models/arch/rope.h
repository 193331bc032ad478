// SPDX-License-Identifier: Apache-2.0
//
// Rotary position tables.
//
// Owns the arithmetic of every scaling kind. Knows no layer and no device. The one idea: whatever
// the kind, the angle of pair i at position p is p * w[i]; w is worked out here once in f64, so a
// backend needs no kinds.
#pragma once

#include <span>
#include <vector>

#include "models/arch/keys.h"

namespace pn::arch {

struct RopeTable {
  std::vector<float> radians;  // (dims / 2) per position
  float magnitude = 1;         // of cos and sin
};

// What `rope.*` keys say, checked.
struct RopeParams {
  enum Kind { none, linear, yarn, longrope } kind = linear;
  uint32_t dims = 0;
  double base = 10000;
  double factor = 1;             // of context; frequencies are divided by it
  uint32_t trained_context = 0;  // before scaling
  double attn_factor = 1;
  double ext_factor = 0;  // 0 off; 1 for YaRN
  double beta_fast = 32, beta_slow = 1;
  double log_multiplier = 0;
};

Result<RopeParams> read_rope(const Keys& keys, const HyperParams& params);

// `factors` (dims / 2) divide the angles; empty: none.
RopeTable rope_table(const RopeParams& params, std::span<const float> factors);

}  // namespace pn::arch
