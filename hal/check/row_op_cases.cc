// SPDX-License-Identifier: Apache-2.0
//
// Group ops: the ops that work on rows without a matrix.
#include <algorithm>

#include "hal/check/trial.h"

namespace pn::check {

namespace {

Trial named(std::string name) {
  Trial t;
  t.name = std::move(name);
  return t;
}

Trial norm_trial(uint32_t kind, uint32_t width, uint32_t group, bool weighted, uint64_t seed) {
  Trial t = named(fmt::format("NORM kind {} width {} group {}", kind, width, group));
  const uint16_t in = t.plan.input(width), out = t.plan.output(width);
  const uint16_t w =
      weighted ? t.plan.random_vector(group == 0 ? width : group, seed) : uint16_t{PN_NO16};
  pn_op& op = t.plan.op(PN_OP_NORM, pn_op_norm{0, kind, group, 1e-5f});
  op.in[0] = in;
  op.out[0] = out;
  op.weight[0] = w;
  t.inputs = {in};
  t.outputs = {out};
  return t;
}

Result<void> norm(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t kind : {PN_NORM_RMS, PN_NORM_LAYER, PN_NORM_L2}) {
    PN_TRY(trials.add(norm_trial(kind, 75, 0, true, bench.seed(1))));
    PN_TRY(trials.add(norm_trial(kind, 96, 24, true, bench.seed(2))));
    PN_TRY(trials.add(norm_trial(kind, 128, 0, false, bench.seed(3))));
  }
  // Small rows: eps decides.
  Trial small = norm_trial(PN_NORM_RMS, 64, 0, true, bench.seed(4));
  small.scale = 1e-3f;
  PN_TRY(trials.add(std::move(small)));
  return trials.finish();
}

Trial two(uint16_t op, uint32_t wa, uint32_t wb, pn_op_elementwise p) {
  Trial t = named(fmt::format("op {} kind {} widths {} and {}", op, p.kind, wa, wb));
  const uint16_t a = t.plan.input(wa), b = t.plan.input(wb);
  const uint16_t out = t.plan.output(std::max(wa, wb));
  pn_op& made = t.plan.op(op, p);
  made.in[0] = a;
  made.in[1] = b;
  made.out[0] = out;
  t.inputs = {a, b};
  t.outputs = {out};
  return t;
}

Result<void> binary(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t kind : {PN_BINARY_ADD, PN_BINARY_MUL}) {
    PN_TRY(trials.add(two(PN_OP_BINARY, 64, 64, {0, kind, 1.0f, 0})));
    PN_TRY(trials.add(two(PN_OP_BINARY, 53, 53, {0, kind, 0.75f, 0})));
    PN_TRY(trials.add(two(PN_OP_BINARY, 64, 1, {0, kind, 2.0f, 0})));
  }
  return trials.finish();
}

Result<void> unary(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t kind :
       {PN_ACT_NONE, PN_ACT_SILU, PN_ACT_GELU_TANH, PN_ACT_SIGMOID, PN_ACT_SOFTPLUS, PN_ACT_TANH}) {
    for (const float limit : {0.0f, 0.5f}) {
      Trial t = named(fmt::format("UNARY activation {} limit {}", kind, limit));
      const uint32_t width = limit == 0 ? 64 : 53;
      const uint16_t in = t.plan.input(width), out = t.plan.output(width);
      pn_op& op = t.plan.op(PN_OP_UNARY, pn_op_elementwise{0, kind, 1.5f, limit});
      op.in[0] = in;
      op.out[0] = out;
      t.inputs = {in};
      t.outputs = {out};
      t.scale = 4;
      PN_TRY(trials.add(std::move(t)));
    }
  }
  return trials.finish();
}

Result<void> glu(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t kind : {PN_ACT_SILU, PN_ACT_GELU_TANH, PN_ACT_SIGMOID}) {
    Trial t = two(PN_OP_GLU, 64, 64, {0, kind, 1.0f, 0});
    t.scale = 3;
    PN_TRY(trials.add(std::move(t)));
    PN_TRY(trials.add(two(PN_OP_GLU, 53, 53, {0, kind, 0.5f, 0.7f})));
  }
  return trials.finish();
}

Result<void> columns(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t first : {0u, 3u, 32u}) {
    Trial t = named(fmt::format("COLUMNS from {}", first));
    const uint16_t in = t.plan.input(75), out = t.plan.output(first == 32 ? 43 : 32);
    pn_op& op = t.plan.op(PN_OP_COLUMNS, pn_op_columns{0, first});
    op.in[0] = in;
    op.out[0] = out;
    t.inputs = {in};
    t.outputs = {out};
    PN_TRY(trials.add(std::move(t)));
  }
  return trials.finish();
}

