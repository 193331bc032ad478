// SPDX-License-Identifier: Apache-2.0
//
// Ranges first, then what the plugin offers, then the mapping: so a message names the parameter and
// not a bit of the sampler. Knows no HTTP names but those that users type.
#include "engine/sample/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pn::engine {
namespace {

struct Range {
  const char* name;
  float value;
  float low, high;
  bool open_low = false;  // low itself is out
  bool open_high = false;
};

Result<void> check(const Range& r) {
  bool inside = std::isfinite(r.value) && (r.open_low ? r.value > r.low : r.value >= r.low) &&
                (r.open_high ? r.value < r.high : r.value <= r.high);
  if (inside) return {};
  return fail(Code::invalid,
              fmt::format("{} is {}, allowed is {}{} to {}{}", r.name, r.value,
                          r.open_low ? "above " : "", r.low, r.open_high ? "below " : "", r.high),
              r.name);
}

Result<void> check_ranges(const SamplingParams& p) {
  const Range ranges[] = {
      {"temperature", p.temperature, 0, 100},
      {"top_p", p.top_p, 0, 1, true},
      {"min_p", p.min_p, 0, 1, false, true},
      {"repeat_penalty", p.repeat_penalty, 0, 10, true},
      {"presence_penalty", p.presence_penalty, -10, 10},
      {"frequency_penalty", p.frequency_penalty, -10, 10},
  };
  for (const Range& range : ranges) PN_TRY(check(range));
  return {};
}

Result<void> check_bias(const SamplingParams& p, const SamplingLimits& limits) {
  if (p.bias.size() > limits.bias_max) {
    return fail(Code::invalid,
                fmt::format("logit_bias has {} entries, at most {} are allowed", p.bias.size(),
                            limits.bias_max),
                "logit_bias");
  }
  for (size_t i = 0; i < p.bias.size(); ++i) {
    auto [id, add] = p.bias[i];
    if (id < 0 || static_cast<uint32_t>(id) >= limits.vocab) {
      return fail(
          Code::invalid,
          fmt::format("logit_bias names token {}, ids go from 0 to {}", id, limits.vocab - 1),
          "logit_bias");
    }
    PN_TRY(check({"logit_bias", add, -100, 100}));
    for (size_t j = 0; j < i; ++j) {
      if (p.bias[j].first != id) continue;
      return fail(Code::invalid, fmt::format("logit_bias names token {} twice", id), "logit_bias");
    }
  }
  return {};
}

Result<void> offer(bool wanted, uint32_t feature, const SamplingLimits& limits, const char* param) {
  if (!wanted || (limits.sampler.features & feature) != 0) return {};
  return fail(Code::unsupported,
              fmt::format("{} was asked for, and the plugin of {} does not offer it: leave it out, "
                          "or serve this model with a plugin that does",
                          param, limits.die),
              param);
}

}  // namespace

Result<pn_lane> lane_setup(const SamplingParams& p, const SamplingLimits& limits) {
  PN_TRY(check_ranges(p));
  PN_TRY(check_bias(p, limits));
  bool repeats = p.repeat_penalty != 1.0f;
  bool penalises = repeats || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
  penalises = penalises && p.penalty_tokens != 0;
  bool greedy = p.temperature == 0.0f;
  PN_TRY(offer(greedy, PN_SAMPLES_GREEDY, limits, "temperature"));
  PN_TRY(offer(!greedy, PN_SAMPLES_TEMPERATURE, limits, "temperature"));
  const char* penalty = repeats                      ? "repeat_penalty"
                        : p.presence_penalty != 0.0f ? "presence_penalty"
                                                     : "frequency_penalty";
  PN_TRY(offer(penalises, PN_SAMPLES_PENALTIES, limits, penalty));
  PN_TRY(offer(!p.bias.empty(), PN_SAMPLES_BIAS, limits, "logit_bias"));

  pn_lane lane{};
  lane.struct_size = sizeof(lane);
  lane.adapter = PN_NONE;
  lane.temperature = p.temperature;
  lane.top_p = p.top_p;
  lane.min_p = p.min_p;
  lane.top_k = p.top_k;
  lane.repeat_penalty = 1.0f;
  lane.seed = p.seed;
  if (penalises) {
    uint32_t wanted = std::min(p.penalty_tokens, limits.context);
    if (wanted > limits.sampler.history_max) {
      return fail(Code::unsupported,
                  fmt::format("penalty_tokens is {}, the plugin of {} looks back over at most {}",
                              wanted, limits.die, limits.sampler.history_max),
                  "penalty_tokens");
    }
    lane.penalty_tokens = wanted;
    lane.repeat_penalty = p.repeat_penalty;
    lane.presence_penalty = p.presence_penalty;
    lane.frequency_penalty = p.frequency_penalty;
  }
  return lane;
}

Result<uint32_t> row_candidates(uint32_t top_logprobs, const SamplingLimits& limits) {
  uint32_t most = std::min(kTopLogprobsMax, limits.sampler.top_max);
  if (top_logprobs <= most) return top_logprobs;
  return fail(Code::invalid,
              fmt::format("top_logprobs is {}, allowed is 0 to {}", top_logprobs, most),
              "top_logprobs");
}

}  // namespace pn::engine
