// SPDX-License-Identifier: Apache-2.0
//
// Plans of llama models: the ops in order, each slot written once, each weight where it belongs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "models/arch/plan.h"
#include "models/gguf/reader.h"
#include "models/quant/dequantise.h"
#include "tests/support/random_model.h"

namespace {

using pn::arch::Plan;
using pn::arch::PlanOptions;
using pn::test::ModelSpec;

struct Planned {
  std::vector<std::byte> image;
  std::shared_ptr<const pn::arch::Model> model;
  Plan plan;
};

PlanOptions options() {
  PlanOptions o;
  o.lanes = 4;
  o.context = 500;
  o.page_tokens = 32;
  o.shapes = {{1, 1, 1, 500}, {64, 4, 4, 500}};
  return o;
}

Planned plan_of(const ModelSpec& spec, const PlanOptions& o = options()) {
  Planned p;
  auto writer = pn::test::random_model(spec);
  REQUIRE(writer);
  p.image = writer->image();
  auto file = pn::gguf::Reader().from_memory(p.image, "image");
  REQUIRE(file);
  auto model = pn::arch::Model::load(*file);
  REQUIRE_MESSAGE(model, (model ? "" : model.error().message));
  p.model = *model;
  auto plan = p.model->plan(o);
  REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message));
  p.plan = std::move(*plan);
  return p;
}

template <typename T>
const T& params(const pn_op& op) {
  REQUIRE(op.params != nullptr);
  const T* p = static_cast<const T*>(op.params);
  REQUIRE(p->struct_size == sizeof(T));
  return *p;
}

// What every plan must hold, whatever the model.
void check_structure(const Planned& p) {
  const Plan& plan = p.plan;
  pn_plan view = plan.view();
  CHECK(view.struct_size == sizeof view);
  CHECK(view.op_count == plan.ops.size());
  CHECK(view.ops == plan.ops.data());
  CHECK(view.weight_count == plan.sources.size());
  std::vector<int> written(plan.slots.size(), 0);
  std::vector<bool> weight_used(plan.weights.size(), false);
  auto use = [&](uint16_t w) {
    if (w == PN_NO16) return;
    REQUIRE(w < plan.weights.size());
    weight_used[w] = true;
  };
  for (const pn_op& op : plan.ops) {
    CHECK(op.struct_size == sizeof op);
    CHECK(op.rev == 0);
    for (uint16_t in : op.in)
      if (in != PN_NO16) {
        REQUIRE(in < written.size());
        CHECK(written[in] == 1);  // before it is read
      }
    for (uint16_t out : op.out)
      if (out != PN_NO16) {
        REQUIRE(out < written.size());
        ++written[out];
      }
    for (uint16_t w : op.weight) use(w);
  }
  CHECK(std::all_of(written.begin(), written.end(), [](int n) { return n == 1; }));
  std::set<std::string> names;
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const pn_weight& w = plan.weights[i];
    const pn::arch::Source& s = plan.sources[i];
    CHECK(w.struct_size == sizeof w);
    use(w.bias);
    use(w.scale);
    CHECK(w.adapter_a == PN_NO16);
    CHECK(names.insert(s.name).second);  // one weight a tensor
    int64_t elements = w.shape[0] * w.shape[1] * w.shape[2] * w.shape[3];
    if (s.tensor != nullptr) {
      CHECK(std::equal(w.shape, w.shape + 4, s.tensor->shape.begin()));
      CHECK(w.source_type == s.tensor->type);
    } else {
      CHECK(elements == static_cast<int64_t>(s.computed.size()));
      CHECK(w.source_type == PN_TYPE_F32);
    }
    if (w.role == PN_ROLE_VECTOR) CHECK(w.source_type == PN_TYPE_F32);
  }
  CHECK(std::all_of(weight_used.begin(), weight_used.end(), [](bool b) { return b; }));
}

