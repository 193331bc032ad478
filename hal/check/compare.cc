// SPDX-License-Identifier: Apache-2.0
//
// See compare.h. All sums in f64.
#include "hal/check/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pn::check {

namespace {

// Over the pairs that are finite.
double pearson(std::span<const float> a, std::span<const float> b) {
  const auto finite = [&](size_t i) { return std::isfinite(a[i]) && std::isfinite(b[i]); };
  double n = 0, ma = 0, mb = 0;
  for (size_t i = 0; i < a.size(); ++i) n += finite(i) ? 1 : 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!finite(i)) continue;
    ma += static_cast<double>(a[i]) / n;
    mb += static_cast<double>(b[i]) / n;
  }
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!finite(i)) continue;
    const double x = a[i] - ma, y = b[i] - mb;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  if (bb == 0) return 1;  // nothing varies: the largest error says it all
  return aa == 0 ? 0 : ab / std::sqrt(aa * bb);
}

}  // namespace

Closeness compare(std::span<const float> got, std::span<const float> want) {
  Closeness c;
  c.same_length = got.size() == want.size();
  if (!c.same_length || want.empty()) return c;
  double largest = 0, error = 0, squares = 0;
  for (const float w : want)
    if (std::isfinite(w)) largest = std::max(largest, std::fabs(static_cast<double>(w)));
  if (largest == 0) largest = 1;
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) {
      squares += std::isfinite(want[i]) ? static_cast<double>(want[i]) * want[i] : 0;
      continue;
    }
    const double off = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (!std::isfinite(off)) {
      if (c.finite) c.worst_at = i, c.got = got[i], c.want = want[i];
      c.finite = false;
      continue;
    }
    if (c.finite && off / largest > c.worst) {
      c.worst = off / largest;
      c.worst_at = i, c.got = got[i], c.want = want[i];
    }
    error += off * off;
    squares += static_cast<double>(want[i]) * want[i];
  }
  c.nmse = squares > 0 ? error / squares : error;
  if (c.finite) c.correlation = pearson(got, want);
  return c;
}

bool Closeness::within(double tolerance) const {
  return same_length && finite && worst <= tolerance && correlation >= 1 - tolerance;
}

std::string Closeness::text() const {
  if (!same_length) return "another number of values came out";
  if (!finite) return fmt::format("value {} is {}, wanted {}", worst_at, got, want);
  return fmt::format("value {} is {}, wanted {} (error {:.2e} of the largest), correlation {:.6f}",
                     worst_at, got, want, worst, correlation);
}

}  // namespace pn::check
