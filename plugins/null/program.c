/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_null: the answer to a plan, and programs.
 *
 * A real plugin looks at each op here and says what it fuses, what it costs, or why it cannot. This
 * one takes all of them as one span; it still checks what the contract lets the host get wrong.
 */
#include <stdio.h>
#include <string.h>

#include "null.h"

#define PLAN_BYTES_0_2 72u /* its first released size (R5) */

static pn_status read_plan(const pn_plan* plan, pn_plan* mine, pn_error* err) {
  if (!pn_read(mine, sizeof *mine, plan, PLAN_BYTES_0_2)) {
    return null_fail(err, PN_UNSUPPORTED, "pn_plan says more than HAL %d.%d knows", PN_ABI_MAJOR,
                     PN_ABI_MINOR);
  }
  if (mine->op_count == 0 || mine->shape_count == 0) {
    return null_fail(err, PN_INVALID, "the plan has %u ops and %u shapes: at least one of each",
                     mine->op_count, mine->shape_count);
  }
  return PN_OK;
}

pn_status null_program_query(pn_device device, const pn_plan* plan, pn_report* report,
                             pn_error* err) {
  pn_plan p;
  if (null_find(device.id, KIND_DEVICE) == NULL) {
    return null_fail(err, PN_INVALID, "program_query: no such device");
  }
  pn_status status = read_plan(plan, &p, err);
  if (status != PN_OK) return status;

  uint32_t room = report->span_count;
  pn_report mine = {.struct_size = sizeof mine,
                    .span_count = 1,
                    .spans = report->spans, /* the host's arrays stay its own */
                    .costs = report->costs,
                    .unit_bytes = report->unit_bytes,
                    .program_host_bytes = sizeof(struct object),
                    .scratch_bytes = NULL_PAGE_BYTES,
                    .cache_fingerprint = 1,
                    .token_multiple = 1,
                    .flags = PN_REPORT_SPLIT_EXPERTS,
                    .step_bytes_max = (uint64_t)1 << 32};
  if (report->spans != NULL && room >= 1) {
    pn_span span = {.struct_size = sizeof span,
                    .granularity = PN_SPAN_MODEL,
                    .op_count = p.op_count,
                    .accumulate_type = PN_TYPE_F32,
                    .numerics = PN_NUMERICS_BATCH_INVARIANT | PN_NUMERICS_REPRODUCIBLE |
                                PN_NUMERICS_CHUNK_INVARIANT};
    pn_write(report->spans, &span, sizeof span);
  }
  for (uint32_t i = 0; report->costs != NULL && i < p.shape_count; ++i) {
    pn_cost cost = {.struct_size = sizeof cost, .launches = 1, .predicted_ns = 1};
    pn_write(PN_AT(pn_cost, report->costs, i), &cost, sizeof cost);
  }
  for (uint32_t i = 0; report->unit_bytes != NULL && i < p.cache_count; ++i) {
    report->unit_bytes[i] = NULL_PAGE_BYTES;
  }
  pn_write(report, &mine, sizeof mine);
  return room < 1 ? PN_INCOMPLETE : PN_OK;
}

/* ---- bindings ------------------------------------------------------------------------------- */

static const pn_binding* binding_of(uint32_t count, const pn_binding* list, uint32_t kind,
                                    uint32_t index) {
  for (uint32_t i = 0; i < count; ++i) {
    if (list[i].kind == kind && list[i].index == index) return &list[i];
  }
  return NULL;
}

static int plan_has(const pn_plan* plan, uint16_t wanted) {
  for (uint32_t i = 0; i < plan->op_count; ++i) {
    if (PN_AT_CONST(pn_op, plan->ops, i)->op == wanted) return 1;
  }
  return 0;
}

