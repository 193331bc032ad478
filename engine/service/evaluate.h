// SPDX-License-Identifier: Apache-2.0
//
// Raw logits of given tokens: what quality is measured on.
//
// Owns a model copy of one lane and the buffer that logits come out to. Knows no sampling and no
// text. The one idea: tokens are fed, never drawn, so two plugins or two numerics can be compared
// at every position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/instance.h"
#include "hal/host/hal.h"
#include "hal/host/result.h"

namespace pn::engine {

struct EvaluateConfig {
  std::string file;
  std::shared_ptr<hal::Plugin> plugin;
  uint32_t device = 0;
  uint32_t context = 0;            // tokens; 0: min(model, 8192)
  uint32_t kv_type = PN_TYPE_F32;  // exact by default: quality is about weights and arithmetic
};

class Evaluator {
 public:
  static Result<std::unique_ptr<Evaluator>> open(const EvaluateConfig& config);

  uint32_t vocab() const { return vocab_; }
  // (ids.size(), vocab) row-major F32: row i is what follows ids[0..i]. Each call starts a new
  // sequence.
  Result<std::vector<float>> logits(std::span<const int32_t> ids);

 private:
  Evaluator() = default;
  Result<void> step(std::span<const int32_t> ids, uint32_t position);

  std::shared_ptr<Die> die_;
  std::unique_ptr<Instance> instance_;
  hal::Buffer out_;  // vocab floats
  Copy copy_;
  uint32_t vocab_ = 0;
  uint64_t value_ = 0;
};

}  // namespace pn::engine
