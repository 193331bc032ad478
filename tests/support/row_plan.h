// SPDX-License-Identifier: Apache-2.0
//
// The smallest plan that draws: EMBED -> EMIT over one table of {8, 16} F32, 2 lanes, one shape.
#pragma once

#include <pantheon/hal.h>

namespace pn::test {

struct RowPlan {
  pn_op_embed embed{sizeof(pn_op_embed), 1.0f};
  pn_op_emit emit{sizeof(pn_op_emit), 16};
  pn_op ops[2]{};
  pn_slot slots[1]{};
  pn_weight weight{};
  pn_shape shape{4, 2, 2, 64};
  pn_plan plan{};

  RowPlan() {
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
    slots[0] = {sizeof(pn_slot), PN_SLOT_INTERNAL, PN_ROWS_TOKENS, 16, PN_TYPE_F32, 0};
    weight.struct_size = sizeof weight;
    weight.role = PN_ROLE_TABLE;
    weight.layer = 7;
    weight.source_type = PN_TYPE_F32;
    for (int i = 0; i < 4; ++i) weight.shape[i] = i == 0 ? 8 : i == 1 ? 16 : 1;
    weight.bias = weight.scale = weight.adapter_a = weight.adapter_b = PN_NO16;
    plan = {sizeof plan, 2, 2, 1, 1, 0, 1, 1, ops, slots, &weight, nullptr, &shape};
  }
  RowPlan(const RowPlan&) = delete;
  RowPlan& operator=(const RowPlan&) = delete;
};

}  // namespace pn::test
