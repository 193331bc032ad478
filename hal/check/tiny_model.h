// SPDX-License-Identifier: Apache-2.0
//
// A small llama as a plan, and rows of its logits.
//
// Owns its sizes. Knows no file format.
#pragma once

#include "hal/check/rig.h"

namespace pn::check {

struct TinyModel {
  uint32_t vocab = 259, width = 64, heads = 4, kv = 2, dim = 16, hidden = 96, layers = 2;
  uint32_t type = PN_TYPE_F32, cache_type = PN_TYPE_F16;
  uint32_t lanes = 9, page = 16, context = 128;
  uint64_t seed = 1;

  Plan plan() const;
};

// The first type that the side can do, of F32, F16, BF16, Q8_0; the reasons as Code::unsupported.
Result<TinyModel> fitting_model(Side& side, uint64_t seed);

// Adds an entry of tokens made from `seed`, and a row with the logits of its last token.
void prompt(Steps* steps, uint32_t lane, uint32_t position, uint32_t count, uint64_t seed);
// Token `position` of that prompt: the same however it is cut.
int32_t token_at(uint64_t seed, uint32_t position);

}  // namespace pn::check
