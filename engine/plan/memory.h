// SPDX-License-Identifier: Apache-2.0
//
// What a model copy takes of a die, and whether there is room for it.
//
// Owns the sum and the words of a refusal. Knows numbers only. The one idea: a refusal ends with a
// setting that would have worked.
#pragma once

#include <pantheon/device.h>

#include <cstdint>
#include <string>

#include "hal/host/result.h"

namespace pn::engine {

struct MemoryNeed {
  uint64_t weights = 0;     // as laid out, with alignment
  uint64_t page_bytes = 0;  // one page of every paged cache together
  uint32_t pages = 0;
  uint64_t scratch = 0;
  uint64_t program = 0;  // code, graphs, lane records
  uint64_t other = 0;    // ids, results, biases

  uint64_t cache() const { return page_bytes * pages; }
  uint64_t total() const { return weights + cache() + scratch + program + other; }
};

struct MemoryQuestion {
  std::string model;
  std::string die;
  uint32_t context = 0;
  uint32_t slots = 0;
  uint32_t page_tokens = 0;
  uint64_t budget = 0;  // the most that Pantheon may hold on the die; 0: no such bound
};

// Code::out_of_memory with what was needed, what is free, and the context and slots that fit.
Result<void> check_memory(const MemoryNeed& need, const pn_memory_status& status,
                          const MemoryQuestion& question);

}  // namespace pn::engine
