// SPDX-License-Identifier: Apache-2.0
//
// Computes rope tables.
//
// Owns plain, linear, YaRN and factor-table (llama3, longrope) frequencies. Knows no tensor name.
#include "models/arch/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/gguf/text.h"

namespace pn::arch {
namespace {

Result<void> scaling(const Keys& keys, RopeParams* r) {
  PN_TRY(std::string kind, keys.text("rope.scaling.type", "linear"));
  if (kind == "none")
    r->kind = RopeParams::none;
  else if (kind == "linear")
    r->kind = RopeParams::linear;
  else if (kind == "yarn")
    r->kind = RopeParams::yarn;
  else if (kind == "longrope")
    r->kind = RopeParams::longrope;
  else {
    Error e =
        keys.bad("rope.scaling.type", fmt::format("is {}; this build knows none, linear, yarn "
                                                  "and longrope: update pantheon",
                                                  gguf::quoted(kind)))
            .value();
    e.code = Code::unsupported;
    return tl::make_unexpected(std::move(e));
  }
  // The older key counts only where the newer is absent. 0 in either means unscaled.
  PN_TRY(float old_factor, keys.f32("rope.scale_linear", 1));
  PN_TRY(float factor, keys.f32("rope.scaling.factor", old_factor));
  if (factor < 0)
    return keys.bad("rope.scaling.factor", fmt::format("is {}; it cannot be negative", factor));
  r->factor = factor == 0 || r->kind == RopeParams::none ? 1 : factor;
  return {};
}

Result<void> yarn(const Keys& keys, RopeParams* r) {
  PN_TRY(r->attn_factor, keys.f32("rope.scaling.attn_factor", 1));
  PN_TRY(double more, keys.f32("rope.scaling.yarn_attn_factor", 1));
  r->attn_factor *= more;
  float ext = r->kind == RopeParams::yarn ? 1 : 0;
  PN_TRY(r->ext_factor, keys.f32("rope.scaling.yarn_ext_factor", ext));
  PN_TRY(r->beta_fast, keys.f32("rope.scaling.yarn_beta_fast", 32));
  PN_TRY(r->beta_slow, keys.f32("rope.scaling.yarn_beta_slow", 1));
  PN_TRY(r->log_multiplier, keys.f32("rope.scaling.yarn_log_multiplier", 0));
  if (r->ext_factor != 0 && (r->beta_fast <= 0 || r->beta_slow <= 0))
    return keys.bad("rope.scaling.yarn_beta_fast", "and yarn_beta_slow must be above 0");
  return {};
}

// The pair whose wavelength makes `turns` turns over the trained context.
double pair_of(const RopeParams& r, double turns) {
  return r.dims * std::log(r.trained_context / (2 * std::numbers::pi * turns)) /
         (2 * std::log(r.base));
}

}  // namespace

Result<RopeParams> read_rope(const Keys& keys, const HyperParams& params) {
  RopeParams r;
  PN_TRY(r.dims, keys.size("rope.dimension_count", params.key_dim, params.key_dim));
  if (r.dims % 2 != 0)
    return keys.bad("rope.dimension_count", fmt::format("is {}; pairs need an even count", r.dims));
  PN_TRY(r.base, keys.f32("rope.freq_base", 10000));
  if (!(r.base > 1))
    return keys.bad("rope.freq_base", fmt::format("is {}; it must be above 1", r.base));
  PN_TRY(r.trained_context,
         keys.size("rope.scaling.original_context_length", 1u << 28, params.context));
  PN_TRY(scaling(keys, &r));
  PN_TRY(yarn(keys, &r));
  return r;
}

RopeTable rope_table(const RopeParams& r, std::span<const float> factors) {
  RopeTable table;
  table.radians.resize(r.dims / 2);
  bool blend = r.ext_factor != 0;
  double low = std::max(0.0, std::floor(blend ? pair_of(r, r.beta_fast) : 0));
  double high = std::min(r.dims - 1.0, std::ceil(blend ? pair_of(r, r.beta_slow) : 0));
  for (size_t i = 0; i < table.radians.size(); ++i) {
    double plain = std::pow(r.base, -2.0 * static_cast<double>(i) / r.dims);
    if (!factors.empty()) plain /= factors[i];
    double scaled = plain / r.factor;
    // 1 for pairs that turn often in the trained context, which stay as they are.
    double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    double keep = blend ? (1 - std::clamp(ramp, 0.0, 1.0)) * r.ext_factor : 0;
    table.radians[i] = static_cast<float>(scaled * (1 - keep) + plain * keep);
  }
  double magnitude = r.attn_factor;
  if (blend) {
    double grow = std::log(r.factor);
    magnitude *= 1 + 0.1 * grow;
    if (r.log_multiplier != 0) magnitude /= 1 + 0.1 * r.log_multiplier * grow;
  }
  table.magnitude = static_cast<float>(magnitude);
  return table;
}

}  // namespace pn::arch
