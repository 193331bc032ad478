// SPDX-License-Identifier: Apache-2.0
//
// A plan compiled and bound on one side, ready to run.
//
// Owns the buffers and the program. Knows the contract's order: rank, query, convert, bind, create,
// wait. The one idea: scratch, caches and outputs begin as rubbish, so nothing can lean on zeros.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hal/check/bench.h"
#include "hal/check/plan.h"

namespace pn::check {

class Rig {
 public:
  // Code::unsupported, with the plugin's reasons, when it cannot do the plan. pages: of each cache;
  // 0: as many as all lanes can have.
  static Result<std::unique_ptr<Rig>> make(Side& side, const Plan& plan, uint32_t pages = 0);

  Side& side() { return *side_; }
  Plan& plan() { return plan_; }
  const hal::Report& report() const { return report_; }
  const hal::Program& program() const { return program_; }
  uint32_t numerics() const;  // what all spans claim
  double tolerance() const;   // by the coarsest span

  Result<void> write_slot(uint16_t slot, std::span<const float> values);
  Result<std::vector<float>> read_slot(uint16_t slot, uint64_t rows);
  Result<void> write_ids(std::span<const int32_t> ids);
  Result<std::vector<int32_t>> read_ids();
  // What was written behind: empty when every bound slice kept to its bytes.
  Result<std::string> touched_guard();
  const hal::Buffer& weight(size_t i) const { return weights_[i]; }
  const hal::Buffer& cache(size_t i) const { return caches_[i]; }
  const std::vector<pn_binding>& bindings() const { return bindings_; }

  // One RUN (or SAMPLE), to its end. Rows get targets in the results buffer, one after another.
  Result<void> run(Steps& steps, uint32_t shape = 0, uint32_t kind = PN_CMD_RUN);
  pn_command command(uint32_t shape = 0, uint32_t kind = PN_CMD_RUN) const;
  // Submits what may be refused: the status of the submit, or what failed the queue, after which
  // queue and program are made anew (a program stays on one queue). The value is filled in.
  pn_status attempt(pn_submit* submit, std::string* message = nullptr);
  pn_status attempt(Steps& steps, uint32_t shape = 0);
  // Gives rows their targets; run() does it.
  void aim(Steps* steps) const;

  // What row r of the last run, or of `steps`, received.
  struct RowData {
    pn_result result{};
    std::vector<pn_candidate> top;
    std::vector<float> logits, hidden;
  };
  RowData row(const Steps& steps, uint32_t r) const;
  uint64_t row_bytes() const;
  const hal::Buffer& results() const { return results_; }

 private:
  Result<void> choose_layouts();
  Result<void> bind_weights();
  Result<void> bind_rest(uint32_t pages);
  Result<hal::Buffer> bind(uint32_t kind, uint32_t index, uint64_t bytes);

  Side* side_ = nullptr;
  Plan plan_;
  std::vector<pn_layout_choice> choices_;
  hal::Report report_;
  std::vector<hal::Buffer> weights_, slots_, caches_;
  hal::Buffer scratch_, ids_, results_;
  std::vector<pn_binding> bindings_;
  hal::Program program_;
  uint32_t vocab_ = 0, hidden_ = 0;
};

// The same plan on both sides.
struct Pair {
  std::unique_ptr<Rig> ours, theirs;
  std::string unsupported;  // why ours is absent
  explicit operator bool() const { return ours != nullptr; }
};
Result<Pair> make_pair(Bench& bench, const Plan& plan, uint32_t pages = 0);

}  // namespace pn::check
