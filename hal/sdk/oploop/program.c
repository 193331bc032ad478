/* SPDX-License-Identifier: MIT
 *
 * The op-loop: the program functions of the contract. A query compiles a program without bindings
 * and throws it away, so it cannot answer differently from create.
 */
#include <stdlib.h>
#include <string.h>

#include "loop.h"

/* A program in its block, compiled; NULL and a message. */
static struct loop_program* compile(struct loop_device* d, const pn_plan* plan, pn_status* status,
                                    pn_error* err) {
  pn_plan head;
  *status = loop_read_plan(plan, &head, err);
  if (*status != PN_OK) return NULL;
  struct loop_program counted = {0};
  struct loop_arena arena = {NULL, NULL};
  loop_lay_out(&counted, &head, &arena);
  uint64_t own = (sizeof(struct loop_program) + 63) / 64 * 64;
  uint64_t bytes = own + (uint64_t)(uintptr_t)arena.at;
  char* block = bytes > (uint64_t)1 << 40 ? NULL : calloc(1, bytes);
  if (block == NULL) {
    *status = pn_loop_fail(err, PN_OUT_OF_MEMORY, "no host memory for %llu KiB of lane records",
                           (unsigned long long)(bytes >> 10));
    return NULL;
  }
  struct loop_program* p = (void*)block;
  p->block_bytes = bytes;
  p->device = d;
  arena = (struct loop_arena){block + own, block + bytes};
  loop_lay_out(p, &head, &arena);
  *status = loop_fill(p, &head, err);
  if (*status == PN_OK) loop_compile(p);
  uint64_t least = (uint64_t)p->tokens * 4 + (uint64_t)p->entries * sizeof(pn_entry) +
                   (uint64_t)p->rows * sizeof(pn_row) + (uint64_t)p->lanes * sizeof(pn_lane);
  if (*status == PN_OK && least > p->step_bytes_max)
    *status = pn_loop_fail(err, PN_UNSUPPORTED,
                           "shapes of %u tokens, %u entries, %u rows and %u lanes: a step of %llu "
                           "bytes, %llu is the most; make the largest shape smaller",
                           p->tokens, p->entries, p->rows, p->lanes, (unsigned long long)least,
                           (unsigned long long)p->step_bytes_max);
  if (*status == PN_OK) return p;
  free(block);
  return NULL;
}

/* What every cache that may be shared must agree on. */
static uint64_t fingerprint(const struct loop_program* p) {
  uint64_t hash = 0xcbf29ce484222325u;
#define MIX(value)                          \
  for (uint32_t byte = 0; byte < 4; ++byte) \
  hash = (hash ^ ((value) >> 8 * byte & 0xff)) * 0x100000001b3u
  for (uint32_t i = 0; i < p->cache_count; ++i) {
    const struct loop_cache* c = &p->caches[i];
    MIX(c->info.unit_tokens);
    MIX(c->info.key_type);
    for (uint32_t l = 0; l < c->info.layers; ++l) {
      MIX(c->layers[l].heads);
      MIX(c->layers[l].key_dim);
      MIX(c->layers[l].value_dim);
    }
  }
#undef MIX
  return hash;
}

static double weight_reads(const struct loop_program* p, const struct loop_op* op, double rows,
                           double* macs) {
  double bytes = 0;
  if (op->op.op == PN_OP_EMBED) return 0;
  for (uint32_t k = 0; k < 8; ++k) {
    if (op->op.weight[k] == PN_NO16) continue;
    const struct loop_weight* w = &p->weights[op->op.weight[k]];
    double used = 1;
    if (w->info.role > PN_ROLE_EXPERTS) continue;
    if (w->info.role == PN_ROLE_EXPERTS && op->op.in[1] != PN_NO16)
      used = p->slots[op->op.in[1]].info.width * rows;
    if (used > w->matrix.experts) used = w->matrix.experts;
    bytes += used * (double)w->matrix.row_bytes * (double)w->matrix.rows;
    *macs += rows * (double)w->matrix.cols * (double)w->matrix.rows;
  }
  return bytes;
}

static pn_cost predict(const struct loop_program* p, const pn_shape* shape) {
  const pn_loop_backend* b = loop_backend;
  double bytes = 0, macs = 0, ns = 0;
  for (uint32_t i = 0; i < p->op_count; ++i) {
    const struct loop_op* op = &p->ops[i];
    double rows = op->op.in[0] != PN_NO16 && p->slots[op->op.in[0]].info.rows == PN_ROWS_OUT
                      ? shape->rows
                      : shape->tokens;
    bytes += weight_reads(p, op, rows, &macs);
    if (op->op.op != PN_OP_ATTENTION) continue;
    const pn_op_attention* a = &op->params.attention;
    double seen = a->window == 0 || a->window > shape->context ? shape->context : a->window;
    bytes += 4 * seen * a->kv_heads * (a->key_dim + a->value_dim) * shape->entries;
    macs += seen * a->query_heads * (a->key_dim + a->value_dim) * shape->tokens;
  }
  if (b->bytes_per_ns > 0) ns = bytes / b->bytes_per_ns;
  if (b->macs_per_ns > 0 && macs / b->macs_per_ns > ns) ns = macs / b->macs_per_ns;
  ns += b->call_ns * p->op_count;
  return (pn_cost){.struct_size = sizeof(pn_cost),
                   .launches = p->op_count,
                   .predicted_ns = (uint64_t)ns,
                   .device_bytes = (uint64_t)bytes};
}

