// SPDX-License-Identifier: Apache-2.0
//
// QKV and ATTENTION of the CPU plugin against their formulas in double, over scattered pages; and
// their bits, which must not depend on how a prompt is cut, who shares the step, or the threads.
//
// Knows no insides of the plugin. The one idea: one Layer describes a case, builds its plan and
// works out its answer, so every option is tried against the same arithmetic.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/cpu_host.h"

using namespace pn::test;

namespace {

using Doubles = std::vector<double>;

struct Layer {
  uint32_t heads = 4, kv = 2, dk = 16, dv = 16, width = 24;
  uint32_t flags = 0, rope = PN_ROPE_NEOX, dims = 12, window = 0, page = 8;
  uint32_t type = PN_TYPE_F32;
  float softcap = 0, temperature = 0;
  bool norms = false, sinks = false, alone = false;  // alone: the ops are not fused
  uint32_t context = 96, lanes = 2;
  std::vector<pn_shape> shapes = {{96, 2, 0, 96}, {1, 1, 0, 96}, {4, 4, 0, 96}};

  bool has(uint32_t flag) const { return (flags & flag) != 0; }
  uint32_t q_rows() const { return heads * dk * (has(PN_QKV_GATED) ? 2 : 1); }
  uint32_t k_rows() const { return kv * dk; }
  uint32_t v_rows() const { return has(PN_QKV_V_IS_K) ? 0 : kv * dv; }

  std::vector<float> wq, wk, wv, bq, qn, kn, freqs, sink;
  uint16_t in = 0, out = 0;

  void fill() {
    wq = random_values(q_rows() * width, 11, 0.5f);
    wk = random_values(k_rows() * width, 12, 0.5f);
    wv = random_values(v_rows() * width, 13, 0.5f);
    bq = random_values(q_rows(), 14);
    qn = random_values(dk, 15);
    kn = random_values(dk, 16);
    sink = random_values(heads, 17);
    freqs.clear();
    for (uint32_t i = 0; i < dims / 2; ++i) freqs.push_back(std::pow(0.2f, static_cast<float>(i)));
  }

  void add_weights(PlanBuilder* plan, uint16_t w[6]) const {
    std::fill(w, w + 6, PN_NO16);
    if (has(PN_QKV_FUSED)) {
      std::vector<float> all = wq;
      all.insert(all.end(), wk.begin(), wk.end());
      all.insert(all.end(), wv.begin(), wv.end());
      w[0] = plan->matrix(width, q_rows() + k_rows() + v_rows(), all);
    } else {
      w[0] = plan->matrix(width, q_rows(), wq);
      const uint16_t bias = plan->vector(bq);
      plan->weights[w[0]].bias = bias;
      w[1] = plan->matrix(width, k_rows(), wk);
      if (!has(PN_QKV_V_IS_K)) w[2] = plan->matrix(width, v_rows(), wv);
    }
    if (norms) w[3] = plan->vector(qn), w[4] = plan->vector(kn);
    if (rope != PN_ROPE_NONE) w[5] = plan->vector(freqs, PN_ROLE_ROPE);
  }

  void add_attention(PlanBuilder* plan, uint16_t q, uint16_t gate, uint16_t to) const {
    pn_op_attention a = {};
    a.query_heads = heads;
    a.kv_heads = kv;
    a.key_dim = dk;
    a.value_dim = dv;
    a.cache_layer = 1;
    a.window = window;
    a.scale = 0.25f;
    a.softcap = softcap;
    const uint16_t sink_of = sinks ? plan->vector(sink) : PN_NO16;
    pn_op& op = plan->op(PN_OP_ATTENTION, a);
    op.in[0] = q;
    op.in[1] = gate;
    op.out[0] = to;
    op.weight[0] = sink_of;
  }

