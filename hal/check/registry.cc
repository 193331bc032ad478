// SPDX-License-Identifier: Apache-2.0
//
// The list of all cases; see case.h.
#include "hal/check/case.h"

namespace pn::check {

std::string Case::group() const {
  const std::string whole = name;
  return whole.substr(0, whole.find('/'));
}

const char* to_string(State state) {
  switch (state) {
    case State::passed:
      return "passed";
    case State::failed:
      return "failed";
    default:
      return "unsupported";
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto list : {static_cases, probe_cases, struct_cases, call_cases, step_cases, row_op_cases,
                    matrix_op_cases, attention_cases, emit_cases, sampling_cases, model_cases,
                    layout_cases, async_cases, memory_cases, fault_cases, perf_cases})
    for (const Case& c : list()) all.push_back(c);
  return all;
}

}  // namespace pn::check
