// SPDX-License-Identifier: Apache-2.0
//
// program_query and program_create of the CPU plugin: spans and reasons, footprints, and plans or
// bindings that are refused.
//
// Knows the ABI only.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>

#include "tests/support/cpu_host.h"

using namespace pn::test;

namespace {

// NORM, QKV, ATTENTION, LINEAR with a residual.
PlanBuilder layer_plan() {
  PlanBuilder plan;
  plan.shapes = {{1, 1, 0, 64}, {32, 2, 0, 64}};
  plan.lanes = 2;
  plan.caches = {{sizeof(pn_cache), PN_CACHE_PAGED, 16, 1, PN_TYPE_F16, PN_TYPE_F16, 4, 0}};
  const uint16_t x = plan.slot(64, PN_SLOT_INPUT), normed = plan.slot(64), q = plan.slot(64),
                 attended = plan.slot(64), out = plan.slot(64, PN_SLOT_OUTPUT);
  const uint16_t nw = plan.vector(random_values(64, 1)),
                 wq = plan.matrix(64, 64, random_values(4096, 2)),
                 wk = plan.matrix(64, 32, random_values(2048, 3)),
                 wv = plan.matrix(64, 32, random_values(2048, 4)),
                 wo = plan.matrix(64, 64, random_values(4096, 5));
  pn_op& norm = plan.op(PN_OP_NORM, pn_op_norm{0, PN_NORM_RMS, 0, 1e-5f});
  norm.in[0] = x;
  norm.out[0] = normed;
  norm.weight[0] = nw;
  pn_op_qkv p = {};
  p.query_heads = 4;
  p.kv_heads = 2;
  p.key_dim = p.value_dim = 16;
  pn_op& qkv = plan.op(PN_OP_QKV, p);
  qkv.in[0] = normed;
  qkv.out[0] = q;
  qkv.weight[0] = wq;
  qkv.weight[1] = wk;
  qkv.weight[2] = wv;
  pn_op& attention =
      plan.op(PN_OP_ATTENTION, pn_op_attention{0, 0, 4, 2, 16, 16, 0, 0, 0, 0, 0.25f, 0});
  attention.in[0] = q;
  attention.out[0] = attended;
  pn_op& linear = plan.op(PN_OP_LINEAR, pn_op_linear{0, 0, 1, 0});
  linear.in[0] = attended;
  linear.in[1] = x;
  linear.out[0] = out;
  linear.weight[0] = wo;
  return plan;
}

template <typename T>
T& params(PlanBuilder& plan, size_t op) {
  return *reinterpret_cast<T*>(plan.params[op].data());
}

}  // namespace

TEST_CASE("cpu query: fused spans, numerics, footprints and costs") {
  CpuHost host(HostOptions{{"threads", "2"}});
  PlanBuilder plan = layer_plan();
  pn_report report;
  std::vector<pn_span> spans;
  REQUIRE(query(host, plan, &report, &spans) == PN_OK);
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].granularity == PN_SPAN_BLOCK);  // norm, qkv, attention
  CHECK(spans[0].first_op == 0);
  CHECK(spans[0].op_count == 3);
  CHECK(spans[0].numerics == 7);
  CHECK(spans[1].granularity == PN_SPAN_OP);
  CHECK(spans[1].first_op == 3);
  CHECK(report.token_multiple == 1);
  CHECK(report.program_bytes == 0);
  CHECK(report.program_host_bytes > 0);
  CHECK(report.step_bytes_max >= 32 * 4 + 2 * 32);

  uint64_t unit_bytes[1] = {};
  pn_cost costs[2] = {};
  costs[0].struct_size = costs[1].struct_size = sizeof(pn_cost);
  report = {};
  report.struct_size = sizeof(report);
  report.unit_bytes = unit_bytes;
  report.costs = costs;
  const pn_plan view = plan.view();
  REQUIRE(host.api().program_query(host.device(), &view, &report, nullptr) == PN_OK);
  CHECK(report.span_count == 2);
  CHECK(unit_bytes[0] == 2 * 16 * 2 * 16 * 2);  // k and v, 16 tokens, 2 heads of 16, f16
  CHECK(costs[0].predicted_ns > 0);
  CHECK(costs[1].device_bytes >= costs[0].device_bytes);
  CHECK(costs[1].predicted_ns >= costs[0].predicted_ns);
  pn_span one = {};
  one.struct_size = sizeof(one);
  report.spans = &one;
  report.span_count = 1;
  CHECK(host.api().program_query(host.device(), &view, &report, nullptr) == PN_INCOMPLETE);
  CHECK(report.span_count == 2);
}

