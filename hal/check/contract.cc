// SPDX-License-Identifier: Apache-2.0
//
// See contract.h.
#include "hal/check/contract.h"

#include "hal/check/tiny_model.h"

namespace pn::check {

namespace {

constexpr uint64_t kInvented = 0x7eadbeef12345678;

std::vector<Plan> simple_plans() {
  std::vector<Plan> plans(4);
  for (Plan& p : plans) {
    p.shapes = {{16, 4, 4, 64}};
    p.input(64);
    p.output(64);
  }
  plans[0].op(PN_OP_UNARY, pn_op_elementwise{0, PN_ACT_SILU, 1, 0});
  plans[1].op(PN_OP_NORM, pn_op_norm{0, PN_NORM_RMS, 0, 1e-5f});
  const uint16_t norm = plans[1].random_vector(64, 1);
  plans[1].ops[0].weight[0] = norm;
  for (const int i : {2, 3}) {
    const uint32_t type = i == 2 ? PN_TYPE_F32 : PN_TYPE_Q8_0;
    plans[i].op(PN_OP_LINEAR, pn_op_linear{0, 0, 1, 0});
    const uint16_t w =
        plans[i].weight(PN_ROLE_MATRIX, type, {64, 64}, random_blocks(type, 64, 64, 2));
    plans[i].ops[0].weight[0] = w;
  }
  for (Plan& p : plans) p.ops[0].in[0] = 0, p.ops[0].out[0] = 1;
  return plans;
}

template <typename T>
Result<std::unique_ptr<Rig>> rig_or_reason(Bench& bench, Side* side, const Result<T>& plan) {
  if (plan) return Rig::make(*side, *plan);
  if (plan.error().code != Code::unsupported) return tl::unexpected<Error>(plan.error());
  bench.unsupported(plan.error().message);
  return std::unique_ptr<Rig>();
}

template <typename T>
std::function<pn_status(uint32_t*, void*, pn_error*)> one(
    std::function<pn_status(T*, pn_error*)> call) {
  return [call](uint32_t*, void* to, pn_error* err) { return call(static_cast<T*>(to), err); };
}

}  // namespace

const char* to_string(Size size) {
  switch (size) {
    case Size::shorter:
      return "of 8 bytes";
    case Size::zero_tail:
      return "longer, the tail zero";
    default:
      return "longer, the tail not zero";
  }
}

Result<Plan> simple_plan(Side& side) {
  std::string reasons;
  for (const Plan& plan : simple_plans()) {
    auto rig = Rig::make(side, plan);
    if (rig) return plan;
    if (rig.error().code != Code::unsupported) return tl::unexpected<Error>(rig.error());
    reasons += (reasons.empty() ? "" : "; ") + rig.error().message;
  }
  return fail(Code::unsupported, "neither UNARY, NORM nor LINEAR: " + reasons);
}

Result<std::unique_ptr<Rig>> simple_rig(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  return rig_or_reason(bench, side, simple_plan(*side));
}

Result<std::unique_ptr<Rig>> model_rig(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  const auto model = fitting_model(*side, bench.seed(1));
  if (model) return Rig::make(*side, model->plan());
  return rig_or_reason(bench, side, Result<Plan>(tl::unexpected<Error>(model.error())));
}

Steps simple_steps(uint32_t tokens) {
  Steps steps;
  steps.entry(0, 0, tokens);
  return steps;
}

Result<std::vector<Output>> outputs(Bench& bench, Rig* rig) {
  PN_TRY(Side * side, bench.subject());
  const pn_plugin& t = side->table();
  const pn_device device = side->handle();
  std::vector<Output> out;
  out.push_back(
      {"devices", sizeof(pn_device_info), true, true, [&t](uint32_t* n, void* to, pn_error* e) {
         return t.devices(n, static_cast<pn_device_info*>(to), e);
       }});
  out.push_back(
      {"heaps", sizeof(pn_heap_info), true, true, [&t, device](uint32_t* n, void* to, pn_error* e) {
         return t.heaps(device, n, static_cast<pn_heap_info*>(to), e);
       }});
  out.push_back({"memory_status", sizeof(pn_memory_status), false, false,
                 one<pn_memory_status>([&t, device](pn_memory_status* to, pn_error* e) {
                   return t.memory_status(device, to, e);
                 })});
  if (rig != nullptr) {
    const pn_program program = rig->program().handle();
    out.push_back({"program_status", sizeof(pn_program_status), false, true,
                   one<pn_program_status>([&t, program](pn_program_status* to, pn_error* e) {
                     return t.program_status(program, to, e);
                   })});
    if (const auto* graph = side->plugin().interface<pn_graph_api>())
      out.push_back({"graph.describe", sizeof(pn_launch_info), false, true,
                     one<pn_launch_info>([graph, program](pn_launch_info* to, pn_error* e) {
                       return graph->describe(program, 0, to, e);
                     })});
  }
  if (const auto* sampler = side->plugin().interface<pn_sampler_api>())
    out.push_back({"sampler.describe", sizeof(pn_sampler_info), false, true,
                   one<pn_sampler_info>([sampler, device](pn_sampler_info* to, pn_error* e) {
                     return sampler->describe(device, to, e);
                   })});
  if (const auto* telemetry = side->plugin().interface<pn_telemetry_api>()) {
    out.push_back({"telemetry.readings", sizeof(pn_reading), true, false,
                   [telemetry, device](uint32_t* n, void* to, pn_error* e) {
                     return telemetry->readings(device, n, static_cast<pn_reading*>(to), e);
                   }});
    out.push_back({"telemetry.occupants", sizeof(pn_occupant), true, false,
                   [telemetry](uint32_t* n, void* to, pn_error* e) {
                     return telemetry->occupants(0, n, static_cast<pn_occupant*>(to), e);
                   }});
  }
  if (const auto* topology = side->plugin().interface<pn_topology_api>())
    out.push_back({"topology.edges", sizeof(pn_edge), true, true,
                   [topology](uint32_t* n, void* to, pn_error* e) {
                     return topology->edges(n, static_cast<pn_edge*>(to), e);
                   }});
  if (const auto* reset = side->plugin().interface<pn_reset_api>())
    out.push_back({"reset.describe", sizeof(pn_reset_info), false, true,
                   one<pn_reset_info>([reset](pn_reset_info* to, pn_error* e) {
                     return reset->describe(0, to, e);
                   })});
  if (const auto* layout = side->plugin().interface<pn_layout_api>()) {
    const uint64_t target = side->device().info().layout_target;
    pn_weight weight{};
    weight.struct_size = sizeof weight;
    weight.role = PN_ROLE_VECTOR;
    for (int64_t& n : weight.shape) n = 1;
    weight.shape[0] = 64;
    weight.bias = weight.scale = weight.adapter_a = weight.adapter_b = PN_NO16;
    out.push_back({"layout.rank", sizeof(pn_layout_choice), true, true,
                   [layout, target, weight](uint32_t* n, void* to, pn_error* e) {
                     return layout->rank(&weight, target, n, static_cast<pn_layout_choice*>(to), e);
                   }});
  }
  return out;
}

Result<std::vector<Failing>> failing_calls(Bench& bench, Rig* rig) {
  PN_TRY(Side * side, bench.subject());
  const pn_plugin& t = side->table();
  const pn_device device = side->handle();
  std::vector<Failing> calls;
  calls.push_back({"device_open of die 4000000", PN_INVALID, [&t](pn_error* e) {
                     pn_device out{};
                     return t.device_open(4000000, &out, e);
                   }});
  calls.push_back({"buffer_create in heap 99", PN_INVALID, [&t, device](pn_error* e) {
                     pn_buffer out{};
                     void* host = nullptr;
                     return t.buffer_create(device, 99, 4096, &out, &host, e);
                   }});
  calls.push_back({"queue_create of kind 7", PN_INVALID, [&t, device](pn_error* e) {
                     pn_queue out{};
                     return t.queue_create(device, 7, 8, &out, e);
                   }});
  calls.push_back({"memory_status of no device", PN_INVALID, [&t](pn_error* e) {
                     pn_memory_status out{};
                     out.struct_size = sizeof out;
                     return t.memory_status({kInvented}, &out, e);
                   }});
  calls.push_back({"program_status of no program", PN_INVALID, [&t](pn_error* e) {
                     pn_program_status out{};
                     out.struct_size = sizeof out;
                     return t.program_status({kInvented}, &out, e);
                   }});
  calls.push_back({"queue_query of no queue", PN_INVALID, [&t](pn_error* e) {
                     const pn_queue queue{kInvented};
                     pn_progress out{};
                     return t.queue_query(1, &queue, &out, e);
                   }});
  calls.push_back({"queue_wait on no queue", PN_INVALID, [&t](pn_error* e) {
                     return t.queue_wait({{kInvented}, 1}, 0, e);
                   }});
  calls.push_back({"queue_error of no queue", PN_INVALID,
                   [&t](pn_error* e) { return t.queue_error({kInvented}, e); }});
  if (rig == nullptr) return calls;
  calls.push_back({"program_create without bindings", PN_INVALID, [&t, device, rig](pn_error* e) {
                     const pn_plan plan = rig->plan().view();
                     pn_program out{};
                     return t.program_create(device, &plan, 0, nullptr, &out, e);
                   }});
  calls.push_back({"program_query of a plan that reads a slot of 9", PN_INVALID,
                   [&t, device, rig](pn_error* e) {
                     Plan broken = rig->plan();
                     broken.ops[0].in[0] = 9;
                     if (broken.slots.size() > 9) broken.ops[0].in[0] = 999;
                     const pn_plan plan = broken.view();
                     std::vector<pn_span> spans(plan.op_count, pn_span{sizeof(pn_span)});
                     pn_report report{};
                     report.struct_size = sizeof report;
                     report.span_count = plan.op_count;
                     report.spans = spans.data();
                     return t.program_query(device, &plan, &report, e);
                   }});
  return calls;
}

}  // namespace pn::check
