// SPDX-License-Identifier: Apache-2.0
//
// Reads a pn_plan by the growth rules and checks every number in it. See plan.h.
#include "backends/cpu/plan.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backends/cpu/error.h"

namespace pn::cpu {
namespace {

struct OpFacts {
  uint16_t op;
  const char* name;
  uint32_t params_bytes;  // frozen first size; 0: the op has none
};
constexpr OpFacts kOps[] = {
    {PN_OP_EMBED, "EMBED", sizeof(pn_op_embed)},
    {PN_OP_NORM, "NORM", sizeof(pn_op_norm)},
    {PN_OP_LINEAR, "LINEAR", sizeof(pn_op_linear)},
    {PN_OP_QKV, "QKV", sizeof(pn_op_qkv)},
    {PN_OP_ATTENTION, "ATTENTION", sizeof(pn_op_attention)},
    {PN_OP_MLP, "MLP", sizeof(pn_op_mlp)},
    {PN_OP_ROUTER, "ROUTER", sizeof(pn_op_router)},
    {PN_OP_EXPERTS, "EXPERTS", sizeof(pn_op_mlp)},
    {PN_OP_DELTA_NET, "DELTA_NET", sizeof(pn_op_delta_net)},
    {PN_OP_ROWS, "ROWS", 0},
    {PN_OP_EMIT, "EMIT", sizeof(pn_op_emit)},
    {PN_OP_BINARY, "BINARY", sizeof(pn_op_elementwise)},
    {PN_OP_UNARY, "UNARY", sizeof(pn_op_elementwise)},
    {PN_OP_GLU, "GLU", sizeof(pn_op_elementwise)},
    {PN_OP_COLUMNS, "COLUMNS", sizeof(pn_op_columns)},
    {PN_OP_CONCAT, "CONCAT", 0},
    {PN_OP_ROPE, "ROPE", sizeof(pn_op_heads)},
    {PN_OP_APPEND, "APPEND", sizeof(pn_op_heads)},
    {PN_OP_CONV, "CONV", sizeof(pn_op_heads)},
};

const OpFacts* facts_of(uint16_t op) {
  for (const OpFacts& facts : kOps)
    if (facts.op == op) return &facts;
  return nullptr;
}

template <typename T>
pn_status read_array(std::vector<T>* out, const T* from, uint32_t count, const char* name,
                     pn_error* err) {
  if (count != 0 && from == nullptr) return fail(err, PN_INVALID, "plan: %s are NULL", name);
  out->resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (!pn_read(&(*out)[i], sizeof(T), PN_AT_CONST(T, from, i), sizeof(T)))
      return fail(err, PN_UNSUPPORTED, "plan: %s[%u] says something newer than this plugin knows",
                  name, i);
    if ((*out)[i].reserved != 0)
      return fail(err, PN_INVALID, "plan: %s[%u]: reserved is not 0", name, i);
  }
  return PN_OK;
}

pn_status read_op(const pn_op* from, uint32_t index, PlanOp* out, pn_error* err) {
  if (!pn_read(&out->op, sizeof(pn_op), from, sizeof(pn_op)))
    return fail(err, PN_UNSUPPORTED, "plan: op %u says something newer than this plugin knows",
                index);
  if (out->op.reserved != 0) return fail(err, PN_INVALID, "plan: op %u: reserved is not 0", index);
  const OpFacts* facts = facts_of(out->op.op);
  if (facts == nullptr || out->op.rev != 0 || facts->params_bytes == 0) return PN_OK;
  if (out->op.params == nullptr)
    return fail(err, PN_INVALID, "plan: op %u (%s) has no params", index, facts->name);
  if (!pn_read(out->params, facts->params_bytes, out->op.params, facts->params_bytes))
    return fail(err, PN_UNSUPPORTED,
                "plan: params of op %u (%s) say something newer than this plugin knows", index,
                facts->name);
  out->op.params = nullptr;
  return PN_OK;
}

pn_status check_op(const Plan& plan, uint32_t index, std::vector<uint8_t>* written, pn_error* err) {
  const pn_op& op = plan.ops[index].op;
  const char* name = op_name(op.op);
  for (uint32_t k = 0; k < 6; ++k) {
    if (op.in[k] == PN_NO16) continue;
    if (op.in[k] >= plan.slots.size())
      return fail(err, PN_INVALID, "plan: op %u (%s) reads slot %u of %zu", index, name, op.in[k],
                  plan.slots.size());
    if (!(*written)[op.in[k]])
      return fail(err, PN_INVALID, "plan: op %u (%s) reads slot %u, which nothing has written",
                  index, name, op.in[k]);
  }
  for (uint32_t k = 0; k < 2; ++k) {
    if (op.out[k] == PN_NO16) continue;
    if (op.out[k] >= plan.slots.size())
      return fail(err, PN_INVALID, "plan: op %u (%s) writes slot %u of %zu", index, name, op.out[k],
                  plan.slots.size());
    if ((*written)[op.out[k]])
      return fail(err, PN_INVALID, "plan: op %u (%s) writes slot %u a second time", index, name,
                  op.out[k]);
    (*written)[op.out[k]] = 1;
  }
  for (uint32_t k = 0; k < 8; ++k)
    if (op.weight[k] != PN_NO16 && op.weight[k] >= plan.weights.size())
      return fail(err, PN_INVALID, "plan: op %u (%s) names weight %u of %zu", index, name,
                  op.weight[k], plan.weights.size());
  return PN_OK;
}

pn_status check_weight(const Plan& plan, uint32_t index, pn_error* err) {
  const pn_weight& w = plan.weights[index];
  for (int64_t n : w.shape)
    if (n < 1 || n > (int64_t{1} << 40))
      return fail(err, PN_INVALID, "plan: weight %u has a dimension of %lld", index,
                  static_cast<long long>(n));
  for (uint16_t other : {w.bias, w.scale, w.adapter_a, w.adapter_b})
    if (other != PN_NO16 && other >= plan.weights.size())
      return fail(err, PN_INVALID, "plan: weight %u hangs on weight %u of %zu", index, other,
                  plan.weights.size());
  return PN_OK;
}

pn_status check_lists(const Plan& plan, pn_error* err) {
  for (uint32_t i = 0; i < plan.slots.size(); ++i) {
    const pn_slot& slot = plan.slots[i];
    if (slot.kind > PN_SLOT_OUTPUT || slot.rows > PN_ROWS_OUT || slot.width == 0)
      return fail(err, PN_INVALID, "plan: slot %u has kind %u, rows %u, width %u", i, slot.kind,
                  slot.rows, slot.width);
    if (slot.kind != PN_SLOT_INTERNAL && slot.type != PN_TYPE_F32 && slot.type != PN_TYPE_F16 &&
        slot.type != PN_TYPE_BF16)
      return fail(err, PN_UNSUPPORTED,
                  "plan: slot %u is bound with type %u; F32 (0), F16 (1) and BF16 (30) are offered",
                  i, slot.type);
  }
  for (uint32_t i = 0; i < plan.weights.size(); ++i) {
    const pn_status status = check_weight(plan, i, err);
    if (status != PN_OK) return status;
  }
  for (uint32_t i = 0; i < plan.caches.size(); ++i) {
    const pn_cache& cache = plan.caches[i];
    if (cache.kind > PN_CACHE_STATE || cache.layers == 0 || cache.units_per_lane == 0 ||
        (cache.kind == PN_CACHE_PAGED && cache.unit_tokens == 0))
      return fail(err, PN_INVALID, "plan: cache %u has kind %u, %u layers, %u tokens, %u units", i,
                  cache.kind, cache.layers, cache.unit_tokens, cache.units_per_lane);
  }
  std::vector<uint8_t> written(plan.slots.size());
  for (uint32_t i = 0; i < plan.slots.size(); ++i) written[i] = plan.slots[i].kind == PN_SLOT_INPUT;
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    const pn_status status = check_op(plan, i, &written, err);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

}  // namespace

const char* op_name(uint16_t op) {
  const OpFacts* facts = facts_of(op);
  if (facts != nullptr) return facts->name;
  thread_local char text[16];
  snprintf(text, sizeof(text), "op %u", op);
  return text;
}

pn_status read_plan(const pn_plan* from, Plan* out, pn_error* err) {
  pn_plan plan = {};
  if (from == nullptr) return fail(err, PN_INVALID, "the plan is NULL");
  if (!pn_read(&plan, sizeof(plan), from, sizeof(plan)))
    return fail(err, PN_UNSUPPORTED, "pn_plan says something newer than this plugin knows");
  if (plan.lanes == 0 || plan.ids_depth == 0 || plan.shape_count == 0 || plan.shapes == nullptr)
    return fail(err, PN_INVALID, "plan: %u lanes, ids_depth %u, %u shapes: at least 1 of each",
                plan.lanes, plan.ids_depth, plan.shape_count);
  if (plan.op_count != 0 && plan.ops == nullptr) return fail(err, PN_INVALID, "plan: ops are NULL");
  out->lanes = plan.lanes;
  out->ids_depth = plan.ids_depth;
  pn_status status = read_array(&out->slots, plan.slots, plan.slot_count, "slots", err);
  if (status == PN_OK)
    status = read_array(&out->weights, plan.weights, plan.weight_count, "weights", err);
  if (status == PN_OK)
    status = read_array(&out->caches, plan.caches, plan.cache_count, "caches", err);
  out->ops.resize(plan.op_count);
  for (uint32_t i = 0; status == PN_OK && i < plan.op_count; ++i)
    status = read_op(PN_AT_CONST(pn_op, plan.ops, i), i, &out->ops[i], err);
  if (status != PN_OK) return status;
  out->shapes.assign(plan.shapes, plan.shapes + plan.shape_count);
  for (uint32_t i = 0; i < plan.shape_count; ++i) {
    const pn_shape& shape = out->shapes[i];
    if (shape.tokens == 0 || shape.entries == 0 || shape.context == 0)
      return fail(err, PN_INVALID, "plan: shape %u has %u tokens, %u entries, context %u", i,
                  shape.tokens, shape.entries, shape.context);
    out->tokens = std::max(out->tokens, shape.tokens);
    out->entries = std::max(out->entries, shape.entries);
    out->rows = std::max(out->rows, shape.rows);
    out->context = std::max(out->context, shape.context);
  }
  return check_lists(*out, err);
}

}  // namespace pn::cpu
