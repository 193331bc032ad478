// SPDX-License-Identifier: Apache-2.0
//
// A model copy on a die: planned, bought, built and filled.
//
// Owns the plan, the buffers, the program and the queue of one copy. Knows the architecture's plan
// and the HAL; runs nothing. The one idea: plan() decides everything and takes nothing, load()
// executes exactly that, so what was shown is what is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/convert.h"
#include "engine/plan/die.h"
#include "engine/plan/layouts.h"
#include "engine/plan/memory.h"
#include "engine/plan/pool.h"
#include "engine/schedule/copy.h"
#include "hal/host/result.h"
#include "models/arch/plan.h"

namespace pn::engine {

inline constexpr uint32_t kDefaultContext = 8192;  // min(model, this) where nothing is asked
inline constexpr uint32_t kPageTokens = 64;
inline constexpr uint32_t kBiasMax = 512;  // pairs of one request's logit_bias

struct InstanceOptions {
  std::string model;     // name, for messages
  uint32_t context = 0;  // 0: min(model, kDefaultContext)
  uint32_t slots = 4;    // sequences alive at once
  uint32_t kv_type = PN_TYPE_F16;
  uint32_t loss = PN_LOSS_BOUNDED;  // the most that layout conversion may lose
  uint32_t threads = 0;             // of the load; 0: one a core
};

class Instance {
 public:
  // Refuses with the plugin's reason, with the tensor, or with what memory would do.
  static Result<std::unique_ptr<Instance>> plan(std::shared_ptr<const arch::Model> model,
                                                std::shared_ptr<Die> die,
                                                const InstanceOptions& options);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Blocks until the copy can run. After an error the instance is only good to be destroyed.
  Result<void> load(LoadProgress& progress);
  // For the scheduler; what it names lives as long as this.
  Copy copy();

  const MemoryNeed& need() const { return need_; }
  const arch::Model& model() const { return *model_; }
  uint32_t context() const { return context_; }
  uint32_t slots() const { return options_.slots; }
  uint32_t vocab() const { return model_->params().vocab; }
  const pn_sampler_info& sampler() const { return sampler_; }
  bool batch_invariant() const { return has_numerics(PN_NUMERICS_BATCH_INVARIANT); }
  const Die& die() const { return *die_; }
  // Bytes that one decode step of one sequence reads, for a roofline: weights but for the table
  // that is only gathered from.
  uint64_t decode_weight_bytes() const;
  const hal::Report& report() const { return report_; }
  const std::vector<pn_shape>& shapes() const { return plan_.shapes; }

 private:
  Instance() = default;
  Result<void> decide();
  Result<void> check_caches();
  Result<void> lay_out();
  Result<void> check_step_bytes() const;
  Result<void> buy();
  Result<void> build();
  Result<void> wait_built(const std::function<bool()>& give_up) const;
  ConvertJob conversion();
  std::vector<pn_binding> bindings() const;
  bool has_numerics(uint32_t bit) const;
  Result<Copy::Replacement> replace();

  std::shared_ptr<const arch::Model> model_;
  std::shared_ptr<Die> die_;
  InstanceOptions options_;
  uint32_t context_ = 0;
  arch::Plan plan_;
  WeightLayouts layouts_;
  hal::Report report_;
  pn_sampler_info sampler_{};
  MemoryNeed need_;
  uint32_t page_count_ = 0;

  // Members below are destroyed in the order queue, program, pools.
  std::unique_ptr<Pool> weights_, work_, results_, staging_;
  std::vector<size_t> weight_items_, cache_items_;
  size_t scratch_item_ = 0, ids_item_ = 0, bias_item_ = 0, results_item_ = 0, staging_item_ = 0;
  uint64_t result_stride_ = 0;
  hal::Program program_;
  hal::Queue queue_;
};

}  // namespace pn::engine
