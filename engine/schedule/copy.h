// SPDX-License-Identifier: Apache-2.0
//
// What the scheduler must know of one model copy that is ready on a die.
//
// Owns nothing: whoever loaded the copy keeps its objects alive until the scheduler has let go of
// it. Knows no file and no architecture. The one idea: after loading, a model is a program, a
// queue and a handful of numbers.
#pragma once

#include <pantheon/hal.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hal/host/result.h"

namespace pn::engine {

// Steps that may be submitted and not yet read. Two: the second runs while the host reads the
// first. Results and bias values exist once for each.
inline constexpr uint32_t kStepDepth = 2;

// Prompt tokens of one step while others decode: bounds how long a long prompt holds them up.
// At 128 a matrix product is within a few per cent of its speed at 512.
inline constexpr uint32_t kChunkBesideDecode = 128;

// Where rows come out: kStepDepth x lanes records in a RESULTS heap that the host can read.
struct ResultArea {
  pn_slice slice{};                 // (kStepDepth, lanes, stride) bytes
  const std::byte* host = nullptr;  // the same bytes
  uint64_t stride = 0;              // bytes a record: pn_result, then candidates
};

// Where logit biases lie: kStepDepth x lanes lists, so that a list in use is never rewritten.
struct BiasArea {
  pn_slice slice{};           // (kStepDepth, lanes, pairs) of {int32 id, float add}; empty: none
  pn_slice staging{};         // same size, host side, when slice itself is not host visible
  std::byte* host = nullptr;  // of staging if there is one, else of slice
  uint32_t pairs = 0;         // room of one list
};

struct Copy {
  std::string model;
  std::string die;  // stable id
  const pn_plugin* api = nullptr;
  pn_device device{};
  pn_queue queue{};
  uint64_t queue_value = 0;  // last value that was submitted to it before
  pn_program program{};
  std::vector<pn_shape> shapes;        // smallest first
  std::vector<uint64_t> predicted_ns;  // one a shape; 0 unknown
  std::vector<uint32_t> caches;        // numbers of the paged caches: they share page numbers
  uint32_t lanes = 0;
  uint32_t context = 0;      // tokens a lane may hold
  uint32_t page_tokens = 0;  // tokens a page
  uint32_t page_count = 0;
  uint32_t token_multiple = 1;
  uint64_t step_bytes_max = 0;
  bool reuse_prefix = false;  // a prompt's values do not depend on where it was cut
  ResultArea results;
  BiasArea bias;
  uint32_t patience = 1;          // of the watchdog with its plugin, see hal::CallWatch
  uint64_t step_deadline_ns = 0;  // a step counts as lost no sooner than this; 0: 60 s
  // A new queue, and a program on it over the same slices, in the place of a queue that failed
  // while its die lives: a program stays on one queue.
  struct Replacement {
    pn_queue queue{};
    pn_program program{};
  };
  std::function<Result<Replacement>()> replace;
  // The die is lost; recovery: PN_RECOVER_*. On the scheduler's thread, before the sequences end.
  std::function<void(uint32_t recovery)> lost;
};

}  // namespace pn::engine
