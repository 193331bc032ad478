// SPDX-License-Identifier: Apache-2.0
//
// PN_TRY returns the first error and nothing else happens after it.
#include "hal/host/result.h"

#include <doctest/doctest.h>

namespace {

pn::Result<int> half(int n) {
  if (n % 2 != 0) return pn::fail(pn::Code::invalid, "odd", "n");
  return n / 2;
}

pn::Result<void> check(int n, int* steps) {
  PN_TRY(int h, half(n));
  ++*steps;
  PN_TRY(half(h).map([](int) {}));
  ++*steps;
  return {};
}

}  // namespace

TEST_CASE("PN_TRY binds a value and stops at the first error") {
  int steps = 0;
  CHECK(check(8, &steps));
  CHECK(steps == 2);
  steps = 0;
  auto r = check(6, &steps);
  REQUIRE(!r);
  CHECK(steps == 1);
  CHECK(r.error().code == pn::Code::invalid);
  CHECK(r.error().param == "n");
}
