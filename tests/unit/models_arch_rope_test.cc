// SPDX-License-Identifier: Apache-2.0
//
// Rope tables against closed forms.
#include "models/arch/rope.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

namespace {

using pn::arch::rope_table;
using pn::arch::RopeParams;

RopeParams params(uint32_t dims) {
  RopeParams r;
  r.dims = dims;
  r.trained_context = 4096;
  return r;
}

double plain(double base, int i, int dims) { return std::pow(base, -2.0 * i / dims); }

}  // namespace

TEST_CASE("no scaling: base to the power of -2i/dims") {
  auto t = rope_table(params(8), {});
  REQUIRE(t.radians.size() == 4);
  CHECK(t.magnitude == 1);
  const double wanted[] = {1, 0.1, 0.01, 0.001};  // base 10000
  for (int i = 0; i < 4; ++i)
    CHECK(t.radians[size_t(i)] == doctest::Approx(wanted[i]).epsilon(1e-7));
}

TEST_CASE("linear scaling divides every angle by the factor") {
  RopeParams r = params(64);
  r.factor = 8;
  auto t = rope_table(r, {});
  for (int i = 0; i < 32; ++i)
    CHECK(t.radians[size_t(i)] == doctest::Approx(plain(10000, i, 64) / 8).epsilon(1e-7));
}

TEST_CASE("factor tables divide pair by pair, a huge factor stops a pair") {
  RopeParams r = params(8);
  std::vector<float> factors = {1, 2, 8, 1e30f};
  auto t = rope_table(r, factors);
  CHECK(t.radians[0] == 1.0f);
  CHECK(t.radians[1] == doctest::Approx(0.05));
  CHECK(t.radians[2] == doctest::Approx(0.00125));
  CHECK(t.radians[3] < 1e-30f);
}

TEST_CASE("YaRN: fast pairs stay, slow pairs are scaled, a linear ramp between, magnitude grows") {
  RopeParams r = params(128);
  r.kind = RopeParams::yarn;
  r.ext_factor = 1;
  r.factor = 32;
  r.base = 150000;
  auto t = rope_table(r, {});
  auto corr = [&](double turns) {
    return 128 * std::log(4096 / (turns * 2 * std::numbers::pi)) / (2 * std::log(150000.0));
  };
  double low = std::floor(corr(32)), high = std::ceil(corr(1));
  CHECK(low == 16);
  CHECK(high == 35);
  for (int i = 0; i < 64; ++i) {
    double ramp = std::min(1.0, std::max(0.0, (i - low) / (high - low)));
    double w = plain(150000, i, 128);
    double wanted = w / 32 * ramp + w * (1 - ramp);
    CHECK(t.radians[size_t(i)] == doctest::Approx(wanted).epsilon(1e-6));
  }
  CHECK(t.radians[16] == doctest::Approx(plain(150000, 16, 128)).epsilon(1e-6));
  CHECK(t.radians[35] == doctest::Approx(plain(150000, 35, 128) / 32).epsilon(1e-6));
  CHECK(t.magnitude == doctest::Approx(1 + 0.1 * std::log(32.0)));
  r.log_multiplier = 0.707;
  r.attn_factor = 2;
  double grow = std::log(32.0);
  CHECK(rope_table(r, {}).magnitude ==
        doctest::Approx(2 * (1 + 0.1 * grow) / (1 + 0.1 * 0.707 * grow)));
}

TEST_CASE("longrope: the magnitude is the file's, the factors are the caller's") {
  RopeParams r = params(8);
  r.kind = RopeParams::longrope;
  r.attn_factor = 1.19;
  std::vector<float> factors = {1, 4, 4, 4};
  auto t = rope_table(r, factors);
  CHECK(t.magnitude == doctest::Approx(1.19));
  CHECK(t.radians[1] == doctest::Approx(0.025));
}
