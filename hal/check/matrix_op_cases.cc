// SPDX-License-Identifier: Apache-2.0
//
// Group ops: table, matrices, feed-forward blocks, experts.
#include "hal/check/trial.h"

namespace pn::check {

namespace {

struct LinearForm {
  uint32_t type = PN_TYPE_F32;
  int64_t cols = 64, rows = 48;
  float scale = 1, softcap = 0;
  bool residual = false, bias = false, weight_scale = false;
};

Trial linear_trial(const LinearForm& f, uint64_t seed) {
  Trial t;
  t.name = fmt::format("LINEAR {}x{} type {}", f.cols, f.rows, f.type);
  const uint16_t in = t.plan.input(static_cast<uint32_t>(f.cols));
  const auto rows = static_cast<uint32_t>(f.rows);
  const uint16_t more = f.residual ? t.plan.input(rows) : uint16_t{PN_NO16};
  const uint16_t out = t.plan.output(rows);
  const uint16_t w = t.plan.weight(PN_ROLE_MATRIX, f.type, {f.cols, f.rows},
                                   random_blocks(f.type, f.cols, f.rows, seed));
  if (f.bias) {
    const uint16_t b = t.plan.random_vector(f.rows, seed + 1, 2);
    t.plan.weights[w].bias = b;
  }
  if (f.weight_scale) {
    const float half = 0.5f;
    const uint16_t s = t.plan.vector({&half, 1});
    t.plan.weights[w].scale = s;
  }
  pn_op& op = t.plan.op(PN_OP_LINEAR, pn_op_linear{0, 0, f.scale, f.softcap});
  op.in[0] = in;
  op.in[1] = more;
  op.out[0] = out;
  op.weight[0] = w;
  t.inputs = {in};
  if (f.residual) t.inputs.push_back(more);
  t.outputs = {out};
  return t;
}

Result<void> linear(Bench& bench) {
  Trials trials(bench);
  for (const auto& [cols, rows] : {std::pair{64, 48}, {75, 53}, {32, 1}, {1, 17}, {256, 130}}) {
    LinearForm f;
    f.cols = cols;
    f.rows = rows;
    PN_TRY(trials.add(linear_trial(f, bench.seed(1))));
  }
  LinearForm scaled;
  scaled.scale = 3;
  scaled.softcap = 8;
  scaled.residual = true;
  PN_TRY(trials.add(linear_trial(scaled, bench.seed(2))));
  return trials.finish();
}

Result<void> linear_bias(Bench& bench) {
  Trials trials(bench);
  for (const bool weight_scale : {false, true}) {
    LinearForm f;
    f.bias = true;
    f.weight_scale = weight_scale;
    f.residual = weight_scale;
    PN_TRY(trials.add(linear_trial(f, bench.seed(3))));
  }
  return trials.finish();
}

Result<void> linear_types(Bench& bench) {
  Trials trials(bench);
  for (const TypeFacts& facts : known_types()) {
    LinearForm f;
    f.type = facts.type;
    f.cols = facts.block == 256 ? 512 : 160;
    f.rows = 77;
    PN_TRY(trials.add(linear_trial(f, bench.seed(facts.type))));
  }
  return trials.finish();
}

Result<void> embed(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t type : {PN_TYPE_F32, PN_TYPE_F16, PN_TYPE_Q8_0}) {
    for (const float scale : {1.0f, 5.5f}) {
      Trial t;
      t.name = fmt::format("EMBED type {} scale {}", type, scale);
      t.vocab = 37;
      t.tolerance = 1e-3;
      const uint16_t table = t.plan.weight(PN_ROLE_TABLE, type, {64, 37},
                                           random_blocks(type, 64, 37, bench.seed(type)));
      const uint16_t out = t.plan.output(64);
      pn_op& op = t.plan.op(PN_OP_EMBED, pn_op_embed{0, scale});
      op.out[0] = out;
      op.weight[0] = table;
      t.outputs = {out};
      PN_TRY(trials.add(std::move(t)));
    }
  }
  return trials.finish();
}

struct MlpForm {
  uint32_t activation = PN_ACT_SILU;
  bool fused = false, branch = false, up = true, bias = false;
  uint32_t type = PN_TYPE_F32;
};

Trial mlp_trial(const MlpForm& f, uint64_t seed) {
  Trial t;
  t.name = fmt::format("MLP activation {}{}{}", f.activation, f.fused ? " fused" : "",
                       f.branch ? " with branch gate" : "");
  const int64_t d = 64, ff = 96;
  Plan& p = t.plan;
  const auto matrix = [&](int64_t cols, int64_t rows, uint64_t s) {
    return p.weight(PN_ROLE_MATRIX, f.type, {cols, rows}, random_blocks(f.type, cols, rows, s));
  };
  const uint16_t in = p.input(64), more = p.input(64), out = p.output(64);
  const uint16_t gate = matrix(d, f.fused ? 2 * ff : ff, seed);
  const uint16_t up = f.fused || !f.up ? uint16_t{PN_NO16} : matrix(d, ff, seed + 1);
  const uint16_t down = matrix(ff, d, seed + 2);
  if (f.bias) {
    const uint16_t gate_bias = p.random_vector(f.fused ? 2 * ff : ff, seed + 3);
    p.weights[gate].bias = gate_bias;
    const uint16_t down_bias = p.random_vector(d, seed + 4, 2);
    p.weights[down].bias = down_bias;
  }
  const uint16_t branch = f.branch ? p.random_vector(d, seed + 5, 0.3f) : uint16_t{PN_NO16};
  pn_op& op =
      p.op(PN_OP_MLP, pn_op_mlp{0, f.fused ? PN_MLP_FUSED : 0u, f.activation, 1.5f, 1.702f, 0.7f});
  op.in[0] = in;
  op.in[1] = more;
  op.out[0] = out;
  op.weight[0] = gate;
  op.weight[1] = up;
  op.weight[2] = down;
  op.weight[3] = branch;
  t.inputs = {in, more};
  t.outputs = {out};
  return t;
}

Result<void> mlp(Bench& bench) {
  Trials trials(bench);
  const MlpForm forms[] = {{},
                           {PN_ACT_GELU_TANH, true, false, true, false},
                           {PN_ACT_SILU, true, false, true, true},
                           {PN_ACT_SILU, false, true, true, true},
                           {PN_ACT_SWIGLU_OAI, false, false, true, true},
                           {PN_ACT_SILU, false, false, false, false},
                           {PN_ACT_SILU, false, false, true, false, PN_TYPE_Q8_0}};
  for (const MlpForm& f : forms) PN_TRY(trials.add(mlp_trial(f, bench.seed(10))));
  return trials.finish();
}

struct MoeForm {
  uint32_t gating = PN_GATE_SOFTMAX;
  bool renormalise = false, fused = false, bias = false;
  bool ties = false;  // experts 1 and 4 are scored alike, and so are 0 and 2
};

void copy_row(Plan* p, uint16_t weight, int64_t from, int64_t to) {
  const auto bytes = static_cast<size_t>(p->weights[weight].shape[0]) * 4;
  std::copy_n(p->bytes[weight].begin() + from * static_cast<int64_t>(bytes), bytes,
              p->bytes[weight].begin() + to * static_cast<int64_t>(bytes));
}

// The routing slot's insides are the plugin's own, so ROUTER shows through EXPERTS.
Trial moe_trial(const MoeForm& f, uint64_t seed) {
  Trial t;
  t.name = fmt::format("ROUTER gating {}{}{} with EXPERTS{}", f.gating,
                       f.renormalise ? " renormalised" : "", f.ties ? " of ties" : "",
                       f.fused ? " fused" : "");
  const int64_t d = 64, ff = 32, experts = 6;
  const uint32_t used = f.ties ? 2 : 3;
  Plan& p = t.plan;
  const uint16_t in = p.input(64), more = p.input(64), out = p.output(64), routing = p.slot(used);
  const uint16_t router = p.matrix(d, experts, seed, 0.2f);
  if (f.ties) copy_row(&p, router, 1, 4), copy_row(&p, router, 0, 2);
  const uint16_t gate = p.stack(d, f.fused ? 2 * ff : ff, experts, seed + 1);
  const uint16_t up = f.fused ? uint16_t{PN_NO16} : p.stack(d, ff, experts, seed + 2);
  const uint16_t down = p.stack(ff, d, experts, seed + 3);
  if (f.bias) {
    const uint16_t bias = p.random_vector(d * experts, seed + 4, 3);
    p.weights[down].bias = bias;
    p.weights[bias].shape[0] = d;
    p.weights[bias].shape[1] = experts;
  }
  pn_op& route = p.op(PN_OP_ROUTER, pn_op_router{0, f.gating, static_cast<uint32_t>(experts), used,
                                                 f.renormalise, 6e-5f, 1.3f, 0});
  route.in[0] = in;
  route.out[0] = routing;
  route.weight[0] = router;
  pn_op& op =
      p.op(PN_OP_EXPERTS, pn_op_mlp{0, f.fused ? PN_MLP_FUSED : 0u, PN_ACT_SILU, 0, 0, 0.9f});
  op.in[0] = in;
  op.in[1] = routing;
  op.in[2] = more;
  op.out[0] = out;
  op.weight[0] = gate;
  op.weight[1] = up;
  op.weight[2] = down;
  t.inputs = {in, more};
  t.outputs = {out};
  return t;
}

Result<void> router(Bench& bench) {
  Trials trials(bench);
  const MoeForm forms[] = {{PN_GATE_SOFTMAX, false, false, false, false},
                           {PN_GATE_SOFTMAX, true, false, false, false},
                           {PN_GATE_SIGMOID, true, false, false, false},
                           {PN_GATE_SOFTMAX_SELECTED, false, false, false, false},
                           {PN_GATE_SOFTMAX, true, false, false, true}};
  for (const MoeForm& f : forms) PN_TRY(trials.add(moe_trial(f, bench.seed(20))));
  return trials.finish();
}

Result<void> experts(Bench& bench) {
  Trials trials(bench);
  PN_TRY(trials.add(moe_trial({PN_GATE_SOFTMAX, true, false, false, false}, bench.seed(21))));
  PN_TRY(trials.add(moe_trial({PN_GATE_SOFTMAX, true, true, false, false}, bench.seed(22))));
  PN_TRY(trials.add(moe_trial({PN_GATE_SOFTMAX, true, false, true, false}, bench.seed(23))));
  return trials.finish();
}

Result<void> delta_net(Bench& bench) {
  Trials trials(bench);
  Trial t;
  t.name = "DELTA_NET";
  Plan& p = t.plan;
  const uint32_t hk = 2, hv = 4, dk = 16, dv = 16, taps = 4;
  const uint16_t u = p.input(2 * hk * dk + hv * dv), z = p.input(hv * dv), b = p.input(hv),
                 a = p.input(hv), out = p.output(hv * dv);
  const uint16_t conv = p.random_vector(int64_t{taps} * p.slots[u].width, bench.seed(30));
  p.weights[conv].role = PN_ROLE_CONV;
  p.weights[conv].shape[0] = taps;
  p.weights[conv].shape[1] = p.slots[u].width;
  const uint16_t dt = p.random_vector(hv, bench.seed(31));
  const std::vector<float> decay = {-0.5f, -1.0f, -0.1f, -2.0f};
  const uint16_t da = p.vector(decay), w = p.random_vector(dv, bench.seed(32));
  p.cache(0, 1, PN_TYPE_F32, 1);
  p.caches[0].kind = PN_CACHE_STATE;
  pn_op_delta_net params{};
  params.key_heads = hk;
  params.value_heads = hv;
  params.key_dim = dk;
  params.value_dim = dv;
  params.taps = taps;
  params.l2_eps = params.norm_eps = 1e-6f;
  pn_op& op = p.op(PN_OP_DELTA_NET, params);
  const uint16_t in[] = {u, z, b, a}, weights[] = {conv, dt, da, w};
  for (int i = 0; i < 4; ++i) op.in[i] = in[i], op.weight[i] = weights[i];
  op.out[0] = out;
  t.inputs = {u, z, b, a};
  t.outputs = {out};
  PN_TRY(trials.add(std::move(t)));
  return trials.finish();
}

constexpr Case kCases[] = {
    {"ops/embed", "EMBED", "rows of the table, scaled", embed},
    {"ops/linear", "LINEAR", "scale, softcap, residual, ragged shapes", linear},
    {"ops/linear_bias", "LINEAR", "bias and weight scale", linear_bias},
    {"ops/linear_types", "LINEAR", "every weight type that the plugin takes", linear_types},
    {"ops/mlp", "MLP", "activations, fused, branch gate, bias, residual", mlp},
    {"ops/router", "ROUTER", "the gatings, renormalised, ties to the lower expert", router},
    {"ops/experts", "EXPERTS", "fused and apart, biases, residual", experts},
    {"ops/delta_net", "DELTA_NET", "recurrent state over several runs", delta_net},
};

}  // namespace

std::span<const Case> matrix_op_cases() { return kCases; }

}  // namespace pn::check