Result<void> concat(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t parts : {2u, 6u}) {
    Trial t = named(fmt::format("CONCAT of {}", parts));
    uint32_t width = 0;
    for (uint32_t i = 0; i < parts; ++i) {
      t.inputs.push_back(t.plan.input(8 + 5 * i));
      width += 8 + 5 * i;
    }
    const uint16_t out = t.plan.output(width);
    pn_op& op = t.plan.op(PN_OP_CONCAT);
    for (uint32_t i = 0; i < parts; ++i) op.in[i] = t.inputs[i];
    op.out[0] = out;
    t.outputs = {out};
    PN_TRY(trials.add(std::move(t)));
  }
  return trials.finish();
}

Result<void> rope(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t kind : {PN_ROPE_NORM, PN_ROPE_NEOX}) {
    for (const uint32_t dims : {16u, 10u}) {
      Trial t = named(fmt::format("ROPE kind {} dims {} of 16", kind, dims));
      const uint16_t in = t.plan.input(48), out = t.plan.output(48);
      const uint16_t w = t.plan.rope(dims / 2);
      pn_op_heads p{};
      p.heads = 3;
      p.dim = 16;
      p.rope_kind = kind;
      p.rope_dims = dims;
      p.rope_magnitude = 1.25f;
      pn_op& op = t.plan.op(PN_OP_ROPE, p);
      op.in[0] = in;
      op.out[0] = out;
      op.weight[0] = w;
      t.inputs = {in};
      t.outputs = {out};
      PN_TRY(trials.add(std::move(t)));
    }
  }
  return trials.finish();
}

Result<void> conv(Bench& bench) {
  Trials trials(bench);
  Trial t = named("CONV of 4 taps");
  const uint32_t channels = 48, taps = 4;
  const uint16_t in = t.plan.input(channels), out = t.plan.output(channels);
  const uint16_t w = t.plan.random_vector(int64_t{channels} * taps, bench.seed(1));
  t.plan.weights[w].role = PN_ROLE_CONV;
  t.plan.weights[w].shape[0] = taps;
  t.plan.weights[w].shape[1] = channels;
  t.plan.cache(0, 1, PN_TYPE_F32, 1);
  t.plan.caches[0].kind = PN_CACHE_STATE;
  pn_op_heads p{};
  p.taps = taps;
  p.activation = PN_ACT_SILU;
  pn_op& op = t.plan.op(PN_OP_CONV, p);
  op.in[0] = in;
  op.out[0] = out;
  op.weight[0] = w;
  t.inputs = {in};
  t.outputs = {out};
  PN_TRY(trials.add(std::move(t)));
  return trials.finish();
}

// Rows of several entries, not in the order of their tokens.
Result<void> rows(Bench& bench) {
  Plan plan;
  plan.shapes = {{12, 3, 4, 64}};
  const uint16_t in = plan.input(40), out = plan.slot(40, PN_SLOT_OUTPUT, PN_ROWS_OUT);
  pn_op& op = plan.op(PN_OP_ROWS);
  op.in[0] = in;
  op.out[0] = out;
  PN_TRY(Side * side, bench.subject());
  auto rig = Rig::make(*side, plan);
  if (!rig && rig.error().code == Code::unsupported) {
    bench.unsupported(rig.error().message);
    return {};
  }
  if (!rig) return tl::unexpected<Error>(rig.error());
  const auto values = random_values(12 * 40, bench.seed(1));
  PN_TRY((*rig)->write_slot(in, values));
  Steps steps;
  steps.entry(1, 0, 5);
  steps.entry(3, 2, 3);
  steps.entry(0, 0, 4);
  const uint32_t wanted[4][3] = {{2, 3, 11}, {0, 0, 0}, {1, 2, 7}, {0, 4, 4}};
  for (const auto& w : wanted) steps.row(w[0], w[1], 0);
  PN_TRY((*rig)->run(steps));
  PN_TRY(const auto got, (*rig)->read_slot(out, 4));
  for (uint32_t r = 0; r < 4; ++r)
    bench.expect(std::equal(got.begin() + r * 40, got.begin() + (r + 1) * 40,
                            values.begin() + wanted[r][2] * 40),
                 "row {}: token {} of entry {} is not what came out", r, wanted[r][1],
                 wanted[r][0]);
  return {};
}

constexpr Case kCases[] = {
    {"ops/norm", "NORM", "RMS, LAYER and L2, whole rows and groups", norm},
    {"ops/rows", "ROWS", "the asked rows of the asked entries", rows},
    {"ops/binary", "BINARY", "add, mul, broadcast, scale", binary},
    {"ops/unary", "UNARY", "each activation, scale, limit", unary},
    {"ops/glu", "GLU", "each activation, scale, limit", glu},
    {"ops/columns", "COLUMNS", "first and width", columns},
    {"ops/concat", "CONCAT", "up to six parts", concat},
    {"ops/rope", "ROPE", "both pairings, dims past rope_dims, magnitude", rope},
    {"ops/conv", "CONV", "causal convolution with carried state", conv},
};

}  // namespace

std::span<const Case> row_op_cases() { return kCases; }

}  // namespace pn::check