std::vector<uint16_t> kinds(const Plan& plan) {
  std::vector<uint16_t> out;
  for (const pn_op& op : plan.ops) out.push_back(op.op);
  return out;
}

const pn::arch::Source& source(const Plan& plan, uint16_t weight) {
  REQUIRE(weight < plan.sources.size());
  return plan.sources[weight];
}

}  // namespace

TEST_CASE("a dense model: ops, slots and weights") {
  Planned p = plan_of({});
  check_structure(p);
  const Plan& plan = p.plan;
  std::vector<uint16_t> wanted = {PN_OP_EMBED};
  for (int i = 0; i < 2; ++i)
    for (uint16_t op :
         {PN_OP_NORM, PN_OP_QKV, PN_OP_ATTENTION, PN_OP_LINEAR, PN_OP_NORM, PN_OP_MLP})
      wanted.push_back(op);
  for (uint16_t op : {PN_OP_ROWS, PN_OP_NORM, PN_OP_LINEAR, PN_OP_EMIT}) wanted.push_back(op);
  CHECK(kinds(plan) == wanted);
  CHECK(plan.lanes == 4);
  CHECK(plan.shapes.size() == 2);

  const pn_op& qkv = plan.ops[8];
  CHECK(qkv.layer == 1);
  const auto& q = params<pn_op_qkv>(qkv);
  CHECK(q.flags == 0);
  CHECK(q.query_heads == 8);
  CHECK(q.kv_heads == 4);
  CHECK(q.key_dim == 32);
  CHECK(q.cache_layer == 1);
  CHECK(q.rope_kind == PN_ROPE_NORM);
  CHECK(q.rope_dims == 32);
  CHECK(q.rope_magnitude == 1);
  CHECK(source(plan, qkv.weight[0]).name == "blk.1.attn_q.weight");
  CHECK(source(plan, qkv.weight[1]).name == "blk.1.attn_k.weight");
  CHECK(source(plan, qkv.weight[2]).name == "blk.1.attn_v.weight");
  CHECK(qkv.weight[3] == PN_NO16);
  CHECK(qkv.weight[4] == PN_NO16);
  CHECK(source(plan, qkv.weight[5]).name == "rope");
  CHECK(plan.ops[2].weight[5] == qkv.weight[5]);  // one table for all layers
  CHECK(plan.weights[qkv.weight[5]].role == PN_ROLE_ROPE);
  CHECK(plan.sources[qkv.weight[5]].computed.size() == 16);

  const pn_op& mix = plan.ops[9];
  const auto& a = params<pn_op_attention>(mix);
  CHECK(a.scale == doctest::Approx(1 / std::sqrt(32.0)));
  CHECK(a.window == 0);
  CHECK(mix.in[0] == qkv.out[0]);
  const pn_op& out = plan.ops[10];
  CHECK(params<pn_op_linear>(out).scale == 1);
  CHECK(out.in[0] == mix.out[0]);
  CHECK(out.in[1] == plan.ops[6].out[0]);  // the residual: what layer 0 gave
  const pn_op& mlp = plan.ops[12];
  CHECK(params<pn_op_mlp>(mlp).activation == PN_ACT_SILU);
  CHECK(params<pn_op_mlp>(mlp).scale == 1);
  CHECK(mlp.in[1] == out.out[0]);
  CHECK(source(plan, mlp.weight[0]).name == "blk.1.ffn_gate.weight");
  CHECK(source(plan, mlp.weight[1]).name == "blk.1.ffn_up.weight");
  CHECK(source(plan, mlp.weight[2]).name == "blk.1.ffn_down.weight");

  const pn_op& emit = plan.ops.back();
  CHECK(params<pn_op_emit>(emit).vocab == 512);
  CHECK(plan.slots[emit.in[0]].width == 512);
  CHECK(plan.slots[emit.in[0]].rows == PN_ROWS_OUT);
  CHECK(plan.slots[emit.in[1]].width == 256);
  CHECK(plan.slots[plan.ops[0].out[0]].rows == PN_ROWS_TOKENS);
  CHECK(plan.weights[plan.ops[0].weight[0]].role == PN_ROLE_TABLE);
  CHECK(params<pn_op_embed>(plan.ops[0]).scale == 1);
  CHECK(params<pn_op_norm>(plan.ops[1]).eps == doctest::Approx(1e-5));

  REQUIRE(plan.caches.size() == 1);
  CHECK(plan.caches[0].layers == 2);
  CHECK(plan.caches[0].unit_tokens == 32);
  CHECK(plan.caches[0].units_per_lane == 16);  // 500 tokens in pages of 32
}