/* Everything that the plan needs is bound, and every bound slice lies in a buffer. */
static pn_status check_bindings(const pn_plan* p, uint32_t count, const pn_binding* list,
                                pn_error* err) {
  for (uint32_t i = 0; i < count; ++i) {
    if (null_at(list[i].slice) == NULL) {
      return null_fail(err, PN_INVALID, "binding %u (kind %u, index %u): slice is in no buffer", i,
                       list[i].kind, list[i].index);
    }
  }
  for (uint32_t i = 0; i < p->weight_count; ++i) {
    if (binding_of(count, list, PN_BIND_WEIGHT, i) == NULL) {
      return null_fail(err, PN_INVALID, "weight %u of layer %u is not bound", i,
                       PN_AT_CONST(pn_weight, p->weights, i)->layer);
    }
  }
  for (uint32_t i = 0; i < p->slot_count; ++i) {
    if (PN_AT_CONST(pn_slot, p->slots, i)->kind != PN_SLOT_INTERNAL &&
        binding_of(count, list, PN_BIND_SLOT, i) == NULL) {
      return null_fail(err, PN_INVALID, "slot %u is an input or output and is not bound", i);
    }
  }
  for (uint32_t i = 0; i < p->cache_count; ++i) {
    if (binding_of(count, list, PN_BIND_CACHE, i) == NULL) {
      return null_fail(err, PN_INVALID, "cache %u is not bound", i);
    }
  }
  if (binding_of(count, list, PN_BIND_SCRATCH, 0) == NULL) {
    return null_fail(err, PN_INVALID, "scratch is not bound");
  }
  const pn_binding* ids = binding_of(count, list, PN_BIND_IDS, 0);
  uint64_t ids_bytes = (uint64_t)p->lanes * p->ids_depth * sizeof(int32_t);
  if ((plan_has(p, PN_OP_EMBED) || plan_has(p, PN_OP_EMIT)) && ids == NULL) {
    return null_fail(err, PN_INVALID, "ids is not bound, and the plan has EMBED or EMIT");
  }
  if (ids != NULL && ids->slice.bytes < ids_bytes) {
    return null_fail(err, PN_INVALID, "ids has %llu bytes, %u lanes of depth %u need %llu",
                     (unsigned long long)ids->slice.bytes, p->lanes, p->ids_depth,
                     (unsigned long long)ids_bytes);
  }
  return PN_OK;
}

pn_status null_program_create(pn_device device, const pn_plan* plan, uint32_t count,
                              const pn_binding* bindings, pn_program* out, pn_error* err) {
  pn_plan p;
  if (null_find(device.id, KIND_DEVICE) == NULL) {
    return null_fail(err, PN_INVALID, "program_create: no such device");
  }
  pn_status status = read_plan(plan, &p, err);
  if (status == PN_OK) status = check_bindings(&p, count, bindings, err);
  if (status != PN_OK) return status;
  struct object* object = null_claim(KIND_PROGRAM);
  if (object == NULL) return null_fail(err, PN_OUT_OF_MEMORY, "program_create: table is full");
  struct program* program = &object->as.program;
  program->lanes = p.lanes;
  program->ids_depth = p.ids_depth;
  program->shape_count = p.shape_count;
  const pn_binding* ids = binding_of(count, bindings, PN_BIND_IDS, 0);
  if (ids != NULL) program->ids = ids->slice;
  for (uint32_t i = 0; i < p.op_count; ++i) {
    const pn_op* op = PN_AT_CONST(pn_op, p.ops, i);
    if (op->op != PN_OP_EMIT) continue;
    program->vocab = ((const pn_op_emit*)op->params)->vocab;
    uint16_t hidden = op->in[1];
    if (hidden < p.slot_count) {
      program->hidden_width = PN_AT_CONST(pn_slot, p.slots, hidden)->width;
    }
  }
  out->id = null_publish(object);
  return PN_OK;
}

pn_status null_program_status(pn_program program, pn_program_status* out, pn_error* err) {
  if (null_find(program.id, KIND_PROGRAM) == NULL) {
    return null_fail(err, PN_INVALID, "program_status: no such program");
  }
  pn_program_status status = {.struct_size = sizeof status,
                              .state = PN_PROGRAM_READY,
                              .done = 1,
                              .total = 1,
                              .program_host_bytes = sizeof(struct object)};
  pn_write(out, &status, sizeof status);
  return PN_OK;
}

void null_program_destroy(pn_program program) {
  struct object* object = null_find(program.id, KIND_PROGRAM);
  if (object != NULL) null_release(object);
}
