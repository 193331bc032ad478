// SPDX-License-Identifier: Apache-2.0
//
// How fast a model runs on a die: prompt and decode, with the bytes that a step must read beside
// it.
//
// Owns the measurement. Knows no scheduler, no text and no HTTP: steps are built and waited for
// here, two queued, so the figures are what the plugin can do and what serving is compared with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/instance.h"
#include "hal/host/hal.h"
#include "hal/host/result.h"

namespace pn::engine {

struct BenchConfig {
  std::string file;
  std::shared_ptr<hal::Plugin> plugin;
  uint32_t device = 0;
  uint64_t budget = 0;           // bytes of the die; 0: what it has
  uint32_t prompt_tokens = 512;  // of each sequence
  uint32_t decode_tokens = 128;  // of each sequence
  uint32_t batch = 1;            // sequences at once
  uint32_t rounds = 3;           // after one that is not counted
  uint32_t kv_type = PN_TYPE_F16;
  uint32_t loss = PN_LOSS_BOUNDED;
};

struct Speed {                  // tokens a second, all sequences together
  std::vector<double> samples;  // one a round, in order
  double median = 0;
  double p10 = 0;  // the slow end
};

struct BenchResult {
  std::string file, architecture, plugin, die;
  uint64_t parameters = 0;
  uint64_t weight_bytes = 0;         // as laid out on the die
  uint64_t decode_weight_bytes = 0;  // that one decode step reads
  uint64_t kv_bytes_per_token = 0;
  uint32_t prompt_tokens = 0, decode_tokens = 0, batch = 0;
  double load_s = 0;
  Speed prompt, decode;
  double decode_bytes_per_s = 0;  // weights and cache read, at the median
  uint64_t die_bytes_per_s = 0;   // what the heap can read, by the plugin's word; 0 unknown
};

Result<BenchResult> run_bench(const BenchConfig& config);

// One round over a loaded copy, for tests and for comparing with serving: nanoseconds of the
// prompts and of the decode steps after them.
struct Round {
  uint64_t prompt_ns = 0;
  uint64_t decode_ns = 0;
};
class RawLoop {
 public:
  // Nothing else may use the queue of the copy meanwhile.
  RawLoop(Copy copy, uint32_t vocab);
  Result<Round> round(uint32_t batch, uint32_t prompt_tokens, uint32_t decode_tokens);
  uint64_t last_value() const { return value_; }

 private:
  Result<void> submit(class StepArrays& step, uint32_t context);
  Result<void> wait(uint64_t value);
  void set_up(StepArrays& step, uint32_t lane, uint32_t tokens);
  pn_row row(uint32_t entry, uint32_t token, uint32_t lane) const;

  Copy copy_;
  uint32_t vocab_;
  uint64_t value_ = 0;
};

}  // namespace pn::engine
