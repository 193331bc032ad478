// SPDX-License-Identifier: Apache-2.0
//
// Serving one row: what of it was asked for goes to its target, and the id to where it is fed from.
//
// Shared by EMIT and PN_CMD_SAMPLE. Knows the sampler and the program's lanes.
#pragma once

#include <pantheon/sampler.h>

#include "backends/cpu/ops.h"
#include "backends/cpu/sampler.h"

namespace pn::cpu {

inline constexpr uint32_t kTopMax = 1024;

// Bytes that a row's target takes: result (with SAMPLE or top), candidates, logits, hidden.
inline bool row_has_result(const pn_row& row) {
  return (row.flags & PN_ROW_SAMPLE) != 0 || row.top != 0;
}
uint64_t row_target_bytes(const pn_row& row, uint32_t vocab, uint32_t hidden);

struct RowJob {
  const Program& program;
  const pn_row& row;
  std::byte* target = nullptr;
  const std::byte* mask = nullptr;
  uint32_t lane = 0;
  uint32_t position = 0;          // of the row's token
  bool spoiled = false;           // a fed -1: nothing can be drawn
  bool draw = true;               // false: held
  const float* logits = nullptr;  // (vocab) or nullptr
  const float* hidden = nullptr;  // (hidden) or nullptr
  LogitStats stats;
  SampleScratch scratch;
};
void serve_row(const RowJob& job);

const pn_sampler_api* sampler_api();

}  // namespace pn::cpu
