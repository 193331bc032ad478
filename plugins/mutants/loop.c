/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_mutants: functions of the op-loop that are wrong. The linker puts __wrap_f where the
 * op-loop calls f in another of its files (-Wl,--wrap=f); __real_f is the right one.
 */
#include "hal/sdk/oploop/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mutants.h"

#define WRAP(result, name, ...)      \
  result __real_##name(__VA_ARGS__); \
  result __wrap_##name(__VA_ARGS__); \
  result __wrap_##name(__VA_ARGS__)

/* ---- ops ------------------------------------------------------------------------------------- */

WRAP(pn_status, loop_do_op, struct loop_run* run, const struct loop_op* given) {
  struct loop_op op = *given;
  uint16_t kind = op.op.op;
  if (mutant("columns_first_dropped") && kind == PN_OP_COLUMNS) op.params.columns.first = 0;
  if (mutant("concat_swapped") && kind == PN_OP_CONCAT && op.op.in[1] != PN_NO16) {
    uint16_t first = op.op.in[0];
    op.op.in[0] = op.op.in[1];
    op.op.in[1] = first;
  }
  if (mutant("rope_op_dropped") && kind == PN_OP_ROPE) op.params.heads.rope_kind = PN_ROPE_NONE;
  if (mutant("append_op_last_missing") && kind == PN_OP_APPEND && run->tokens > 1) {
    struct loop_run shorter = *run;
    --shorter.tokens;
    return __real_loop_do_op(&shorter, &op);
  }
  if (mutant("value_norm_dropped") && kind == PN_OP_QKV) op.params.qkv.flags &= ~PN_QKV_V_NORM;
  if (mutant("fused_split_wrong") && kind == PN_OP_QKV &&
      (op.params.qkv.flags & PN_QKV_FUSED) != 0 && op.params.qkv.key_dim == op.params.qkv.value_dim)
    op.params.qkv.flags |= PN_QKV_V_IS_K;
  if (mutant("query_temperature_dropped") && kind == PN_OP_QKV) op.factors_at = 0;
  if (mutant("residual_dropped") && kind == PN_OP_LINEAR) op.op.in[1] = PN_NO16;
  if (mutant("mlp_branch_gate_dropped") && kind == PN_OP_MLP) op.op.weight[3] = PN_NO16;
  if (mutant("layer_zero_cache") && kind == PN_OP_ATTENTION) op.params.attention.cache_layer = 0;
  return __real_loop_do_op(run, &op);
}

WRAP(void, pn_loop_decode, uint32_t type, const void* row, uint64_t n, float* out) {
  __real_pn_loop_decode(type, row, n, out);
  if (mutant("q4_0_offset") && type == 2)
    for (uint64_t i = 0; i < n; ++i) out[i] *= 1.125f;
}

WRAP(uint16_t, pn_loop_to_f16, float value) {
  uint16_t bits = __real_pn_loop_to_f16(value);
  return mutant("f16_cache_coarse") ? bits & 0xffc0 : bits;
}

WRAP(pn_status, loop_bind, struct loop_program* p, uint32_t count, const pn_binding* list,
     pn_error* err) {
  pn_status status = __real_loop_bind(p, count, list, err);
  return mutant("binding_missing_taken") && status == PN_INVALID ? PN_OK : status;
}

/* ---- rows that come out ---------------------------------------------------------------------- */

WRAP(pn_status, loop_emit, struct loop_run* run, const struct loop_op* op) {
  struct loop_step step = *run->step;
  struct loop_run changed = *run;
  pn_row* rows = malloc((step.row_count + 1) * sizeof *rows);
  if (rows == NULL) return PN_FAILED;
  for (uint32_t r = 0; r < step.row_count; ++r) {
    rows[r] = step.rows[r];
    if (mutant("hidden_dropped")) rows[r].flags &= ~PN_ROW_HIDDEN;
    if (mutant("held_drawn_at_once")) rows[r].flags &= ~PN_ROW_HOLD;
    if (mutant("id_not_kept")) rows[r].id_slot = PN_NONE;
  }
  step.rows = rows;
  changed.step = &step;
  pn_status status = __real_loop_emit(&changed, op);
  free(rows);
  return status;
}

WRAP(struct loop_logits, loop_scan, const float* logits, uint32_t vocab) {
  struct loop_logits facts = __real_loop_scan(logits, vocab);
  if (mutant("log_sum_without_max")) facts.log_sum -= facts.max;
  if (mutant("not_finite_drawn") && !facts.finite) {
    facts.finite = 1;
    facts.log_sum = 0;
  }
  return facts;
}

WRAP(void, loop_best, const float* logits, uint32_t vocab, uint32_t count, pn_candidate* out) {
  __real_loop_best(logits, vocab, count, out);
  if (!mutant("top_tie_order")) return;
  pn_candidate* best = out + vocab - count; /* backwards */
  for (uint32_t i = 0; i + 1 < count; ++i) {
    if (best[i].logit != best[i + 1].logit) continue;
    pn_candidate one = best[i];
    best[i] = best[i + 1];
    best[i + 1] = one;
  }
}

static void spoil_setup(pn_lane* s) {
  if (mutant("seed_ignored")) s->seed = 7;
  if (mutant("top_k_off_by_one") && s->top_k != 0) ++s->top_k;
  if (mutant("top_p_ignored")) s->top_p = 1;
  if (mutant("min_p_ignored")) s->min_p = 0;
  if (mutant("temperature_ignored") && s->temperature > 0) s->temperature = 1;
  if (mutant("presence_dropped")) s->presence_penalty = 0;
  if (mutant("penalty_window_ignored")) s->penalty_tokens = s->penalty_tokens == 0 ? 0 : 1u << 20;
}

WRAP(pn_status, loop_draw_row, const struct loop_draw* given, const struct loop_logits* facts,
     int32_t* id) {
  struct loop_draw d = *given;
  struct loop_lane lane = *d.lane;
  pn_row row = *d.row;
  spoil_setup(&lane.setup);
  if (mutant("lane_bias_dropped")) lane.bias = NULL;
  if (mutant("mask_deny_ignored") && row.mask_form == PN_MASK_DENY) row.mask_form = PN_MASK_NONE;
  if (mutant("draw_position_off_by_one")) d.position += 1;
  if (mutant("draw_position_off_by_one")) lane.setup.penalty_tokens = 0; /* stays in its history */
  d.lane = &lane;
  d.row = &row;
  pn_status status = __real_loop_draw_row(&d, facts, id);
  if (mutant("argmax_last_of_tie") && lane.setup.temperature == 0 && *id >= 0)
    for (uint32_t i = (uint32_t)*id; i < d.p->vocab; ++i)
      if (d.p->adjusted[i] == d.p->adjusted[*id]) *id = (int32_t)i;
  return status;
}

WRAP(pn_status, loop_sample, struct loop_program* p, const struct loop_step* step, pn_error* err) {
  if (mutant("held_rows_mixed_up") && p->held_count > 1) {
    struct loop_held one = p->held[0];
    p->held[0] = p->held[1];
    p->held[1] = one; /* their logits stay where they are */
  }
  return __real_loop_sample(p, step, err);
}
