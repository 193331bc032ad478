// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: the answer to a plan, and programs. Any plan is taken whole; memory is what a real
// backend of these shapes would take, so placement can be tried on it.
#include <algorithm>
#include <cstring>

#include "plugins/chaos/chaos.h"

namespace chaos {
namespace {

constexpr uint64_t kScratchBytes = 64 << 10;

uint64_t element_bits(uint32_t type) {
  switch (type) {
    case PN_TYPE_F32:
      return 32;
    case PN_TYPE_Q8_0:
      return 9;
    default:
      return 16;
  }
}

const pn_op& op_at(const pn_plan& plan, uint32_t i) { return *PN_AT_CONST(pn_op, plan.ops, i); }
const pn_cache& cache_at(const pn_plan& plan, uint32_t i) {
  return *PN_AT_CONST(pn_cache, plan.caches, i);
}

// Keys and values of every layer that appends to it; at least room for the ids that are kept there.
uint64_t unit_bytes(const pn_plan& plan, uint32_t cache) {
  const pn_cache& of = cache_at(plan, cache);
  if (of.kind != PN_CACHE_PAGED) return kGranule;
  uint64_t bits = 0;
  for (uint32_t i = 0; i < plan.op_count; ++i) {
    if (op_at(plan, i).op != PN_OP_QKV) continue;
    const auto* qkv = static_cast<const pn_op_qkv*>(op_at(plan, i).params);
    if (qkv->cache != cache || (qkv->flags & PN_QKV_NO_APPEND) != 0) continue;
    bits += uint64_t{qkv->kv_heads} * (qkv->key_dim * element_bits(of.key_type) +
                                       qkv->value_dim * element_bits(of.value_type));
  }
  const uint64_t bytes = std::max<uint64_t>(bits / 8, sizeof(int32_t)) * of.unit_tokens;
  return (bytes + 63) / 64 * 64;
}

pn_status read_plan(const pn_plan* given, pn_plan* plan, pn_error* err) {
  if (!pn_read(plan, sizeof *plan, given, sizeof *plan)) {
    return fail(err, PN_UNSUPPORTED, "pn_plan says more than this plugin knows");
  }
  if (plan->op_count == 0 || plan->shape_count == 0 || plan->lanes == 0) {
    return host_broke(err, "a plan needs at least one op, shape and lane");
  }
  return PN_OK;
}

void write_spans(const pn_plan& plan, const DieOptions& o, pn_report* report) {
  pn_span span{};
  span.struct_size = sizeof span;
  span.granularity = PN_SPAN_MODEL;
  span.op_count = plan.op_count;
  span.accumulate_type = PN_TYPE_F32;
  span.numerics =
      PN_NUMERICS_BATCH_INVARIANT | PN_NUMERICS_REPRODUCIBLE | PN_NUMERICS_CHUNK_INVARIANT;
  for (uint32_t i = 0; i < plan.op_count; ++i) {
    if (op_at(plan, i).op != o.unsupported_op) continue;
    span.granularity = PN_SPAN_UNSUPPORTED;
    copy_text(span.reason, sizeof span.reason,
              "the script does not run op " + std::to_string(o.unsupported_op) + " of layer " +
                  std::to_string(op_at(plan, i).layer));
    break;
  }
  pn_write(report->spans, &span, sizeof span);
}

const pn_binding* find(uint32_t count, const pn_binding* all, uint32_t kind, uint32_t index) {
  for (uint32_t i = 0; i < count; ++i) {
    if (all[i].kind == kind && all[i].index == index) return &all[i];
  }
  return nullptr;
}

// "" or what is not bound.
std::string check_bindings(const pn_plan& plan, uint32_t count, const pn_binding* all) {
  for (uint32_t i = 0; i < count; ++i) {
    if (at(all[i].slice) == nullptr) {
      return "binding " + std::to_string(i) + " (kind " + std::to_string(all[i].kind) + ", index " +
             std::to_string(all[i].index) + ") lies in no buffer";
    }
  }
  auto missing = [&](uint32_t kind, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
      if (find(count, all, kind, i) == nullptr) return i;
    }
    return PN_NONE;
  };
  uint32_t i = missing(PN_BIND_WEIGHT, plan.weight_count);
  if (i != PN_NONE) return "weight " + std::to_string(i) + " is not bound";
  i = missing(PN_BIND_CACHE, plan.cache_count);
  if (i != PN_NONE) return "cache " + std::to_string(i) + " is not bound";
  if (find(count, all, PN_BIND_SCRATCH, 0) == nullptr) return "scratch is not bound";
  const pn_binding* ids = find(count, all, PN_BIND_IDS, 0);
  const uint64_t ids_bytes = uint64_t{plan.lanes} * plan.ids_depth * sizeof(int32_t);
  if (ids != nullptr && ids->slice.bytes < ids_bytes) return "ids is too small";
  for (uint32_t n = 0; n < plan.op_count; ++n) {
    const uint16_t op = op_at(plan, n).op;
    if ((op == PN_OP_EMBED || op == PN_OP_EMIT) && ids == nullptr) return "ids is not bound";
  }
  return "";
}

Program make_program(const pn_plan& plan, uint32_t count, const pn_binding* all) {
  Program program;
  program.lanes = plan.lanes;
  program.ids_depth = plan.ids_depth;
  program.shapes.assign(plan.shapes, plan.shapes + plan.shape_count);
  program.lane.resize(plan.lanes);
  const pn_binding* ids = find(count, all, PN_BIND_IDS, 0);
  if (ids != nullptr) program.ids = ids->slice;
  if (plan.cache_count != 0 && cache_at(plan, 0).kind == PN_CACHE_PAGED) {
    program.page_tokens = cache_at(plan, 0).unit_tokens;
    program.page_bytes = unit_bytes(plan, 0);
    program.pages = find(count, all, PN_BIND_CACHE, 0)->slice;
  }
  for (uint32_t i = 0; i < plan.op_count; ++i) {
    const pn_op& op = op_at(plan, i);
    if (op.op != PN_OP_EMIT) continue;
    program.vocab = static_cast<const pn_op_emit*>(op.params)->vocab;
    const uint16_t hidden = op.in[1];
    if (hidden < plan.slot_count) {
      program.hidden = PN_AT_CONST(pn_slot, plan.slots, hidden)->width;
    }
  }
  return program;
}

}  // namespace

