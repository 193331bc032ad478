// SPDX-License-Identifier: Apache-2.0
//
// The smallest plan that reads ids and draws some: EMBED -> EMIT over one table, one paged cache.
// Owns every array that it points to; knows no plugin.
#pragma once

#include <pantheon/hal.h>

namespace pn::test {

struct TinyPlan {
  static constexpr uint32_t kVocab = 97;
  static constexpr uint32_t kPageTokens = 16;
  static constexpr uint32_t kContext = 64;
  static constexpr uint32_t kLanes = 2;

  pn_op_embed embed{sizeof(pn_op_embed), 1.0f};
  pn_op_emit emit{sizeof(pn_op_emit), kVocab};
  pn_op ops[2]{};
  pn_slot slots[1]{};
  pn_weight weight{};
  pn_cache cache{};
  pn_shape shape{8, kLanes, kLanes, kContext};
  pn_plan plan{};

  TinyPlan() {
    for (pn_op& op : ops) {
      op.struct_size = sizeof op;
      for (uint16_t& n : op.in) n = PN_NO16;
      for (uint16_t& n : op.out) n = PN_NO16;
      for (uint16_t& n : op.weight) n = PN_NO16;
    }
    ops[0].op = PN_OP_EMBED;
    ops[0].out[0] = 0;
    ops[0].weight[0] = 0;
    ops[0].params = &embed;
    ops[1].op = PN_OP_EMIT;
    ops[1].in[0] = 0;
    ops[1].params = &emit;
    slots[0] = {sizeof(pn_slot), PN_SLOT_INTERNAL, PN_ROWS_TOKENS, kVocab, PN_TYPE_F32, 0};
    weight.struct_size = sizeof weight;
    weight.role = PN_ROLE_TABLE;
    weight.source_type = PN_TYPE_F32;
    weight.shape[0] = 8;
    weight.shape[1] = kVocab;
    weight.shape[2] = weight.shape[3] = 1;
    weight.bias = weight.scale = weight.adapter_a = weight.adapter_b = PN_NO16;
    cache = {sizeof cache,
             PN_CACHE_PAGED,
             kPageTokens,
             1,
             PN_TYPE_F16,
             PN_TYPE_F16,
             kContext / kPageTokens,
             0};
    plan = {sizeof plan, kLanes, 2, 1, 1, 1, 1, 1, ops, slots, &weight, &cache, &shape};
  }
};

}  // namespace pn::test