  PlanBuilder plan() {
    fill();
    PlanBuilder b;
    b.lanes = lanes;
    b.shapes = shapes;
    pn_cache cache = {};
    cache.struct_size = sizeof(cache);
    cache.unit_tokens = page;
    cache.layers = 2;  // the first stays empty
    cache.key_type = cache.value_type = type;
    cache.units_per_lane = (context + page - 1) / page;
    b.caches = {cache};
    in = b.slot(width, PN_SLOT_INPUT);
    const uint32_t kind = alone ? PN_SLOT_OUTPUT : PN_SLOT_INTERNAL;
    const uint16_t q = b.slot(heads * dk, kind);
    const uint16_t gate = has(PN_QKV_GATED) ? b.slot(heads * dk) : PN_NO16;
    out = b.slot(heads * dv, PN_SLOT_OUTPUT);
    uint16_t w[6];
    add_weights(&b, w);
    pn_op_qkv p = {};
    p.flags = flags;
    p.query_heads = heads;
    p.kv_heads = kv;
    p.key_dim = dk;
    p.value_dim = dv;
    p.cache_layer = 1;
    p.rope_kind = rope;
    p.rope_dims = dims;
    p.rope_magnitude = 1.2f;
    p.norm_eps = 1e-5f;
    p.q_temperature = temperature;
    p.q_span = 8;
    pn_op& op = b.op(PN_OP_QKV, p);
    op.in[0] = in;
    op.out[0] = q;
    op.out[1] = gate;
    std::copy(w, w + 6, op.weight);
    add_attention(&b, q, gate, out);
    return b;
  }

  // ---- the answer --------------------------------------------------------------------------
  Doubles times(const std::vector<float>& w, uint32_t rows, const float* x) const {
    Doubles y(rows);
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t c = 0; c < width; ++c) y[r] += static_cast<double>(w[r * width + c]) * x[c];
    return y;
  }
  void norm(double* x, uint32_t n, const std::vector<float>* w) const {
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const double inverse = 1 / std::sqrt(sum / n + 1e-5);
    for (uint32_t i = 0; i < n; ++i) x[i] *= inverse * (w == nullptr ? 1 : (*w)[i]);
  }
  void turn(double* x, uint32_t position) const {
    if (rope == PN_ROPE_NONE) return;
    for (uint32_t i = 0; i < dims / 2; ++i) {
      const uint32_t a = rope == PN_ROPE_NORM ? 2 * i : i;
      const uint32_t b = rope == PN_ROPE_NORM ? 2 * i + 1 : i + dims / 2;
      const double angle = static_cast<double>(position) * freqs[i];
      const double c = static_cast<double>(1.2f) * std::cos(angle);
      const double s = static_cast<double>(1.2f) * std::sin(angle);
      const double p = x[a], q = x[b];
      x[a] = p * c - q * s;
      x[b] = p * s + q * c;
    }
  }
  struct Row {
    Doubles q, k, v;
  };
  Row make(const float* x, uint32_t position) const {
    Row row = {times(wq, q_rows(), x), times(wk, k_rows(), x), times(wv, v_rows(), x)};
    if (!has(PN_QKV_FUSED))
      for (uint32_t i = 0; i < q_rows(); ++i) row.q[i] += bq[i];
    if (has(PN_QKV_V_IS_K)) row.v = row.k;
    const uint32_t step = has(PN_QKV_GATED) ? 2 * dk : dk;
    for (uint32_t h = 0; h < heads; ++h) {
      double* q = row.q.data() + h * step;
      if (norms) norm(q, dk, &qn);
      turn(q, position);
      for (uint32_t i = 0; i < dk; ++i)
        q[i] *= 1 + temperature * std::log(1 + std::floor(position / 8.0));
    }
    for (uint32_t g = 0; g < kv; ++g) {
      if (has(PN_QKV_V_NORM)) norm(row.v.data() + g * dv, dv, nullptr);
      if (norms) norm(row.k.data() + g * dk, dk, &kn);
      turn(row.k.data() + g * dk, position);
    }
    return row;
  }
  Doubles attend(const std::vector<Row>& rows, uint32_t t) const {
    Doubles out_row;
    const uint32_t step = has(PN_QKV_GATED) ? 2 * dk : dk;
    for (uint32_t h = 0; h < heads; ++h) {
      const uint32_t g = h / (heads / kv);
      const uint32_t first = window == 0 || t < window ? 0 : t - window + 1;
      Doubles o(dv);
      double sum = sinks ? std::exp(static_cast<double>(sink[h])) : 0;
      for (uint32_t j = first; j <= t; ++j) {
        double s = 0;
        for (uint32_t i = 0; i < dk; ++i) s += rows[t].q[h * step + i] * rows[j].k[g * dk + i];
        s *= 0.25;
        if (softcap != 0) s = softcap * std::tanh(s / softcap);
        sum += std::exp(s);
        for (uint32_t i = 0; i < dv; ++i) o[i] += std::exp(s) * rows[j].v[g * dv + i];
      }
      for (uint32_t i = 0; i < dv; ++i) {
        const double gate =
            has(PN_QKV_GATED) ? 1 / (1 + std::exp(-rows[t].q[h * step + dk + i])) : 1;
        out_row.push_back(o[i] / sum * gate);
      }
    }
    return out_row;
  }
};

