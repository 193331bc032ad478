// SPDX-License-Identifier: Apache-2.0
//
// How close two lists of numbers are.
//
// Owns the measures. Knows no plugin. The one idea: correlation alone sees no dropped bias and no
// wrong row of many, the largest error alone sees no scale; both must hold.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace pn::check {

struct Closeness {
  bool same_length = true;
  bool finite = true;  // where the wanted value is
  double worst = 0;    // largest error over the largest wanted value
  size_t worst_at = 0;
  float got = 0, want = 0;  // there
  double correlation = 1;   // Pearson; 1 when the wanted values are all equal
  double nmse = 0;          // squared error over the wanted values' squares

  // worst <= tolerance, and correlation at least 1 - tolerance.
  bool within(double tolerance) const;
  std::string text() const;
};

Closeness compare(std::span<const float> got, std::span<const float> want);

}  // namespace pn::check