TEST_CASE("hyper-parameters, and the parameter count of a known model") {
  auto spec = pn::test::preset("minicpm5");
  REQUIRE(spec);
  auto writer = pn::test::random_model(*spec);
  REQUIRE(writer);
  uint64_t elements = 0;
  for (const auto& t : writer->tensors) {
    uint64_t n = 1;
    for (int64_t d : t.shape) n *= static_cast<uint64_t>(d);
    elements += n;
  }
  CHECK(elements == 1080632832);

  Planned p = plan_of({});
  const pn::arch::HyperParams& h = p.model->params();
  CHECK(h.architecture == "llama");
  CHECK(h.embed == 256);
  CHECK(h.ff == 512);
  CHECK(h.vocab == 512);
  CHECK(h.context == 1024);
  CHECK(h.parameters == 1443072);
  CHECK(!h.tied);
}

TEST_CASE("tied embeddings are one weight in two places") {
  ModelSpec spec;
  spec.tied = true;
  Planned p = plan_of(spec);
  check_structure(p);
  CHECK(p.model->params().tied);
  uint16_t table = p.plan.ops[0].weight[0];
  CHECK(p.plan.ops[p.plan.ops.size() - 2].weight[0] == table);
  CHECK(p.plan.weights[table].role == PN_ROLE_TIED);
}

TEST_CASE("biases hang on their weights, heads may be wider than D / H, qkv may be one tensor") {
  for (bool fused : {false, true}) {
    ModelSpec spec;
    spec.biases = true;
    spec.key_dim = 64;
    spec.fused_qkv = fused;
    Planned p = plan_of(spec);
    check_structure(p);
    const pn_op& qkv = p.plan.ops[2];
    const auto& q = params<pn_op_qkv>(qkv);
    CHECK(q.flags == (fused ? PN_QKV_FUSED : 0u));
    CHECK(q.key_dim == 64);
    const pn_weight& w = p.plan.weights[qkv.weight[0]];
    int64_t rows = fused ? 8 * 64 + 2 * 4 * 64 : 8 * 64;
    CHECK(w.shape[1] == rows);
    REQUIRE(w.bias != PN_NO16);
    CHECK(p.plan.weights[w.bias].shape[0] == rows);
    CHECK(p.plan.weights[w.bias].role == PN_ROLE_VECTOR);
    CHECK((qkv.weight[1] == PN_NO16) == fused);
    CHECK(source(p.plan, qkv.weight[5]).name == "rope");
    CHECK(p.plan.slots[qkv.out[0]].width == 8 * 64);
    const pn_weight& down = p.plan.weights[p.plan.ops[6].weight[2]];
    CHECK(source(p.plan, down.bias).name == "blk.0.ffn_down.bias");
    CHECK(p.plan.weights[p.plan.ops[4].weight[0]].bias != PN_NO16);
  }
}