// Pages of a lane, scattered: lane l's page i is unit (i * lanes + l) * 7 % units.
void give_pages(Steps* steps, const Layer& layer, uint32_t lane, uint32_t units) {
  const uint32_t pages = (layer.context + layer.page - 1) / layer.page;
  for (uint32_t i = 0; i < pages; ++i)
    steps->pages.push_back({0, lane, i, (i * layer.lanes + lane) * 7 % units, 1, 0});
}
uint32_t units_of(const Layer& layer) {
  uint32_t units = (layer.context + layer.page - 1) / layer.page * layer.lanes + 1;
  while (units % 7 == 0) ++units;
  return units;
}

// One lane's rows through a program in steps of the given sizes; all output rows in order.
std::vector<float> advance(CpuProgram& program, const Layer& layer, const std::vector<float>& x,
                           const std::vector<uint32_t>& cuts) {
  const uint32_t width = layer.width, out_width = layer.heads * layer.dv;
  std::vector<float> out;
  uint32_t position = 0;
  for (uint32_t count : cuts) {
    Steps steps;
    if (position == 0) {
      steps.lane(0).flags = PN_LANE_RESET;
      give_pages(&steps, layer, 0, units_of(layer));
    }
    steps.entry(0, position, std::vector<int32_t>(count, 0));
    memcpy(program.slot(layer.in), x.data() + position * width, count * width * 4);
    std::string message;
    const pn_status status = program.run(steps.view(), count == 1 ? 1 : 0, &message);
    REQUIRE_MESSAGE(status == PN_OK, message);
    const float* rows = program.slot(layer.out);
    out.insert(out.end(), rows, rows + count * out_width);
    position += count;
  }
  return out;
}

double off_by(const std::vector<float>& got, const Layer& layer, const std::vector<float>& x) {
  std::vector<Layer::Row> rows;
  const auto count = static_cast<uint32_t>(x.size() / layer.width);
  for (uint32_t t = 0; t < count; ++t) rows.push_back(layer.make(x.data() + t * layer.width, t));
  double worst = 0, largest = 0;
  for (uint32_t t = 0; t < count; ++t) {
    const Doubles want = layer.attend(rows, t);
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::fabs(got[t * want.size() + i] - want[i]));
      largest = std::max(largest, std::fabs(want[i]));
    }
  }
  return worst / largest;
}

std::vector<uint32_t> cut(uint32_t total, uint32_t size) {
  std::vector<uint32_t> cuts(total / size, size);
  if (total % size != 0) cuts.push_back(total % size);
  return cuts;
}

std::vector<Layer> cases() {
  std::vector<Layer> all;
  const auto add = [&](auto&& change) {
    Layer layer;
    change(layer);
    all.push_back(layer);
  };
  add([](Layer&) {});
  add([](Layer& l) { l.alone = true; });
  add([](Layer& l) { l.flags = PN_QKV_FUSED, l.rope = PN_ROPE_NORM, l.dims = 16; });
  add([](Layer& l) { l.flags = PN_QKV_FUSED | PN_QKV_GATED, l.norms = true; });
  add([](Layer& l) { l.flags = PN_QKV_GATED, l.norms = true, l.alone = true; });
  add([](Layer& l) { l.flags = PN_QKV_V_NORM, l.dv = 20, l.temperature = 0.1f; });
  add([](Layer& l) { l.flags = PN_QKV_V_IS_K | PN_QKV_V_NORM, l.norms = true; });
  add([](Layer& l) { l.flags = PN_QKV_V_IS_K, l.rope = PN_ROPE_NONE; });
  add([](Layer& l) { l.window = 11, l.softcap = 3, l.sinks = true; });
  add([](Layer& l) { l.window = 40, l.page = 16, l.heads = 6, l.kv = 1, l.dk = 17, l.dv = 9; });
  add([](Layer& l) { l.heads = l.kv = 3, l.page = 5; });
  add([](Layer& l) { l.page = 64, l.sinks = true; });
  return all;
}

}  // namespace

