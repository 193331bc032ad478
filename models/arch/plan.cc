// SPDX-License-Identifier: Apache-2.0
//
// The C view of a plan.
//
// Owns nothing but the copy of pointers and counts. The one idea: a Plan holds what the view points
// to, so the view is cheap and short-lived.
#include "models/arch/plan.h"

namespace pn::arch {

pn_plan Plan::view() const {
  pn_plan v{};
  v.struct_size = sizeof v;
  v.lanes = lanes;
  v.op_count = static_cast<uint32_t>(ops.size());
  v.slot_count = static_cast<uint32_t>(slots.size());
  v.weight_count = static_cast<uint32_t>(weights.size());
  v.cache_count = static_cast<uint32_t>(caches.size());
  v.shape_count = static_cast<uint32_t>(shapes.size());
  v.ids_depth = ids_depth;
  v.ops = ops.data();
  v.slots = slots.data();
  v.weights = weights.data();
  v.caches = caches.data();
  v.shapes = shapes.data();
  return v;
}

}  // namespace pn::arch
