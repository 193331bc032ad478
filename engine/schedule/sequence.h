// SPDX-License-Identifier: Apache-2.0
//
// A sequence: one request on its way through the scheduler, and the sink that its tokens go to.
//
// Owns the token list of the request and its place in it. Knows no text: ids in, ids out. The one
// idea: three positions say everything: how far the steps submitted reach (ran), how many ids they
// draw (drawn), how many of these came back (given).
#pragma once

#include <pantheon/step.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/service/generate.h"
#include "hal/host/result.h"

namespace pn::engine {

struct Drawn {
  int32_t id = 0;
  float logprob = 0;
  float log_sum = 0;                  // of the raw logits
  std::span<const pn_candidate> top;  // valid during the call
};

struct Ended {
  Finish reason = Finish::stop;
  std::optional<Error> error;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint64_t queued_ns = 0;
  uint64_t prompt_ns = 0;
  uint64_t decode_ns = 0;
};

// Called on the scheduler's thread; must not block or throw.
class Sink {
 public:
  virtual ~Sink() = default;
  // false: the sequence ends here (Finish::stop), with this id as its last.
  virtual bool token(const Drawn& drawn) = 0;
  // Exactly once, last.
  virtual void ended(const Ended& end) = 0;
};

// What is handed to the scheduler. tokens holds the prompt and has room for every id to come, so
// nothing is allocated while it runs.
struct Job {
  uint64_t id = 0;
  std::vector<int32_t> tokens;
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;  // ids to draw; prompt + max_tokens fit the context
  uint32_t top = 0;         // candidates wanted with each id
  pn_lane setup{};          // lane, history and bias slice are filled in later
  std::vector<std::pair<int32_t, float>> bias;
  std::shared_ptr<Sink> sink;
  uint64_t arrived_ns = 0;
};

struct Sequence {
  std::unique_ptr<Job> job;     // null: the lane is free
  uint64_t epoch = 0;           // of this use of the lane; rows of another one are dropped
  std::vector<uint32_t> pages;  // taken at admission, all that prompt and answer can need
  uint32_t pages_sent = 0;      // of them, in the device's table
  uint32_t reused = 0;          // prompt tokens found in the cache
  uint32_t ran = 0;             // positions covered by submitted steps
  uint32_t drawn = 0;           // ids that submitted steps draw
  uint32_t given = 0;           // ids handed to the sink
  uint32_t bias_list = 0;       // which of the lane's lists is in use
  bool setup_sent = false;
  uint64_t first_step_ns = 0;
  uint64_t first_token_ns = 0;
  uint64_t last_token_ns = 0;

  bool live() const { return job != nullptr; }
  bool prefilling() const { return live() && ran < job->prompt_tokens; }
  bool decoding() const { return live() && !prefilling() && drawn < job->max_tokens; }
};

}  // namespace pn::engine