TEST_CASE("cpu query: what cannot be done is a span with a reason, and create refuses it") {
  CpuHost host(HostOptions{{"threads", "1"}});
  struct Case {
    const char* says;
    std::function<void(PlanBuilder&)> spoil;
  };
  const Case cases[] = {
      {"op 99, revision 0, is not in", [](PlanBuilder& p) { p.ops[3].op = 99; }},
      {"LINEAR, revision 1", [](PlanBuilder& p) { p.ops[3].rev = 1; }},
      {"{64, 32, 1}; {64, 64, 1} is needed", [](PlanBuilder& p) { p.ops[3].weight[0] = 2; }},
      {"has adapters", [](PlanBuilder& p) { p.weights[4].adapter_a = 0; }},
      {"key type 8, value type 8",
       [](PlanBuilder& p) { p.caches[0].key_type = 8, p.caches[0].value_type = 8; }},
      {"pages of 96 tokens", [](PlanBuilder& p) { p.caches[0].unit_tokens = 96; }},
      {"layer 3 of cache 0", [](PlanBuilder& p) { params<pn_op_qkv>(p, 1).cache_layer = 3; }},
      {"holds 2 heads of 16 and 16, not 2 of 16 and 8",
       [](PlanBuilder& p) { params<pn_op_attention>(p, 2).value_dim = 8, p.slots[3].width = 32; }},
      {"flags 0x40", [](PlanBuilder& p) { params<pn_op_qkv>(p, 1).flags = 64; }},
      {"3 query heads, 2 kv heads",
       [](PlanBuilder& p) { params<pn_op_qkv>(p, 1).query_heads = 3; }},
      {"rope_dims 32 of a head of 16",
       [](PlanBuilder& p) {
         auto& q = params<pn_op_qkv>(p, 1);
         q.rope_kind = 2, q.rope_dims = 32;
       }},
      {"norm kind 9", [](PlanBuilder& p) { params<pn_op_norm>(p, 0).kind = 9; }},
      {"in[2] has no meaning", [](PlanBuilder& p) { p.ops[3].in[2] = 0; }},
  };
  for (const Case& c : cases) {
    PlanBuilder plan = layer_plan();
    c.spoil(plan);
    pn_report report;
    std::vector<pn_span> spans;
    REQUIRE(query(host, plan, &report, &spans) == PN_OK);
    std::string reasons;
    for (const pn_span& span : spans)
      if (span.granularity == PN_SPAN_UNSUPPORTED) reasons += std::string(span.reason) + "\n";
    CHECK_MESSAGE(reasons.find(c.says) != std::string::npos, c.says << " is not in: " << reasons);
    const pn_plan view = plan.view();
    pn_program program = {};
    CHECK(host.api().program_create(host.device(), &view, 0, nullptr, &program, nullptr) ==
          PN_UNSUPPORTED);
  }
}

TEST_CASE("cpu query: a plan with wrong numbers is invalid") {
  CpuHost host(HostOptions{{"threads", "1"}});
  struct Case {
    const char* says;
    pn_status status;
    std::function<void(PlanBuilder&)> spoil;
  };
  const Case cases[] = {
      {"reads slot 9 of 5", PN_INVALID, [](PlanBuilder& p) { p.ops[0].in[0] = 9; }},
      {"which nothing has written", PN_INVALID, [](PlanBuilder& p) { p.ops[0].in[0] = 3; }},
      {"a second time", PN_INVALID, [](PlanBuilder& p) { p.ops[3].out[0] = 3; }},
      {"names weight 77", PN_INVALID, [](PlanBuilder& p) { p.ops[3].weight[0] = 77; }},
      {"hangs on weight 50", PN_INVALID, [](PlanBuilder& p) { p.weights[1].bias = 50; }},
      {"width 0", PN_INVALID, [](PlanBuilder& p) { p.slots[1].width = 0; }},
      {"shape 0 has 0 tokens", PN_INVALID, [](PlanBuilder& p) { p.shapes[0].tokens = 0; }},
      {"0 lanes", PN_INVALID, [](PlanBuilder& p) { p.lanes = 0; }},
      {"cache 0 has kind 7", PN_INVALID, [](PlanBuilder& p) { p.caches[0].kind = 7; }},
      {"make the largest shape smaller", PN_UNSUPPORTED,
       [](PlanBuilder& p) { p.shapes[0].tokens = 1 << 20; }},
  };
  for (const Case& c : cases) {
    PlanBuilder plan = layer_plan();
    pn_report report;
    std::vector<pn_span> spans;
    REQUIRE(query(host, plan, &report, &spans) == PN_OK);
    c.spoil(plan);
    const pn_plan view = plan.view();
    pn_error err = new_error();
    report = {};
    report.struct_size = sizeof(report);
    CHECK(host.api().program_query(host.device(), &view, &report, &err) == c.status);
    const std::string message = err.message;
    CHECK_MESSAGE(message.find(c.says) != std::string::npos, c.says << " is not in: " << message);
  }
}

