// SPDX-License-Identifier: Apache-2.0
//
// The judge on plans and programs; see validate_state.h.
#include <algorithm>

#include "hal/host/validate_state.h"

namespace pn::hal {

namespace {

std::string number(uint64_t n) { return std::to_string(n); }

// "" or the first element whose struct_size is not that of the first one: PN_AT would go astray.
template <class T>
std::string stride_of(const char* name, const T* list, uint32_t count, uint32_t least) {
  if (count == 0) return "";
  if (list == nullptr) return std::string(name) + " is NULL, its count " + number(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t size = PN_AT_CONST(T, list, i)->struct_size;
    if (size == list->struct_size && size >= least && size % 8 == 0) continue;
    return std::string(name) + "[" + number(i) + "].struct_size is " + number(size) +
           ", the first one's " + number(list->struct_size);
  }
  return "";
}

bool in_range(uint16_t index, uint32_t count) { return index == PN_NO16 || index < count; }

std::string check_op(const pn_op& op, const pn_plan& plan) {
  if (op.reserved != 0) return "a reserved word is not 0";
  for (uint16_t slot : op.in) {
    if (!in_range(slot, plan.slot_count)) return "reads slot " + number(slot);
  }
  for (uint16_t slot : op.out) {
    if (!in_range(slot, plan.slot_count)) return "writes slot " + number(slot);
  }
  for (uint16_t weight : op.weight) {
    if (!in_range(weight, plan.weight_count)) return "uses weight " + number(weight);
  }
  return "";
}

std::string strides(const pn_plan& plan) {
  std::string wrong = stride_of("ops", plan.ops, plan.op_count, sizeof(pn_op));
  if (wrong.empty()) wrong = stride_of("slots", plan.slots, plan.slot_count, sizeof(pn_slot));
  if (wrong.empty()) {
    wrong = stride_of("weights", plan.weights, plan.weight_count, sizeof(pn_weight));
  }
  if (wrong.empty()) wrong = stride_of("caches", plan.caches, plan.cache_count, sizeof(pn_cache));
  if (wrong.empty() && plan.shape_count != 0 && plan.shapes == nullptr) wrong = "shapes is NULL";
  return wrong;
}

bool reserved_used(const pn_plan& plan) {
  bool used = false;
  for (uint32_t i = 0; i < plan.slot_count; ++i) {
    used = used || PN_AT_CONST(pn_slot, plan.slots, i)->reserved != 0;
  }
  for (uint32_t i = 0; i < plan.weight_count; ++i) {
    used = used || PN_AT_CONST(pn_weight, plan.weights, i)->reserved != 0;
  }
  for (uint32_t i = 0; i < plan.cache_count; ++i) {
    used = used || PN_AT_CONST(pn_cache, plan.caches, i)->reserved != 0;
  }
  return used;
}

}  // namespace

void Validator::check_plan(const char* call, const pn_plan& plan) {
  const std::string begin = std::string(call) + ": pn_plan: ";
  const std::string wrong = strides(plan);
  if (!wrong.empty()) return host_bug(begin + wrong);
  if (plan.op_count == 0 || plan.shape_count == 0 || plan.lanes == 0 || plan.ids_depth == 0) {
    host_bug(begin + "it has no op, no shape, no lane or no ids");
  }
  if (reserved_used(plan)) host_bug(begin + "a reserved word is not 0");
  for (uint32_t i = 0; i < plan.op_count; ++i) {
    const std::string bad = check_op(*PN_AT_CONST(pn_op, plan.ops, i), plan);
    if (!bad.empty()) host_bug(begin + "op " + number(i) + " " + bad);
  }
}

void Validator::check_report(const pn_plan& plan, const pn_report& report, uint32_t room,
                             pn_status status) {
  const std::string begin = "program_query: ";
  if (report.span_count > plan.op_count || report.span_count == 0) {
    return plugin_bug(begin + number(report.span_count) + " spans for " + number(plan.op_count) +
                      " ops");
  }
  if ((status == PN_INCOMPLETE) != (room < report.span_count)) {
    plugin_bug(begin + "room for " + number(room) + " of " + number(report.span_count) +
               " spans, and it returned " + number(static_cast<uint64_t>(status)));
  }
  if (status != PN_OK || report.spans == nullptr) return;
  uint32_t next = 0;
  for (uint32_t i = 0; i < report.span_count; ++i) {
    auto* span = PN_AT(pn_span, report.spans, i);
    check_text("program_query", "reason", span->reason, sizeof span->reason);
    if (span->first_op != next || span->op_count == 0 || span->granularity > PN_SPAN_MODEL) {
      plugin_bug(begin + "span " + number(i) + " is op " + number(span->first_op) + " and " +
                 number(span->op_count) + " of them, expected from op " + number(next));
    }
    if (span->granularity == PN_SPAN_UNSUPPORTED && span->reason[0] == 0) {
      plugin_bug(begin + "span " + number(i) + " is UNSUPPORTED without a reason");
    }
    next = span->first_op + span->op_count;
  }
  if (next != plan.op_count) {
    plugin_bug(begin + "the spans end at op " + number(next) + " of " + number(plan.op_count));
  }
  for (uint32_t i = 0; report.unit_bytes != nullptr && i < plan.cache_count; ++i) {
    if (report.unit_bytes[i] == 0) plugin_bug(begin + "unit_bytes of a cache is 0");
  }
}

pn_status Validator::program_query(pn_device device, const pn_plan* plan, pn_report* report,
                                   pn_error* err) {
  constexpr const char* kCall = "program_query";
  pn_error before;
  pn_status status = PN_OK;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_plan", plan, sizeof(pn_plan), err, &status)) return status;
  if (!check_struct(kCall, "pn_report", report, sizeof(pn_report), err, &status)) return status;
  const uint32_t room = report->spans == nullptr ? 0 : report->span_count;
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
    check_plan(kCall, *plan);
    const std::string wrong = stride_of("spans", report->spans, room, sizeof(pn_span));
    if (!wrong.empty()) host_bug(std::string(kCall) + ": " + wrong);
  }
  const pn_report given = *report;
  {
    Inside inside(*this, kCall, "control", Kind::device, device.id);
    status = answered(kCall, inner_.program_query(device, plan, report, err), err, before,
                      {PN_INCOMPLETE});
  }
  sticky(kCall, device.id, status, err);
  if (report->struct_size != given.struct_size || report->spans != given.spans ||
      report->costs != given.costs || report->unit_bytes != given.unit_bytes) {
    plugin_bug("program_query: changed struct_size or a pointer of pn_report");
    report->struct_size = given.struct_size;
    report->spans = given.spans;
    report->costs = given.costs;
    report->unit_bytes = given.unit_bytes;
  }
  if (status >= 0) check_report(*plan, *report, room, status);
  return status;
}

