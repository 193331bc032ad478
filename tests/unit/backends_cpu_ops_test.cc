// SPDX-License-Identifier: Apache-2.0
//
// Each op of the CPU plugin against its formula in double, on ragged shapes, through the ABI.
//
// Knows no insides: a plan of one op between a bound input and a bound output. Both numerics and
// one and three threads, since an op cuts itself differently then.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/cpu_host.h"

using namespace pn::test;

namespace {

using Doubles = std::vector<double>;

Doubles times(const std::vector<float>& w, int64_t rows, int64_t cols, const double* x) {
  Doubles y(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) y[r] += static_cast<double>(w[r * cols + c]) * x[c];
  return y;
}

Doubles rms(const double* x, int64_t n, const std::vector<float>& w, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  Doubles y(x, x + n);
  for (int64_t i = 0; i < n; ++i)
    y[i] = x[i] / std::sqrt(sum / static_cast<double>(n) + eps) * (w.empty() ? 1 : w[i]);
  return y;
}

Doubles doubles(const float* x, int64_t n) { return Doubles(x, x + n); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * x * (1 + 0.044715 * x * x)));
}

// Largest difference over the largest value.
double off_by(const float* got, const Doubles& want) {
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return 1e9;
    worst = std::max(worst, std::fabs(got[i] - want[i]));
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

const HostOptions kModes[] = {
    {{"numerics", "reference"}, {"threads", "1"}},
    {{"numerics", "reference"}, {"threads", "3"}},
    {{"numerics", "fast"}, {"threads", "1"}},
    {{"numerics", "fast"}, {"threads", "3"}},
    {{"numerics", "fast"}, {"threads", "2"}, {"isa", "baseline"}},
};
constexpr double kClose = 2e-5;

// Runs a plan whose input slots hold `inputs`, T tokens of one lane from position 0.
void run_tokens(CpuProgram& program, uint32_t tokens, uint32_t lane = 0) {
  Steps steps;
  for (uint32_t c = 0; c < 1; ++c) steps.entry(lane, 0, std::vector<int32_t>(tokens, 0));
  std::string message;
  const pn_status status = program.run(steps.view(), 0, &message);
  REQUIRE_MESSAGE(status == PN_OK, message);
}

// One op from input slots to one output of `width`, T tokens; returns the output's rows.
struct OneOp {
  PlanBuilder plan;
  std::vector<std::vector<float>> inputs;
  uint16_t out = 0;
  uint32_t tokens = 0;
  explicit OneOp(uint32_t t) : tokens(t) { plan.shapes = {{t, 1, 1, 512}}; }
  uint16_t input(uint32_t width, uint64_t seed) {
    inputs.push_back(random_values(uint64_t{width} * tokens, seed));
    return plan.slot(width, PN_SLOT_INPUT);
  }
  uint16_t output(uint32_t width) { return out = plan.slot(width, PN_SLOT_OUTPUT); }
  std::vector<float> run(CpuHost& host) {
    CpuProgram program(host, plan, 0);
    uint16_t next = 0;
    for (uint16_t s = 0; s < plan.slots.size(); ++s)
      if (plan.slots[s].kind == PN_SLOT_INPUT)
        memcpy(program.slot(s), inputs[next].data(), inputs[next].size() * 4), ++next;
    run_tokens(program, tokens);
    const float* rows = program.slot(out);
    return {rows, rows + uint64_t{tokens} * plan.slots[out].width};
  }
};

}  // namespace

