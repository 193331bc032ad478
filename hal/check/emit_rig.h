// SPDX-License-Identifier: Apache-2.0
//
// A plan of EMIT alone, on both sides: rows of logits in, ids and candidates out.
//
// Owns the plan and its steps. Knows no sampling rule.
#pragma once

#include <optional>

#include "hal/check/rig.h"

namespace pn::check {

constexpr uint32_t kEmitVocab = 5003;  // more than a block of any size in use, and ragged
constexpr uint32_t kEmitRows = 8;
constexpr uint32_t kEmitContext = 64;

class EmitRig {
 public:
  // Empty when the plugin cannot do it; the bench is told.
  static Result<EmitRig> make(Bench& bench);
  explicit operator bool() const { return static_cast<bool>(pair_); }

  uint32_t rows() const { return kEmitRows; }
  Pair& pair() { return pair_; }
  Result<void> fill(uint64_t seed, float scale);  // each row its own values
  Result<void> fill(const std::vector<std::vector<float>>& rows);
  // Four lanes of two tokens each, both of which come out; lanes are reset, temperature 0.
  Steps rows_of_all(uint32_t flags) const;
  // Memory that masks and biases lie in, the same bytes on both sides. The slice is set by run():
  // Steps name offset and bytes.
  Result<void> write_list(const void* from, uint64_t bytes);
  Result<void> run(Steps& steps, uint32_t kind = PN_CMD_RUN);
  Rig::RowData ours(const Steps& steps, uint32_t r) const { return pair_.ours->row(steps, r); }
  Rig::RowData theirs(const Steps& steps, uint32_t r) const { return pair_.theirs->row(steps, r); }

 private:
  Pair pair_;
  hal::Buffer lists_[2];
  uint16_t logits_ = 0;
};

}  // namespace pn::check