TEST_CASE("cpu attention: every option agrees with the formula and no cut changes a bit") {
  const std::vector<HostOptions> modes = {
      {{"numerics", "reference"}, {"threads", "2"}},
      {{"threads", "1"}},
      {{"threads", "5"}},
      {{"threads", "2"}, {"isa", "baseline"}},
  };
  for (const HostOptions& mode : modes) {
    CpuHost host(mode);
    for (Layer& layer : cases()) {
      PlanBuilder plan = layer.plan();
      CpuProgram program(host, plan, units_of(layer));
      const std::vector<float> x = random_values(uint64_t{layer.width} * 83, 21);
      const std::vector<float> whole = advance(program, layer, x, {83});
      CHECK(off_by(whole, layer, x) < 3e-5);
      CHECK(advance(program, layer, x, cut(83, 1)) == whole);
      CHECK(advance(program, layer, x, cut(83, 7)) == whole);
      CHECK(advance(program, layer, x, {64, 19}) == whole);
    }
  }
}

TEST_CASE("cpu attention: an F16 cache rounds keys and values once") {
  CpuHost host(HostOptions{{"threads", "2"}});
  Layer layer;
  layer.type = PN_TYPE_F16;
  PlanBuilder plan = layer.plan();
  CpuProgram program(host, plan, units_of(layer));
  const std::vector<float> x = random_values(uint64_t{layer.width} * 50, 21);
  const std::vector<float> whole = advance(program, layer, x, {50});
  const double off = off_by(whole, layer, x);
  CHECK(off < 2e-3);
  CHECK(off > 1e-6);
  CHECK(advance(program, layer, x, cut(50, 1)) == whole);
}

TEST_CASE("cpu attention: threads and chunk splits change no bit over 2,300 positions") {
  std::vector<float> first;
  for (const char* threads : {"1", "2", "7"}) {
    CpuHost host(HostOptions{{"threads", threads}});
    Layer layer;
    layer.kv = 1;
    layer.context = 2400;
    layer.page = 32;
    layer.lanes = 1;
    layer.shapes = {{512, 1, 0, 2400}, {1, 1, 0, 2400}};
    PlanBuilder plan = layer.plan();
    CpuProgram program(host, plan, units_of(layer));
    const std::vector<float> x = random_values(uint64_t{layer.width} * 2300, 5);
    // The last 40 come one by one: with 7 threads and one head their chunks are split.
    std::vector<uint32_t> cuts = cut(2260, 512);
    cuts.insert(cuts.end(), 40, 1);
    const std::vector<float> got = advance(program, layer, x, cuts);
    if (first.empty()) {
      first = got;
      CHECK(off_by(got, layer, x) < 3e-5);
      CHECK(advance(program, layer, x, cut(2300, 300)) == got);
    }
    CHECK(got == first);
  }
}

TEST_CASE("cpu attention: a lane's rows do not depend on its neighbours or their pages") {
  CpuHost host(HostOptions{{"threads", "3"}});
  Layer layer;
  PlanBuilder plan = layer.plan();
  CpuProgram program(host, plan, units_of(layer));
  const std::vector<float> x = random_values(uint64_t{layer.width} * 30, 1),
                           other = random_values(uint64_t{layer.width} * 30, 2);
  const std::vector<float> alone = advance(program, layer, x, {20, 10});
  const uint32_t out_width = layer.heads * layer.dv;
  Steps steps;
  for (uint32_t lane : {0u, 1u}) {
    steps.lane(lane).flags = PN_LANE_RESET;
    give_pages(&steps, layer, lane, units_of(layer));
  }
  // The neighbour comes first and is longer; then both advance together.
  steps.entry(1, 0, std::vector<int32_t>(25, 0));
  steps.entry(0, 0, std::vector<int32_t>(20, 0));
  float* in = program.slot(layer.in);
  memcpy(in, other.data(), 25 * layer.width * 4);
  memcpy(in + 25 * layer.width, x.data(), 20 * layer.width * 4);
  REQUIRE(program.run(steps.view()) == PN_OK);
  CHECK(memcmp(program.slot(layer.out) + 25 * out_width, alone.data(), 20 * out_width * 4) == 0);
  for (uint32_t t = 20; t < 30; ++t) {
    Steps next;
    next.entry(0, t, {0});
    next.entry(1, t + 5, {0});
    memcpy(in, x.data() + t * layer.width, layer.width * 4);
    memcpy(in + layer.width, other.data() + (t - 5) * layer.width, layer.width * 4);
    REQUIRE(program.run(next.view(), 2) == PN_OK);
    CHECK(memcmp(program.slot(layer.out), alone.data() + t * out_width, out_width * 4) == 0);
  }
}

