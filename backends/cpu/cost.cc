// SPDX-License-Identifier: Apache-2.0
//
// Cost: the larger of bytes over bandwidth and multiply-adds over their rate, plus barriers.
#include "backends/cpu/cost.h"

#include <algorithm>

#include "backends/cpu/kernels/matmul.h"

namespace pn::cpu {
namespace {

// Rates of one core, and where more cores stop helping. Rough on purpose: placement compares dies
// that differ by factors. Measured on 2 Zen 3 cores: 12-15 GB/s a core with huge pages, 100-130
// G multiply-adds a second with AVX2 on 8-bit products.
constexpr double kBytesPerNsCore = 12;
constexpr double kBytesPerNsMax = 150;
constexpr double kMacsPerNsCore = 90;
constexpr double kBarrierNs = 500;
constexpr double kBarriersPerOp = 1.5;

double weight_bytes(const pn_weight& w) {
  return static_cast<double>(tile_count(w.shape[1])) *
         static_cast<double>(tile_bytes(w.source_type, w.shape[0]));
}

}  // namespace

pn_cost predict(const Plan& plan, const Compiled& code, const pn_shape& shape, uint32_t threads) {
  double bytes = 0, macs = 0;
  for (const PlanOp& planned : plan.ops) {
    const pn_op& op = planned.op;
    const uint32_t rows =
        op.in[0] != PN_NO16 && plan.slots[op.in[0]].rows == PN_ROWS_OUT ? shape.rows : shape.tokens;
    for (uint16_t index : op.weight) {
      if (index == PN_NO16) continue;
      const pn_weight& w = plan.weights[index];
      const double elements = static_cast<double>(w.shape[0]) * static_cast<double>(w.shape[1]);
      if (op.op == PN_OP_EMBED || !type_supported(w.source_type)) continue;
      if (w.role == PN_ROLE_EXPERTS) {
        const double used = op.in[1] == PN_NO16 ? 1 : plan.slots[op.in[1]].width;
        bytes += weight_bytes(w) * std::min(static_cast<double>(w.shape[2]), used * rows);
        macs += elements * used * rows;
      } else if (w.role == PN_ROLE_MATRIX || w.role == PN_ROLE_TIED) {
        bytes += weight_bytes(w);
        macs += elements * rows;
      }
    }
    if (op.op != PN_OP_ATTENTION) continue;
    const auto& a = planned.as<pn_op_attention>();
    const double seen = a.window == 0 ? shape.context : std::min(a.window, shape.context);
    const double row = a.kv_heads * (a.key_dim + a.value_dim);
    const uint32_t element = a.cache < code.caches.size() ? code.caches[a.cache].key_bytes : 2;
    bytes += seen * row * element * shape.entries;
    macs += seen * a.query_heads * (a.key_dim + a.value_dim) * shape.tokens;
  }
  const double bandwidth = std::min(kBytesPerNsCore * threads, kBytesPerNsMax);
  const double ns = std::max(bytes / bandwidth, macs / (kMacsPerNsCore * threads)) +
                    static_cast<double>(code.ops.size()) * kBarriersPerOp * kBarrierNs;
  pn_cost cost = {};
  cost.struct_size = sizeof(cost);
  cost.predicted_ns = static_cast<uint64_t>(ns);
  cost.device_bytes = static_cast<uint64_t>(bytes);
  return cost;
}

}  // namespace pn::cpu
