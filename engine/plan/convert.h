// SPDX-License-Identifier: Apache-2.0
//
// Weights from the file into their slices: in tiles, in threads, with progress in bytes.
//
// Owns the threads and, where a heap is not host visible, the staging buffers and the queue that
// empties them. Knows no architecture. The one idea: a window of the file is read, converted and
// given back, so that the process never holds a second copy of the model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/die.h"
#include "hal/host/hal.h"
#include "hal/host/load.h"
#include "hal/host/result.h"
#include "models/arch/plan.h"

namespace pn::engine {

// Read and set from any thread.
struct LoadProgress {
  std::atomic<uint64_t> done{0};  // bytes of converted weights in place
  std::atomic<uint64_t> total{0};
  std::atomic<bool> cancel{false};
  // Called once, on the loading thread, when no byte has moved for stall_ns. The load itself ends
  // when the threads come back from what they wait for.
  std::function<void(const Error&)> stalled;
  uint64_t stall_ns = 30'000'000'000ull;
};

// One weight to put in place.
struct Transfer {
  const pn_weight* weight = nullptr;
  const arch::Source* source = nullptr;
  pn_layout_choice choice{};
  pn_slice target{};
  std::byte* host = nullptr;  // of target; nullptr: through staging
};

struct ConvertJob {
  Die* die = nullptr;
  const gguf::File* file = nullptr;
  const hal::Layout* layout = nullptr;  // nullptr: plain copies
  // The plugin puts weights in place itself, out of the file's descriptor: no byte passes here.
  const pn_load_api* load = nullptr;
  std::vector<Transfer> transfers;  // in file order
  uint32_t threads = 1;
};

// Blocks. Errors: what a plugin said of a tensor, a file that shrank, a stall, cancelled.
Result<void> convert_weights(const ConvertJob& job, LoadProgress& progress);

}  // namespace pn::engine