TEST_CASE("cpu create: every binding is needed, long enough and in the right heap") {
  CpuHost host(HostOptions{{"threads", "1"}});
  PlanBuilder plan = layer_plan();
  pn_report report;
  std::vector<pn_span> spans;
  REQUIRE(query(host, plan, &report, &spans) == PN_OK);
  const CpuHost::Memory room = host.allocate(1 << 20), pinned = host.allocate(1 << 20, 1);
  std::vector<pn_binding> good;
  for (uint32_t i = 0; i < plan.weights.size(); ++i)
    good.push_back({PN_BIND_WEIGHT, i, 0, 0, room.slice(i << 16, 1 << 16)});
  good.push_back({PN_BIND_SLOT, 0, 0, 0, room.slice(6 << 16, 1 << 16)});
  good.push_back({PN_BIND_SLOT, 4, 0, 0, room.slice(7 << 16, 1 << 16)});
  good.push_back({PN_BIND_CACHE, 0, 0, 0, room.slice(8 << 16, 1 << 16)});
  good.push_back({PN_BIND_SCRATCH, 0, 0, 0, room.slice(9 << 16, report.scratch_bytes)});
  const pn_plan view = plan.view();
  const auto create = [&](const std::vector<pn_binding>& bindings, std::string* message) {
    pn_program program = {};
    pn_error err = new_error();
    const pn_status status =
        host.api().program_create(host.device(), &view, static_cast<uint32_t>(bindings.size()),
                                  bindings.data(), &program, &err);
    *message = err.message;
    if (status == PN_OK) host.api().program_destroy(program);
    return status;
  };
  std::string message;
  REQUIRE_MESSAGE(create(good, &message) == PN_OK, message);
  struct Case {
    const char* says;
    std::function<void(std::vector<pn_binding>&)> spoil;
  };
  const Case cases[] = {
      {"weight 1 (role 0, layer 0): part 0 is not bound", [](auto& b) { b.erase(b.begin() + 1); }},
      {"slot 4 is not bound", [](auto& b) { b.erase(b.begin() + 6); }},
      {"cache 0 is not bound", [](auto& b) { b.erase(b.begin() + 7); }},
      {"scratch is not bound", [](auto& b) { b.pop_back(); }},
      {"scratch: the slice has", [](auto& b) { b.back().slice.bytes -= 1; }},
      {"weight 1: the slice has 64 bytes", [](auto& b) { b[1].slice.bytes = 64; }},
      {"weight 1: offset", [](auto& b) { b[1].slice.offset += 32, b[1].slice.bytes -= 32; }},
      {"weight 1: it needs a heap with flags", [&](auto& b) { b[1].slice.buffer = pinned.buffer; }},
      {"weight 1: parts 1 + 1 of 1", [](auto& b) { b[1].first_part = b[1].part_count = 1; }},
      {"binding of weight 55", [](auto& b) { b[1].index = 55; }},
      {"binding kind 9", [](auto& b) { b[1].kind = 9; }},
      {"slot 1, which is no input or output", [](auto& b) { b[5].index = 1; }},
  };
  for (const Case& c : cases) {
    std::vector<pn_binding> bindings = good;
    c.spoil(bindings);
    CHECK(create(bindings, &message) == PN_INVALID);
    CHECK_MESSAGE(message.find(c.says) != std::string::npos, c.says << " is not in: " << message);
  }
}