static pn_status write_report(const struct loop_program* p, pn_report* out, pn_error* err) {
  pn_report mine;
  if (!pn_read(&mine, sizeof mine, out, sizeof mine))
    return pn_loop_fail(err, PN_UNSUPPORTED, "pn_report asks for something newer");
  uint32_t room = mine.spans == NULL ? 0 : mine.span_count;
  for (uint32_t i = 0; i < p->op_count && i < room; ++i)
    pn_write(PN_AT(pn_span, mine.spans, i), &p->spans[i], sizeof(pn_span));
  for (uint32_t i = 0; mine.costs != NULL && i < p->shape_count; ++i) {
    pn_cost cost = predict(p, &p->shapes[i]);
    pn_write(PN_AT(pn_cost, mine.costs, i), &cost, sizeof cost);
  }
  for (uint32_t i = 0; mine.unit_bytes != NULL && i < p->cache_count; ++i)
    mine.unit_bytes[i] = p->caches[i].unit_bytes;
  mine.span_count = p->op_count;
  mine.program_bytes = 0; /* all that a program has on the die is bound by the host */
  mine.program_host_bytes = p->block_bytes;
  mine.scratch_bytes = p->scratch_bytes;
  mine.cache_fingerprint = fingerprint(p);
  mine.token_multiple = loop_backend->token_multiple == 0 ? 1 : loop_backend->token_multiple;
  mine.flags = 0;
  mine.step_bytes_max = p->step_bytes_max;
  pn_write(out, &mine, sizeof mine);
  return room != 0 && room < p->op_count ? PN_INCOMPLETE : PN_OK;
}

pn_status loop_program_query(pn_device device, const pn_plan* plan, pn_report* report,
                             pn_error* err) {
  pn_status status;
  struct loop_device* d = loop_device_of(device, "program_query", &status, err);
  if (d == NULL) return status;
  if (report == NULL) return pn_loop_fail(err, PN_INVALID, "program_query: report is NULL");
  struct loop_program* p = compile(d, plan, &status, err);
  if (p == NULL) return status;
  status = write_report(p, report, err);
  free(p);
  return status;
}

pn_status loop_program_create(pn_device device, const pn_plan* plan, uint32_t count,
                              const pn_binding* bindings, pn_program* out, pn_error* err) {
  pn_status status;
  struct loop_device* d = loop_device_of(device, "program_create", &status, err);
  if (d == NULL) return status;
  if (out == NULL) return pn_loop_fail(err, PN_INVALID, "program_create: out is NULL");
  struct loop_program* p = compile(d, plan, &status, err);
  if (p == NULL) return status;
  if (p->unsupported != LOOP_ANY)
    status = pn_loop_fail(err, PN_UNSUPPORTED, "op %u, layer %u: %s", p->unsupported,
                          p->ops[p->unsupported].op.layer, p->spans[p->unsupported].reason);
  if (status == PN_OK) status = loop_bind(p, count, bindings, err);
  if (status == PN_OK) {
    p->id = loop_add(LOOP_PROGRAM, p);
    if (p->id == 0)
      status = pn_loop_fail(err, PN_OUT_OF_MEMORY, "program_create: too many objects are alive");
  }
  if (status != PN_OK) {
    free(p);
    return status;
  }
  out->id = p->id;
  return PN_OK;
}

/* Compiling is a matter of microseconds, so create has done all of it. */
pn_status loop_program_status(pn_program program, pn_program_status* out, pn_error* err) {
  const struct loop_program* p = loop_find(program.id, LOOP_PROGRAM);
  if (p == NULL)
    return pn_loop_fail(err, PN_INVALID, "program %#llx is not alive",
                        (unsigned long long)program.id);
  if (out == NULL) return pn_loop_fail(err, PN_INVALID, "program_status: out is NULL");
  if (atomic_load_explicit(&p->device->lost, memory_order_acquire) == 2)
    return loop_told(p->device, err);
  pn_program_status mine = {.struct_size = sizeof mine,
                            .state = PN_PROGRAM_READY,
                            .done = p->op_count,
                            .total = p->op_count,
                            .program_host_bytes = p->block_bytes};
  pn_write(out, &mine, sizeof mine);
  return PN_OK;
}

void loop_program_destroy(pn_program program) {
  struct loop_program* p = loop_find(program.id, LOOP_PROGRAM);
  if (p == NULL) return;
  loop_remove(p->id);
  free(p);
}
