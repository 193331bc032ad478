// SPDX-License-Identifier: Apache-2.0
//
// One plan with inputs and outputs, run on both sides with several numbers of tokens.
//
// Owns how tokens are spread over lanes and pages over lanes. Knows no op. The one idea: a case is
// a list of trials; what the plugin does not support is counted and told, and fails nothing.
#pragma once

#include <string>
#include <vector>

#include "hal/check/rig.h"

namespace pn::check {

constexpr pn_shape kTrialShape = {33, 4, 4, 96};

struct Trial {
  std::string name;
  Plan plan;                              // shapes default to kTrialShape
  std::vector<uint16_t> inputs, outputs;  // slots, T rows of F32
  float scale = 1;                        // of inputs
  double tolerance = 0;                   // 0: the plan's
  std::vector<uint32_t> tokens = {33, 1, 7, 33};
  uint32_t vocab = 0;  // tokens are ids below this; 0: all zero
};

class Trials {
 public:
  explicit Trials(Bench& bench) : bench_(bench) {}
  Result<void> add(Trial trial);
  // Says what was left out; a case without one supported trial is unsupported.
  Result<void> finish();

 private:
  Result<void> compare_runs(Trial& trial, Pair& pair);

  Bench& bench_;
  uint32_t tried_ = 0, supported_ = 0;
  std::string left_out_;
};

// Entries for `tokens` tokens over the lanes, going on at `position` of each lane, which is moved.
Steps spread(uint32_t tokens, std::vector<uint32_t>* position, uint32_t vocab, uint64_t seed);
// Gives every lane all its pages of every cache, in no order that anybody would guess.
void deal_pages(const Plan& plan, Steps* steps);
// The page that deal_pages gives.
uint32_t dealt_page(const Plan& plan, uint32_t cache, uint32_t lane, uint32_t index);

}  // namespace pn::check