TEST_CASE("cpu NORM: rms, layer and l2, whole rows and groups") {
  for (const auto& mode : kModes) {
    CpuHost host(mode);
    for (uint32_t kind : {PN_NORM_RMS, PN_NORM_LAYER, PN_NORM_L2}) {
      for (uint32_t group : {0u, 11u}) {
        OneOp one(5);
        const uint16_t in = one.input(77, kind + group);
        const int64_t n = group == 0 ? 77 : group;
        const std::vector<float> w = random_values(static_cast<uint64_t>(n), 9);
        const uint16_t weight = one.plan.vector(w);
        pn_op& op = one.plan.op(PN_OP_NORM, pn_op_norm{0, kind, group, 1e-5f});
        op.in[0] = in;
        op.out[0] = one.output(77);
        op.weight[0] = weight;
        const std::vector<float> got = one.run(host);
        Doubles want;
        for (size_t at = 0; at < got.size(); at += static_cast<size_t>(n)) {
          const Doubles x = doubles(one.inputs[0].data() + at, n);
          double mean = 0, squares = 0, variance = 0;
          for (double v : x) mean += v / static_cast<double>(n), squares += v * v;
          for (double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(n);
          for (int64_t i = 0; i < n; ++i) {
            if (kind == PN_NORM_RMS)
              want.push_back(x[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * w[i]);
            if (kind == PN_NORM_LAYER)
              want.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * w[i]);
            if (kind == PN_NORM_L2) want.push_back(x[i] / std::sqrt(squares) * w[i]);
          }
        }
        CHECK(off_by(got.data(), want) < kClose);
      }
    }
  }
}

TEST_CASE("cpu LINEAR: scale, softcap, bias, weight scale, residual, a folded norm") {
  for (const auto& mode : kModes) {
    CpuHost host(mode);
    for (uint32_t tokens : {1u, 2u, 3u, 19u}) {
      OneOp one(tokens);
      const int64_t cols = 75, rows = 53;
      const uint16_t in = one.input(cols, 1), residual = one.input(rows, 2);
      const std::vector<float> w = random_values(cols * rows, 3), bias = random_values(rows, 4),
                               nw = random_values(cols, 5);
      const uint16_t matrix = one.plan.matrix(cols, rows, w);
      const uint16_t bias_of = one.plan.vector(bias), scale_of = one.plan.vector({0.5f});
      one.plan.weights[matrix].bias = bias_of;
      one.plan.weights[matrix].scale = scale_of;
      const uint16_t norm_of = one.plan.vector(nw);
      const uint16_t normed = one.plan.slot(cols);
      pn_op& norm = one.plan.op(PN_OP_NORM, pn_op_norm{0, PN_NORM_RMS, 0, 1e-6f});
      norm.in[0] = in;
      norm.out[0] = normed;
      norm.weight[0] = norm_of;
      pn_op& op = one.plan.op(PN_OP_LINEAR, pn_op_linear{0, 0, 3.0f, 8.0f});
      op.in[0] = normed;
      op.in[1] = residual;
      op.out[0] = one.output(rows);
      op.weight[0] = matrix;
      const std::vector<float> got = one.run(host);
      Doubles want;
      for (uint32_t t = 0; t < tokens; ++t) {
        const Doubles x =
            rms(doubles(one.inputs[0].data() + t * cols, cols).data(), cols, nw, 1e-6);
        const Doubles y = times(w, rows, cols, x.data());
        for (int64_t r = 0; r < rows; ++r)
          want.push_back(8 * std::tanh(3 * (0.5 * y[r] + bias[r]) / 8) +
                         one.inputs[1][t * rows + r]);
      }
      CHECK(off_by(got.data(), want) < kClose);
    }
  }
}

TEST_CASE("cpu MLP: gate and up apart and fused, three activations, branch gate, residual") {
  struct Case {
    uint32_t activation;
    bool fused, branch, up;
  };
  for (const auto& mode : kModes) {
    CpuHost host(mode);
    for (const Case& c : {Case{PN_ACT_SILU, false, false, true},
                          {PN_ACT_GELU_TANH, true, false, true},
                          {PN_ACT_SWIGLU_OAI, false, true, true},
                          {PN_ACT_SILU, false, false, false}}) {
      for (uint32_t tokens : {1u, 6u}) {
        OneOp one(tokens);
        const int64_t d = 40, ff = c.fused ? 48 : 41;
        const uint16_t in = one.input(d, 1), residual = one.input(d, 2);
        const std::vector<float> wg = random_values(d * ff, 3), wu = random_values(d * ff, 4),
                                 wd = random_values(d * ff, 5), bg = random_values(ff, 6),
                                 bd = random_values(d, 7), g = random_values(d, 8);
        std::vector<float> both = wg;
        both.insert(both.end(), wu.begin(), wu.end());
        const uint16_t gate =
            c.fused ? one.plan.matrix(d, 2 * ff, both) : one.plan.matrix(d, ff, wg);
        const uint16_t up = c.fused || !c.up ? PN_NO16 : one.plan.matrix(d, ff, wu);
        const uint16_t down = one.plan.matrix(ff, d, wd);
        if (!c.fused) {
          const uint16_t gate_bias = one.plan.vector(bg);
          one.plan.weights[gate].bias = gate_bias;
        }
        const uint16_t down_bias = one.plan.vector(bd);
        one.plan.weights[down].bias = down_bias;
        const uint16_t branch = c.branch ? one.plan.vector(g) : PN_NO16;
        pn_op& op = one.plan.op(
            PN_OP_MLP, pn_op_mlp{0, c.fused ? PN_MLP_FUSED : 0u, c.activation, 1.5f, 1.702f, 0.7f});
        op.in[0] = in;
        op.in[1] = residual;
        op.out[0] = one.output(d);
        op.weight[0] = gate;
        op.weight[1] = up;
        op.weight[2] = down;
        op.weight[3] = branch;
        const std::vector<float> got = one.run(host);
        Doubles want;
        for (uint32_t t = 0; t < tokens; ++t) {
          const Doubles x = doubles(one.inputs[0].data() + t * d, d);
          Doubles h = times(wg, ff, d, x.data());
          const Doubles u = times(wu, ff, d, x.data());
          for (int64_t i = 0; i < ff; ++i) {
            const double a = h[i] + (c.fused ? 0 : bg[i]);
            if (c.activation == PN_ACT_SILU) h[i] = silu(a) * (c.up ? u[i] : 1);
            if (c.activation == PN_ACT_GELU_TANH) h[i] = gelu(a) * u[i];
            if (c.activation == PN_ACT_SWIGLU_OAI) {
              const double low = std::min(a, 1.5);
              h[i] = low * sigmoid(1.702 * low) * (std::clamp(u[i], -1.5, 1.5) + 1);
            }
          }
          const Doubles y = times(wd, d, ff, h.data());
          double weight = 0.7, dot = 0;
          for (int64_t i = 0; i < d; ++i) dot += static_cast<double>(g[i]) * x[i];
          if (c.branch) weight *= sigmoid(dot);
          for (int64_t r = 0; r < d; ++r)
            want.push_back(weight * (y[r] + bd[r]) + one.inputs[1][t * d + r]);
        }
        CHECK(off_by(got.data(), want) < kClose);
      }
    }
  }
}

TEST_CASE("cpu ROUTER and EXPERTS: each gating, biases, fused stacks, one row and many") {
  struct Case {
    uint32_t gating;
    bool renormalise, fused;
  };
  for (const auto& mode : kModes) {
    CpuHost host(mode);
    for (const Case& c : {Case{PN_GATE_SOFTMAX, true, false},
                          {PN_GATE_SIGMOID, false, true},
                          {PN_GATE_SOFTMAX_SELECTED, false, false}}) {
      for (uint32_t tokens : {1u, 9u}) {
        OneOp one(tokens);
        const int64_t d = 33, ff = c.fused ? 32 : 21, experts = 7, used = 3;
        const uint16_t in = one.input(d, 1), residual = one.input(d, 2);
        const std::vector<float> wr = random_values(d * experts, 3),
                                 wg = random_values(d * ff * experts, 4),
                                 wu = random_values(d * ff * experts, 5),
                                 wd = random_values(d * ff * experts, 6),
                                 bd = random_values(d * experts, 7);
        std::vector<float> both;
        for (int64_t e = 0; e < experts; ++e) {
          both.insert(both.end(), wg.begin() + e * d * ff, wg.begin() + (e + 1) * d * ff);
          both.insert(both.end(), wu.begin() + e * d * ff, wu.begin() + (e + 1) * d * ff);
        }
        const uint16_t router = one.plan.matrix(d, experts, wr);
        const uint16_t gate = c.fused ? one.plan.matrix(d, 2 * ff, both, PN_ROLE_EXPERTS, experts)
                                      : one.plan.matrix(d, ff, wg, PN_ROLE_EXPERTS, experts);
        const uint16_t up =
            c.fused ? PN_NO16 : one.plan.matrix(d, ff, wu, PN_ROLE_EXPERTS, experts);
        const uint16_t down = one.plan.matrix(ff, d, wd, PN_ROLE_EXPERTS, experts);
        const uint16_t bias = one.plan.vector(bd);
        one.plan.weights[down].bias = bias;
        const uint16_t routing = one.plan.slot(used);
        pn_op& route = one.plan.op(
            PN_OP_ROUTER, pn_op_router{0, c.gating, static_cast<uint32_t>(experts),
                                       static_cast<uint32_t>(used), c.renormalise, 6e-5f, 1.3f, 0});
        route.in[0] = in;
        route.out[0] = routing;
        route.weight[0] = router;
        pn_op& op = one.plan.op(PN_OP_EXPERTS,
                                pn_op_mlp{0, c.fused ? PN_MLP_FUSED : 0u, PN_ACT_SILU, 0, 0, 1.0f});
        op.in[0] = in;
        op.in[1] = routing;
        op.in[2] = residual;
        op.out[0] = one.output(d);
        op.weight[0] = gate;
        op.weight[1] = up;
        op.weight[2] = down;
        const std::vector<float> got = one.run(host);
        Doubles want;
        for (uint32_t t = 0; t < tokens; ++t) {
          const Doubles x = doubles(one.inputs[0].data() + t * d, d);
          Doubles p = times(wr, experts, d, x.data());
          double sum = 0;
          if (c.gating == PN_GATE_SOFTMAX) {
            for (double v : p) sum += std::exp(v);
            for (double& v : p) v = std::exp(v) / sum;
          }
          if (c.gating == PN_GATE_SIGMOID)
            for (double& v : p) v = sigmoid(v);
          std::vector<std::pair<double, int>> best;
          for (int e = 0; e < experts; ++e) best.push_back({-p[e], e});
          std::sort(best.begin(), best.end());
          double total = 0;
          for (int k = 0; k < used; ++k) {
            best[k].first *= -1;
            if (c.gating == PN_GATE_SOFTMAX_SELECTED) best[k].first = std::exp(best[k].first);
            total += best[k].first;
          }
          Doubles y(d);
          for (int k = 0; k < used; ++k) {
            const int e = best[k].second;
            const bool share = c.renormalise || c.gating == PN_GATE_SOFTMAX_SELECTED;
            const double weight = 1.3 * best[k].first / (share ? total : 1);
            const std::vector<float> eg(wg.begin() + e * d * ff, wg.begin() + (e + 1) * d * ff),
                eu(wu.begin() + e * d * ff, wu.begin() + (e + 1) * d * ff),
                ed(wd.begin() + e * d * ff, wd.begin() + (e + 1) * d * ff);
            Doubles h = times(eg, ff, d, x.data());
            const Doubles u = times(eu, ff, d, x.data());
            for (int64_t i = 0; i < ff; ++i) h[i] = silu(h[i]) * u[i];
            const Doubles part = times(ed, d, ff, h.data());
            for (int64_t i = 0; i < d; ++i) y[i] += weight * (part[i] + bd[e * d + i]);
          }
          for (int64_t i = 0; i < d; ++i) want.push_back(y[i] + one.inputs[1][t * d + i]);
        }
        CHECK(off_by(got.data(), want) < kClose);
      }
    }
  }
}

TEST_CASE("cpu EMBED and ROWS: the asked rows of the asked tokens, scaled") {
  for (const auto& mode : kModes) {
    CpuHost host(mode);
    PlanBuilder plan;
    plan.shapes = {{8, 2, 3, 64}};
    const std::vector<float> w = random_values(24 * 37, 3);
    const uint16_t table = plan.matrix(24, 37, w, PN_ROLE_TABLE);
    const uint16_t x = plan.slot(24), out = plan.slot(24, PN_SLOT_OUTPUT, PN_ROWS_OUT);
    pn_op& embed = plan.op(PN_OP_EMBED, pn_op_embed{0, 2.0f});
    embed.out[0] = x;
    embed.weight[0] = table;
    pn_op& rows = plan.op(PN_OP_ROWS);
    rows.in[0] = x;
    rows.out[0] = out;
    pn_op& emit = plan.op(PN_OP_EMIT, pn_op_emit{0, 0});
    emit.in[1] = out;
    plan.lanes = 2;
    CpuProgram program(host, plan);
    Steps steps;
    steps.entry(1, 5, {3, 36, 0});
    steps.entry(0, 0, {9, 11});
    steps.row(1, 1, PN_ROW_HIDDEN, program.results().slice(0, 96));
    steps.row(0, 0, 0, {});
    steps.row(0, 1, PN_ROW_HIDDEN, program.results().slice(128, 96));
    REQUIRE(program.run(steps.view()) == PN_OK);
    const auto* hidden = reinterpret_cast<const float*>(program.results().host);
    const int ids[] = {11, 3, 36};
    for (int r = 0; r < 3; ++r)
      for (int i = 0; i < 24; ++i) CHECK(program.slot(out)[r * 24 + i] == 2 * w[ids[r] * 24 + i]);
    for (int i = 0; i < 24; ++i) {
      CHECK(hidden[i] == 2 * w[11 * 24 + i]);
      CHECK(hidden[32 + i] == 2 * w[36 * 24 + i]);
    }
  }
}

TEST_CASE("cpu primitives: BINARY UNARY GLU COLUMNS CONCAT ROPE") {
  for (const auto& mode : kModes) {
    CpuHost host(mode);
    OneOp one(7);
    const uint16_t a = one.input(20, 1), b = one.input(20, 2), s = one.input(1, 3);
    const std::vector<float> freqs = {1.0f, 0.3f, 0.01f};
    const uint16_t rope_w = one.plan.vector(freqs, PN_ROLE_ROPE);
    const uint16_t added = one.plan.slot(20), scaled = one.plan.slot(20), unary = one.plan.slot(20),
                   glu = one.plan.slot(20), columns = one.plan.slot(9), turned = one.plan.slot(20);
    const auto chain = [&](pn_op& op, uint16_t x, uint16_t y, uint16_t out) {
      op.in[0] = x;
      op.in[1] = y;
      op.out[0] = out;
    };
    chain(one.plan.op(PN_OP_BINARY, pn_op_elementwise{0, PN_BINARY_ADD, 0.5f, 0}), a, b, added);
    chain(one.plan.op(PN_OP_BINARY, pn_op_elementwise{0, PN_BINARY_MUL, 1, 0}), added, s, scaled);
    chain(one.plan.op(PN_OP_UNARY, pn_op_elementwise{0, PN_ACT_TANH, 2, 0.4f}), a, PN_NO16, unary);
    chain(one.plan.op(PN_OP_GLU, pn_op_elementwise{0, PN_ACT_SIGMOID, 1, 0}), scaled, unary, glu);
    chain(one.plan.op(PN_OP_COLUMNS, pn_op_columns{0, 4}), glu, PN_NO16, columns);
    pn_op& rope = one.plan.op(PN_OP_ROPE, pn_op_heads{0, 2, 10, PN_ROPE_NEOX, 6, 0, 0, 0, 0, 1.1f});
    chain(rope, b, PN_NO16, turned);
    rope.weight[0] = rope_w;
    chain(one.plan.op(PN_OP_CONCAT), columns, turned, one.output(29));
    const std::vector<float> got = one.run(host);
    Doubles want;
    for (uint32_t t = 0; t < 7; ++t) {
      const float* x = one.inputs[0].data() + t * 20;
      const float* y = one.inputs[1].data() + t * 20;
      for (int i = 4; i < 13; ++i)
        want.push_back(sigmoid(0.5 * (static_cast<double>(x[i]) + y[i]) * one.inputs[2][t]) * 2 *
                       std::tanh(std::clamp<double>(x[i], -0.4f, 0.4f)));
      for (int h = 0; h < 2; ++h) {
        double head[10];
        for (int i = 0; i < 10; ++i) head[i] = y[h * 10 + i];
        for (int i = 0; i < 3; ++i) {
          const double angle = static_cast<double>(t) * freqs[i], c = 1.1 * std::cos(angle),
                       sn = 1.1 * std::sin(angle), p = head[i], q = head[i + 3];
          head[i] = p * c - q * sn;
          head[i + 3] = p * sn + q * c;
        }
        want.insert(want.end(), head, head + 10);
      }
    }
    CHECK(off_by(got.data(), want) < kClose);
  }
}

TEST_CASE("cpu bound slots in BF16 and F16 are read and written") {
  CpuHost host(HostOptions{{"threads", "2"}});
  for (uint32_t type : {uint32_t{PN_TYPE_BF16}, uint32_t{PN_TYPE_F16}}) {
    PlanBuilder plan;
    plan.shapes = {{3, 1, 1, 16}};
    const uint16_t in = plan.slot(4, PN_SLOT_INPUT, PN_ROWS_TOKENS, type);
    const uint16_t out = plan.slot(4, PN_SLOT_OUTPUT, PN_ROWS_TOKENS, type);
    pn_op& op = plan.op(PN_OP_UNARY, pn_op_elementwise{0, PN_ACT_NONE, 2, 0});
    op.in[0] = in;
    op.out[0] = out;
    CpuProgram program(host, plan);
    auto* from = reinterpret_cast<uint16_t*>(program.slot(in));
    auto* to = reinterpret_cast<uint16_t*>(program.slot(out));
    // 1.5 in both types; doubling adds one to the exponent.
    const uint16_t value = type == PN_TYPE_BF16 ? 0x3fc0 : 0x3e00;
    for (int i = 0; i < 12; ++i) from[i] = value;
    run_tokens(program, 3);
    for (int i = 0; i < 12; ++i) CHECK(to[i] == value + (type == PN_TYPE_BF16 ? 0x80 : 0x400));
  }
}
