// SPDX-License-Identifier: Apache-2.0
//
// A step inside a ring slot: the host's arrays, copied, with slices resolved to addresses.
//
// Owns the copy and its checks against a program. Knows nothing of ops. Everything that a step can
// have wrong by itself (lane, page, token, row and slot numbers, slices) is refused here, by name,
// before anything of it runs.
#pragma once

#include <pantheon/step.h>

#include <cstddef>

namespace pn::cpu {

struct Program;

struct Step {
  uint32_t shape = 0;  // index into the plan's shapes
  uint32_t token_count = 0;
  uint32_t lane_count = 0;
  uint32_t page_count = 0;
  uint32_t entry_count = 0;
  uint32_t row_count = 0;
  const int32_t* tokens = nullptr;
  const pn_lane* lanes = nullptr;
  const pn_pages* pages = nullptr;
  const pn_entry* entries = nullptr;
  const pn_row* rows = nullptr;
  const std::byte* const* biases = nullptr;  // (lane_count) pairs {id, add}, or nullptr
  const std::byte* const* masks = nullptr;   // (row_count), or nullptr
  std::byte* const* targets = nullptr;       // (row_count), or nullptr
};

// Bump allocation in a ring slot, 8-byte aligned. nullptr when it is full.
struct Arena {
  std::byte* at = nullptr;
  std::byte* end = nullptr;
  void* take(uint64_t bytes) {
    const uint64_t size = (bytes + 7) / 8 * 8;
    if (size > static_cast<uint64_t>(end - at)) return nullptr;
    std::byte* out = at;
    at += size;
    return out;
  }
};

// For PN_CMD_RUN and, with held true, PN_CMD_SAMPLE. What it resolves lies in the arena.
pn_status resolve_step(const Program& program, uint32_t shape, const pn_step* from, bool held,
                       Arena* arena, Step* out, pn_error* err);

}  // namespace pn::cpu