TEST_CASE("cpu QKV without append reads the keys of an earlier layer") {
  CpuHost host(HostOptions{{"threads", "2"}});
  Layer layer;
  PlanBuilder plan = layer.plan();
  // A second pair of ops: the same queries, nothing appended, so the same answer.
  const uint16_t q = plan.slot(layer.heads * layer.dk);
  const uint16_t again = plan.slot(layer.heads * layer.dv, PN_SLOT_OUTPUT);
  pn_op_qkv p = {};
  memcpy(&p, plan.params[0].data(), sizeof(p));
  p.flags |= PN_QKV_NO_APPEND;
  const pn_op first = plan.ops[0];
  pn_op& op = plan.op(PN_OP_QKV, p);
  memcpy(op.in, first.in, sizeof(first.in));
  op.out[0] = q;
  memcpy(op.weight, first.weight, sizeof(first.weight));
  op.weight[1] = op.weight[2] = op.weight[4] = PN_NO16;
  layer.add_attention(&plan, q, PN_NO16, again);
  CpuProgram program(host, plan, units_of(layer));
  const std::vector<float> x = random_values(uint64_t{layer.width} * 9, 1);
  const std::vector<float> whole = advance(program, layer, x, {9});
  CHECK(memcmp(program.slot(again), whole.data(), whole.size() * 4) == 0);
}

TEST_CASE("cpu APPEND writes what ATTENTION reads") {
  CpuHost host(HostOptions{{"threads", "2"}});
  PlanBuilder plan;
  plan.shapes = {{5, 1, 0, 16}};
  pn_cache cache = {sizeof(pn_cache), PN_CACHE_PAGED, 4, 1, PN_TYPE_F32, PN_TYPE_F32, 4, 0};
  plan.caches = {cache};
  const uint16_t q = plan.slot(6, PN_SLOT_INPUT), k = plan.slot(6, PN_SLOT_INPUT),
                 v = plan.slot(4, PN_SLOT_INPUT), out = plan.slot(4, PN_SLOT_OUTPUT);
  pn_op_heads heads = {};
  heads.heads = 2;
  heads.dim = 3;
  pn_op& append = plan.op(PN_OP_APPEND, heads);
  append.in[0] = k;
  append.in[1] = v;
  pn_op_attention a = {0, 0, 2, 2, 3, 2, 0, 0, 0, 0, 1, 0};
  pn_op& attention = plan.op(PN_OP_ATTENTION, a);
  attention.in[0] = q;
  attention.out[0] = out;
  CpuProgram program(host, plan, 4);
  const std::vector<float> qs = random_values(30, 1), ks = random_values(30, 2),
                           vs = random_values(20, 3);
  memcpy(program.slot(q), qs.data(), 120);
  memcpy(program.slot(k), ks.data(), 120);
  memcpy(program.slot(v), vs.data(), 80);
  Steps steps;
  steps.pages.push_back({0, 0, 0, 2, 2, 0});
  steps.entry(0, 0, {0, 0, 0, 0, 0});
  REQUIRE(program.run(steps.view()) == PN_OK);
  for (int t = 0; t < 5; ++t)
    for (int h = 0; h < 2; ++h) {
      double sum = 0, o[2] = {};
      for (int j = 0; j <= t; ++j) {
        double s = 0;
        for (int i = 0; i < 3; ++i) s += double{qs[t * 6 + h * 3 + i]} * ks[j * 6 + h * 3 + i];
        sum += std::exp(s);
        for (int i = 0; i < 2; ++i) o[i] += std::exp(s) * vs[j * 4 + h * 2 + i];
      }
      for (int i = 0; i < 2; ++i)
        CHECK(program.slot(out)[t * 4 + h * 2 + i] == doctest::Approx(o[i] / sum).epsilon(1e-5));
    }
}