pn_status Validator::program_create(pn_device device, const pn_plan* plan, uint32_t count,
                                    const pn_binding* bindings, pn_program* out, pn_error* err) {
  constexpr const char* kCall = "program_create";
  pn_error before;
  pn_status status = PN_OK;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_plan", plan, sizeof(pn_plan), err, &status)) return status;
  if (out == nullptr || (bindings == nullptr && count != 0)) {
    return refuse(kCall, "out or bindings is NULL", err);
  }
  Judged judged;
  judged.lanes = plan->lanes;
  judged.shapes = plan->shape_count;
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
    check_plan(kCall, *plan);
    for (uint32_t i = 0; i < count; ++i) {
      const pn_binding& binding = bindings[i];
      const std::string what = "binding " + number(i);
      check_slice(kCall, what.c_str(), binding.slice);
      if (binding.kind > PN_BIND_IDS) host_bug(std::string(kCall) + ": " + what + ": no such kind");
      judged.bound.push_back(binding.slice.buffer.id);
    }
  }
  {
    Inside inside(*this, kCall, "control", Kind::device, device.id);
    status = answered(kCall, inner_.program_create(device, plan, count, bindings, out, err), err,
                      before);
  }
  sticky(kCall, device.id, status, err);
  if (status != PN_OK) return status;
  Lock lock(mutex_);
  born(kCall, Kind::program, out->id, device.id, std::move(judged));
  return status;
}

pn_status Validator::program_status(pn_program program, pn_program_status* out, pn_error* err) {
  constexpr const char* kCall = "program_status";
  pn_error before;
  pn_status status = PN_OK;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_program_status", out, sizeof(pn_program_status), err, &status))
    return status;
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::program, program.id) == nullptr) return PN_INVALID;
  }
  const uint32_t size = out->struct_size;
  status = answered(kCall, inner_.program_status(program, out, err), err, before);
  if (out->struct_size != size) plugin_bug("program_status: changed struct_size");
  out->struct_size = size;
  if (status != PN_OK) return status;
  Lock lock(mutex_);
  auto found = books(Kind::program).find(program.id);
  if (found == books(Kind::program).end()) return status;
  Judged& judged = found->second;
  if (out->state > PN_PROGRAM_FAILED || out->done > out->total) {
    plugin_bug("program_status: state " + number(out->state) + ", " + number(out->done) + " of " +
               number(out->total));
  } else if (judged.state != PN_PROGRAM_BUILDING && out->state != judged.state) {
    plugin_bug("program_status: state " + number(judged.state) + " became " + number(out->state));
  } else if (out->done < judged.done) {
    plugin_bug("program_status: progress went back from " + number(judged.done) + " to " +
               number(out->done));
  }
  judged.state = out->state;
  judged.done = out->done;
  return status;
}

void Validator::program_destroy(pn_program program) {
  constexpr const char* kCall = "program_destroy";
  uint64_t device = 0;
  {
    Lock lock(mutex_);
    flies("program_destroy: program", program.id, true);
    const Judged* judged = find(kCall, Kind::program, program.id);
    if (judged == nullptr) return;
    device = judged->device;
    buried(kCall, Kind::program, program.id);
  }
  Inside inside(*this, kCall, "control", Kind::device, device);
  inner_.program_destroy(program);
}

}  // namespace pn::hal
