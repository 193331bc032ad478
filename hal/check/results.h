// SPDX-License-Identifier: Apache-2.0
//
// The result of a check, kept by build id beside the probe results, and read by `plugin list`.
//
// Owns the file's form: `key=value` lines. Knows no case. The one idea: a plugin that was built
// anew has another build id, so an old result never speaks for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hal/host/note.h"

namespace pn::check {

struct Conformance {
  bool checked = false;
  uint32_t passed = 0, unsupported = 0;
  std::vector<std::string> failed;  // names
  std::string date;                 // 2026-11-30
  uint64_t seed = 0;
  bool quick = false;

  // "not checked", "passed 88/88 on 2026-11-30", "failed: ops/norm, async/early"
  std::string text() const;
};

// Where it is kept; empty when there is no cache folder.
std::string conformance_path(const std::string& cache_dir, const hal::Note& note);
Conformance read_conformance(const std::string& cache_dir, const hal::Note& note);
bool write_conformance(const std::string& cache_dir, const hal::Note& note, const Conformance& c);
std::string today();

}  // namespace pn::check