pn_status program_query(pn_device device, const pn_plan* given, pn_report* report, pn_error* err) {
  Call call("program_query", device.id, kOfDevice);
  pn_status status = call.check(err);
  pn_plan plan{};
  if (status == PN_OK) status = read_plan(given, &plan, err);
  if (status != PN_OK) return status;
  const DieOptions& o = state().of(*call.die());
  const uint32_t room = report->span_count;
  if (report->spans != nullptr && room >= 1) write_spans(plan, o, report);
  for (uint32_t i = 0; report->costs != nullptr && i < plan.shape_count; ++i) {
    pn_cost cost{};
    cost.struct_size = sizeof cost;
    cost.launches = 1;
    cost.predicted_ns = std::max<uint64_t>(1, o.step_ns + o.token_ns * plan.shapes[i].tokens);
    pn_write(PN_AT(pn_cost, report->costs, i), &cost, sizeof cost);
  }
  for (uint32_t i = 0; report->unit_bytes != nullptr && i < plan.cache_count; ++i) {
    report->unit_bytes[i] = unit_bytes(plan, i);
  }
  pn_report mine{};
  mine.struct_size = sizeof mine;
  mine.span_count = 1;
  mine.spans = report->spans;
  mine.costs = report->costs;
  mine.unit_bytes = report->unit_bytes;
  mine.program_bytes = o.program_bytes;
  mine.program_host_bytes = sizeof(Program);
  mine.scratch_bytes = kScratchBytes;
  mine.cache_fingerprint = 1;
  mine.token_multiple = 1;
  mine.flags = PN_REPORT_SPLIT_EXPERTS;
  mine.step_bytes_max = uint64_t{1} << 24;
  pn_write(report, &mine, sizeof mine);
  return room < 1 ? PN_INCOMPLETE : PN_OK;
}

pn_status program_create(pn_device device, const pn_plan* given, uint32_t count,
                         const pn_binding* bindings, pn_program* out, pn_error* err) {
  Call call("program_create", device.id, kOfDevice);
  pn_status status = call.check(err);
  pn_plan plan{};
  if (status == PN_OK) status = read_plan(given, &plan, err);
  if (status != PN_OK) return status;
  const std::string wrong = check_bindings(plan, count, bindings);
  if (!wrong.empty()) return host_broke(err, "program_create: " + wrong);
  State& s = state();
  Die& die = *call.die();
  const DieOptions& o = s.of(die);
  if (!take(die, kDeviceHeap, o.program_bytes)) {
    return fail(err, PN_OUT_OF_MEMORY,
                "program_create: " + std::to_string(o.program_bytes) + " bytes asked, " +
                    std::to_string(free_bytes(die)) + " free");
  }
  Program program = make_program(plan, count, bindings);
  program.die = die.index;
  program.bytes = o.program_bytes;
  program.ready_at = s.now() + o.build_ns;
  program.broken = ++die.programs == o.fail_build;
  out->id = s.next_id++;
  s.programs[out->id] = std::move(program);
  ++s.counts.programs;
  return PN_OK;
}

pn_status program_status(pn_program handle, pn_program_status* out, pn_error* err) {
  Call call("program_status", handle.id, kOfProgram);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  State& s = state();
  if (s.options.virtual_clock != 0) s.virtual_ns += s.options.tick_ns;  // a build goes on, too
  const Program& program = s.programs.at(handle.id);
  const bool built = s.now() >= program.ready_at;
  pn_program_status found{};
  found.struct_size = sizeof found;
  found.state = !built           ? PN_PROGRAM_BUILDING
                : program.broken ? PN_PROGRAM_FAILED
                                 : PN_PROGRAM_READY;
  found.done = built ? 1 : 0;
  found.total = 1;
  found.program_bytes = program.bytes;
  found.program_host_bytes = sizeof(Program);
  pn_write(out, &found, sizeof found);
  if (found.state == PN_PROGRAM_FAILED) {
    pn_error error = make_error(PN_FAILED, "the script fails the build of this program");
    error.scope = PN_SCOPE_PROGRAM;
    fail(err, error);
  }
  return PN_OK;
}

void program_destroy(pn_program handle) {
  Call call("program_destroy", handle.id, kOfProgram);
  State& s = state();
  auto found = s.programs.find(handle.id);
  if (found == s.programs.end()) {
    host_broke(nullptr, "program_destroy: no such program");
    return;
  }
  give(*call.die(), kDeviceHeap, found->second.bytes);
  s.programs.erase(found);
  --s.counts.programs;
}

}  // namespace chaos
