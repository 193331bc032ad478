// SPDX-License-Identifier: Apache-2.0
//
// A plan as the plugin keeps it: read in once, checked for shape, with nothing borrowed.
//
// Owns the copy and its structural checks (numbers in range, sizes known). What an op may not do
// with what it names is the op's own check (ops.h).
#pragma once

#include <pantheon/ops.h>
#include <pantheon/plan.h>

#include <vector>

namespace pn::cpu {

inline constexpr uint32_t kParamsMax = 64;  // the longest params struct, pn_op_qkv, has 56 bytes

struct PlanOp {
  pn_op op = {};
  alignas(8) unsigned char params[kParamsMax] = {};  // the op's struct as of today, or zeros
  template <typename T>
  const T& as() const {
    return *reinterpret_cast<const T*>(params);
  }
};

struct Plan {
  uint32_t lanes = 0;
  uint32_t ids_depth = 1;
  std::vector<PlanOp> ops;
  std::vector<pn_slot> slots;
  std::vector<pn_weight> weights;
  std::vector<pn_cache> caches;
  std::vector<pn_shape> shapes;

  // Maxima over the shapes.
  uint32_t tokens = 0, entries = 0, rows = 0, context = 0;
  uint32_t slot_rows(uint32_t slot) const {
    return slots[slot].rows == PN_ROWS_TOKENS ? tokens : rows;
  }
};

// PN_OK, PN_INVALID or PN_UNSUPPORTED (a struct longer than known that says something). Unknown ops
// and revisions pass: the query answers them with an UNSUPPORTED span.
pn_status read_plan(const pn_plan* from, Plan* out, pn_error* err);

// "EMBED" ...; "op 77" for an unknown one (static text of the last call's thread).
const char* op_name(uint16_t op);

}  // namespace pn::cpu
