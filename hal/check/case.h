// SPDX-License-Identifier: Apache-2.0
//
// What a check is: a case with a name, the rule it stands for, and a function.
//
// Owns Case, Outcome and Setup. Knows no plugin and no process. The one idea: names are stable and
// cases are data, so a list, a filter, a child process and the table of mutants all speak of the
// same thing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hal/host/plugin.h"
#include "hal/host/result.h"

namespace pn::check {

class Bench;

struct Case {
  const char* name;             // "ops/norm": group, then the case
  const char* rule;             // R5, or the function, struct or op that states it
  const char* what;             // one line
  Result<void> (*run)(Bench&);  // an error is a failure
  bool own_process = false;     // also with --in-process: it loads the plugin in its own way

  std::string group() const;
};

enum class State { passed, failed, unsupported };
const char* to_string(State state);

struct Outcome {
  State state = State::passed;
  std::string text;  // why not passed; figures or what was left out when it did
  uint64_t ns = 0;
};

// What the caller asked for.
struct Setup {
  std::string file;       // of the plugin under test
  hal::Options options;   // for it
  std::string reference;  // name or path; empty: the one that the build names
  hal::Search search;     // where the reference is looked for
  uint64_t seed = 1;
  bool quick = false;
  bool isolated = false;  // the plugin under test runs in pantheon-backend-host
};

// All cases, group by group.
std::vector<Case> all_cases();

// One function a file of cases.
std::span<const Case> static_cases();
std::span<const Case> probe_cases();
std::span<const Case> struct_cases();
std::span<const Case> call_cases();
std::span<const Case> step_cases();
std::span<const Case> row_op_cases();
std::span<const Case> matrix_op_cases();
std::span<const Case> attention_cases();
std::span<const Case> emit_cases();
std::span<const Case> sampling_cases();
std::span<const Case> model_cases();
std::span<const Case> layout_cases();
std::span<const Case> async_cases();
std::span<const Case> memory_cases();
std::span<const Case> fault_cases();
std::span<const Case> perf_cases();

}  // namespace pn::check