TEST_CASE("experts: router and stacks with their biases and scale") {
  ModelSpec spec;
  spec.experts = 4;
  spec.experts_used = 2;
  spec.biases = true;
  spec.expert_scale = 2.5f;
  Planned p = plan_of(spec);
  check_structure(p);
  const pn_op &router = p.plan.ops[6], &experts = p.plan.ops[7];
  REQUIRE(router.op == PN_OP_ROUTER);
  REQUIRE(experts.op == PN_OP_EXPERTS);
  const auto& r = params<pn_op_router>(router);
  CHECK(r.gating == PN_GATE_SOFTMAX);
  CHECK(r.experts == 4);
  CHECK(r.used == 2);
  CHECK(r.renormalise == 1);
  CHECK(r.scale == 2.5f);
  CHECK(experts.in[0] == router.in[0]);
  CHECK(experts.in[1] == router.out[0]);
  CHECK(experts.in[2] == p.plan.ops[4].out[0]);
  const pn_weight& down = p.plan.weights[experts.weight[2]];
  CHECK(down.role == PN_ROLE_EXPERTS);
  CHECK(down.shape[2] == 4);
  CHECK(p.plan.weights[down.bias].shape[0] == 256);
  CHECK(p.plan.weights[down.bias].shape[1] == 4);
  CHECK(p.plan.weights[router.weight[0]].shape[1] == 4);
}

TEST_CASE("block scales hang on their weights") {
  auto writer = pn::test::random_model({});
  REQUIRE(writer);
  writer->values("blk.0.ffn_up.scale", {1}, {0.5f});
  std::vector<std::byte> image = writer->image();
  auto file = pn::gguf::Reader().from_memory(image, "image");
  REQUIRE(file);
  auto model = pn::arch::Model::load(*file);
  REQUIRE(model);
  auto plan = (*model)->plan(options());
  REQUIRE(plan);
  const pn_weight& up = plan->weights[plan->ops[6].weight[1]];
  CHECK(source(*plan, up.scale).name == "blk.0.ffn_up.scale");
}

TEST_CASE("norms of another type are converted") {
  ModelSpec spec;
  spec.norm_type = "F16";
  Planned p = plan_of(spec);
  check_structure(p);
  const pn::arch::Source& s = source(p.plan, p.plan.ops[1].weight[0]);
  CHECK(s.name == "blk.0.attn_norm.weight");
  REQUIRE(s.tensor == nullptr);
  std::vector<float> wanted(256);
  const pn::gguf::Tensor* t = p.model->file().tensor("blk.0.attn_norm.weight");
  REQUIRE(pn::quant::dequantise(t->type, t->data, wanted));
  CHECK(s.computed == wanted);
}

TEST_CASE("rope scaling reaches the table: linear, llama3, longrope by context, yarn's magnitude") {
  auto table = [](pn::test::RopeScaling kind, uint32_t context) {
    ModelSpec spec;
    spec.rope_scaling = kind;
    PlanOptions o = options();
    o.context = context;
    o.shapes = {{1, 1, 1, 1}};
    Planned p = plan_of(spec, o);
    check_structure(p);
    float magnitude = params<pn_op_qkv>(p.plan.ops[2]).rope_magnitude;
    return std::pair(source(p.plan, p.plan.ops[2].weight[5]).computed, magnitude);
  };
  using pn::test::RopeScaling;
  auto plain = table(RopeScaling::none, 64).first;
  auto linear = table(RopeScaling::linear, 64).first;
  auto llama3 = table(RopeScaling::llama3, 64).first;
  auto near = table(RopeScaling::longrope, 256), far = table(RopeScaling::longrope, 257);
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(plain[i] == doctest::Approx(std::pow(10000.0, -2.0 * double(i) / 32)).epsilon(1e-6));
    CHECK(linear[i] == doctest::Approx(plain[i] / 4).epsilon(1e-6));
    CHECK(near.first[i] == doctest::Approx(plain[i] / 1.05).epsilon(1e-6));
    CHECK(far.first[i] == doctest::Approx(plain[i] / float(1 + i)).epsilon(1e-6));
  }
  CHECK(llama3.front() == plain.front());
  CHECK(llama3.back() == doctest::Approx(plain.back() / 8).epsilon(1e-6));
  CHECK(near.second == doctest::Approx(1.19));
  CHECK(table(RopeScaling::yarn, 64).second == doctest::Approx(1 + 0.1 * std::log(4.0)));
}
