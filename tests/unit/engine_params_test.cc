// SPDX-License-Identifier: Apache-2.0
//
// From a user's parameters to a lane: values that pass through, ranges, and what a plugin lacks. No
// device takes part.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/sample/params.h"

using namespace pn;
using namespace pn::engine;

namespace {

SamplingLimits all() {
  return {{sizeof(pn_sampler_info), 0x7f, 20, 4096}, 1000, 2048, 16, "fake:0"};
}

std::string param_of(const SamplingParams& params, const SamplingLimits& limits = all()) {
  Result<pn_lane> lane = lane_setup(params, limits);
  return lane ? "" : lane.error().param;
}

}  // namespace

TEST_CASE("params: what is accepted reaches the lane as written") {
  SamplingParams p;
  p.temperature = 0.7f;
  p.top_k = 11;
  p.top_p = 0.5f;
  p.min_p = 0.1f;
  p.seed = 0x123456789abcdefull;
  p.repeat_penalty = 1.5f;
  p.presence_penalty = 0.25f;
  p.frequency_penalty = -0.5f;
  p.penalty_tokens = 100;
  Result<pn_lane> lane = lane_setup(p, all());
  REQUIRE(lane.has_value());
  CHECK(lane->temperature == 0.7f);
  CHECK(lane->top_k == 11);
  CHECK(lane->top_p == 0.5f);
  CHECK(lane->min_p == 0.1f);
  CHECK(lane->seed == 0x123456789abcdefull);
  CHECK(lane->repeat_penalty == 1.5f);
  CHECK(lane->presence_penalty == 0.25f);
  CHECK(lane->frequency_penalty == -0.5f);
  CHECK(lane->penalty_tokens == 100);
  CHECK(lane->adapter == PN_NONE);
}

TEST_CASE("params: without a penalty no history is kept") {
  SamplingParams p;
  Result<pn_lane> lane = lane_setup(p, all());
  REQUIRE(lane.has_value());
  CHECK(lane->penalty_tokens == 0);
  CHECK(lane->repeat_penalty == 1.0f);
  p.repeat_penalty = 1.1f;
  p.penalty_tokens = UINT32_MAX;  // whole context
  CHECK(lane_setup(p, all())->penalty_tokens == 2048);
}

TEST_CASE("params: out of range is refused by name") {
  auto with = [](auto change) {
    SamplingParams p;
    change(p);
    return param_of(p);
  };
  CHECK(with([](SamplingParams&) {}) == "");
  CHECK(with([](SamplingParams& p) { p.temperature = -0.1f; }) == "temperature");
  CHECK(with([](SamplingParams& p) { p.temperature = NAN; }) == "temperature");
  CHECK(with([](SamplingParams& p) { p.top_p = 0; }) == "top_p");
  CHECK(with([](SamplingParams& p) { p.top_p = 1.01f; }) == "top_p");
  CHECK(with([](SamplingParams& p) { p.top_p = 1; }) == "");
  CHECK(with([](SamplingParams& p) { p.min_p = 1; }) == "min_p");
  CHECK(with([](SamplingParams& p) { p.repeat_penalty = 0; }) == "repeat_penalty");
  CHECK(with([](SamplingParams& p) { p.presence_penalty = INFINITY; }) == "presence_penalty");
  CHECK(with([](SamplingParams& p) { p.frequency_penalty = 11; }) == "frequency_penalty");
  CHECK(with([](SamplingParams& p) { p.bias = {{1000, 1.0f}}; }) == "logit_bias");
  CHECK(with([](SamplingParams& p) { p.bias = {{-1, 1.0f}}; }) == "logit_bias");
  CHECK(with([](SamplingParams& p) { p.bias = {{1, 101.0f}}; }) == "logit_bias");
  CHECK(with([](SamplingParams& p) { p.bias = {{1, 1.0f}, {1, 2.0f}}; }) == "logit_bias");
  CHECK(with([](SamplingParams& p) { p.bias.assign(17, {1, 1.0f}); }) == "logit_bias");
}

TEST_CASE("params: what the plugin does not offer is refused by name") {
  SamplingLimits limits = all();
  SamplingParams p;
  limits.sampler.features = PN_SAMPLES_GREEDY;
  CHECK(param_of(p, limits) == "temperature");
  p.temperature = 0;
  CHECK(param_of(p, limits) == "");
  p.repeat_penalty = 1.2f;
  CHECK(param_of(p, limits) == "repeat_penalty");
  p.repeat_penalty = 1;
  p.frequency_penalty = 1;
  CHECK(param_of(p, limits) == "frequency_penalty");
  p.frequency_penalty = 0;
  p.bias = {{1, 1.0f}};
  CHECK(param_of(p, limits) == "logit_bias");
  limits = all();
  limits.sampler.history_max = 10;
  p.bias.clear();
  p.repeat_penalty = 1.2f;
  CHECK(param_of(p, limits) == "penalty_tokens");
  CHECK(row_candidates(20, all()).value() == 20);
  CHECK(row_candidates(21, all()).error().param == "top_logprobs");
  limits.sampler.top_max = 5;
  CHECK_FALSE(row_candidates(6, limits).has_value());
}
