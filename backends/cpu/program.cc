// SPDX-License-Identifier: Apache-2.0
//
// The program functions of the ABI: what a plan would cost, and making one. See program.h.
#include "backends/cpu/program.h"

#include <algorithm>
#include <cstdio>

#include "backends/cpu/cost.h"
#include "backends/cpu/error.h"
#include "backends/cpu/memory.h"
#include "backends/cpu/ops.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

// What every cache that may be shared must agree on: its shape and our page layout.
uint64_t fingerprint(const Compiled& code) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) hash = (hash ^ (value & 0xff)) * 0x100000001b3u;
  };
  mix(1);  // revision of the page layout
  for (const Cache& cache : code.caches) {
    mix(cache.info.unit_tokens);
    mix(cache.info.key_type);
    mix(cache.info.value_type);
    for (const CacheLayer& layer : cache.layers) {
      mix(layer.heads);
      mix(layer.key_dim);
      mix(layer.value_dim);
    }
  }
  return hash;
}

pn_status write_report(const Plan& plan, const Compiled& code, uint32_t threads, pn_report* out,
                       pn_error* err) {
  pn_report report = {};
  if (!pn_read(&report, sizeof(report), out, sizeof(report)))
    return fail(err, PN_UNSUPPORTED, "pn_report asks for something newer than this plugin knows");
  const uint32_t room = report.span_count;
  const auto have = static_cast<uint32_t>(code.spans.size());
  if (report.spans != nullptr)
    for (uint32_t i = 0; i < std::min(room, have); ++i)
      pn_write(PN_AT(pn_span, report.spans, i), &code.spans[i], sizeof(pn_span));
  if (report.costs != nullptr)
    for (uint32_t i = 0; i < plan.shapes.size(); ++i) {
      const pn_cost cost = predict(plan, code, plan.shapes[i], threads);
      pn_write(PN_AT(pn_cost, report.costs, i), &cost, sizeof(cost));
    }
  if (report.unit_bytes != nullptr)
    for (size_t i = 0; i < code.caches.size(); ++i)
      report.unit_bytes[i] = code.caches[i].unit_bytes;
  report.span_count = have;
  report.program_bytes = 0;
  report.program_host_bytes = record_bytes(plan, code);
  report.scratch_bytes = code.scratch_bytes;
  report.cache_fingerprint = fingerprint(code);
  report.token_multiple = 1;
  report.flags = PN_REPORT_SPLIT_EXPERTS;
  report.step_bytes_max = step_bytes_max(plan);
  pn_write(out, &report, sizeof(report));
  return report.spans != nullptr && room < have ? PN_INCOMPLETE : PN_OK;
}

pn_status read_fitting(const pn_plan* from, Plan* plan, pn_error* err) {
  const pn_status status = read_plan(from, plan, err);
  if (status != PN_OK) return status;
  if (step_bytes_needed(*plan) > step_bytes_max(*plan))
    return fail(err, PN_UNSUPPORTED,
                "shapes of %u tokens, %u entries, %u rows and %u lanes: a step of %llu bytes, %llu "
                "is the most; make the largest shape smaller",
                plan->tokens, plan->entries, plan->rows, plan->lanes,
                static_cast<unsigned long long>(step_bytes_needed(*plan)),
                static_cast<unsigned long long>(step_bytes_max(*plan)));
  return PN_OK;
}

pn_status refuse_unsupported(const Plan& plan, const Compiled& code, pn_error* err) {
  for (const pn_span& span : code.spans)
    if (span.granularity == PN_SPAN_UNSUPPORTED) {
      const uint32_t last = span.first_op + span.op_count - 1;
      return fail(err, PN_UNSUPPORTED, "op %u (%s, layer %u): %s", last,
                  op_name(plan.ops[last].op.op), plan.ops[last].op.layer, span.reason);
    }
  return PN_OK;
}

}  // namespace

Program::~Program() { unmap_pages(records, record_bytes); }

pn_status program_query(pn_device device, const pn_plan* from, pn_report* report, pn_error* err) {
  return guarded(err, [&]() -> pn_status {
    const Die* die = find_die(device, err);
    if (die == nullptr) return PN_INVALID;
    if (report == nullptr) return fail(err, PN_INVALID, "program_query: report is NULL");
    Plan plan;
    const pn_status status = read_fitting(from, &plan, err);
    if (status != PN_OK) return status;
    return write_report(plan, compile(plan, die->threads), die->threads, report, err);
  });
}

pn_status program_create(pn_device device, const pn_plan* from, uint32_t count,
                         const pn_binding* bindings, pn_program* out, pn_error* err) {
  return guarded(err, [&]() -> pn_status {
    Die* die = find_die(device, err);
    if (die == nullptr) return PN_INVALID;
    if (out == nullptr || (count != 0 && bindings == nullptr))
      return fail(err, PN_INVALID, "program_create: out or bindings are NULL");
    auto program = std::make_unique<Program>();
    Program& p = *program;
    pn_status status = read_fitting(from, &p.plan, err);
    if (status != PN_OK) return status;
    p.die = die;
    p.code = compile(p.plan, die->threads);
    status = refuse_unsupported(p.plan, p.code, err);
    if (status == PN_OK) status = bind(&p, count, bindings, err);
    if (status != PN_OK) return status;
    p.step_bytes_max = step_bytes_max(p.plan);
    p.matmul = &state()->matmul();
    p.vectors = &state()->vectors();
    p.record_bytes = record_bytes(p.plan, p.code);
    p.records = map_pages(p.record_bytes);
    if (p.records == nullptr)
      return fail(err, PN_OUT_OF_MEMORY, "no memory for %llu KiB of lane records",
                  static_cast<unsigned long long>(p.record_bytes >> 10));
    place_records(&p);
    out->id = state()->programs.add(std::move(program));
    if (out->id == 0) return fail(err, PN_OUT_OF_MEMORY, "too many programs are alive");
    return PN_OK;
  });
}

pn_status program_status(pn_program handle, pn_program_status* out, pn_error* err) {
  const Program* program = state()->programs.find(handle.id);
  if (program == nullptr)
    return fail(err, PN_INVALID, "program %#llx is not alive",
                static_cast<unsigned long long>(handle.id));
  if (out == nullptr) return fail(err, PN_INVALID, "program_status: out is NULL");
  // Compiling is a matter of microseconds, so create has done all of it.
  pn_program_status now = {};
  now.struct_size = sizeof(now);
  now.state = PN_PROGRAM_READY;
  now.done = now.total = static_cast<uint32_t>(program->plan.ops.size());
  now.program_host_bytes = program->record_bytes;
  pn_write(out, &now, sizeof(now));
  return PN_OK;
}

void program_destroy(pn_program handle) { state()->programs.remove(handle.id); }

}  // namespace pn::cpu
