// SPDX-License-Identifier: Apache-2.0
//
// Deciding: layouts, the plugin's answer, memory. What load() does is in instance_load.cc.
#include "engine/plan/instance.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/shapes.h"
#include "engine/sample/params.h"

namespace pn::engine {

Result<std::unique_ptr<Instance>> Instance::plan(std::shared_ptr<const arch::Model> model,
                                                 std::shared_ptr<Die> die,
                                                 const InstanceOptions& options) {
  std::unique_ptr<Instance> instance(new Instance);
  instance->model_ = std::move(model);
  instance->die_ = std::move(die);
  instance->options_ = options;
  PN_TRY(instance->decide());
  return instance;
}

Instance::~Instance() {
  if (!die_) return;
  const auto control = take_control(*die_);
  queue_ = {};
  program_ = {};
  for (auto* pool : {&staging_, &results_, &work_, &weights_}) pool->reset();
}

Result<void> Instance::decide() {
  uint32_t trained = model_->params().context;
  if (options_.context > trained) {
    return fail(Code::invalid,
                fmt::format("context {} was asked for {}, which was trained for {}: ask for at "
                            "most that",
                            options_.context, options_.model, trained),
                "context");
  }
  if (options_.slots == 0 || options_.slots > 1024) {
    return fail(Code::invalid, fmt::format("slots is {}, allowed is 1 to 1024", options_.slots),
                "slots");
  }
  context_ = options_.context != 0 ? options_.context : std::min(trained, kDefaultContext);
  arch::PlanOptions want;
  want.lanes = options_.slots;
  want.context = context_;
  want.page_tokens = kPageTokens;
  want.key_type = want.value_type = options_.kv_type;
  want.shapes = step_shapes(options_.slots, context_);
  PN_TRY(plan_, model_->plan(want));
  PN_TRY(check_caches());

  const auto control = take_control(*die_);
  uint32_t heap = find_heap(die_->device, PN_HEAP_BINDS);
  if (heap == PN_NONE) {
    return fail(Code::unsupported, die_->id + " has no heap that programs can read weights in");
  }
  PN_TRY(layouts_, choose_layouts(die_->device, heap, options_.loss, plan_));
  PN_TRY(report_, die_->device.query(plan_.view()));
  if (!report_.supported()) {
    return fail(Code::unsupported, fmt::format("{} cannot run {}: {}", die_->id, options_.model,
                                               report_.unsupported()));
  }
  PN_TRY(sampler_, die_->device.sampler());
  if (sampler_.features == 0) {
    return fail(Code::unsupported, fmt::format("{} does not draw tokens (its plugin lacks "
                                               "pantheon.sampler/1): use another plugin",
                                               die_->id));
  }
  PN_TRY(lay_out());
  PN_TRY(check_step_bytes());
  PN_TRY(pn_memory_status status, die_->device.memory_status());
  return check_memory(
      need_, status,
      {options_.model, die_->id, context_, options_.slots, kPageTokens, die_->budget});
}

Result<void> Instance::check_caches() {
  for (const pn_cache& cache : plan_.caches) {
    if (cache.kind == PN_CACHE_PAGED && cache.unit_tokens == kPageTokens) continue;
    return fail(Code::unsupported,
                fmt::format("{} ({}) keeps recurrent state or pages of its own size, which this "
                            "version does not schedule",
                            options_.model, model_->params().architecture));
  }
  return {};
}

// Adds every slice to its pool: from here on sizes are known, and nothing has been bought.
Result<void> Instance::lay_out() {
  const std::vector<pn_heap_info>& heaps = die_->device.heaps();
  uint32_t heap = find_heap(die_->device, PN_HEAP_BINDS);
  uint32_t out = find_heap(die_->device, PN_HEAP_RESULTS | PN_HEAP_HOST_VISIBLE);
  if (out == PN_NONE) {
    return fail(Code::unsupported, die_->id + " has no heap for results that the host can read");
  }
  weights_ = std::make_unique<Pool>(heaps[heap], heap);
  work_ = std::make_unique<Pool>(heaps[heap], heap);
  results_ = std::make_unique<Pool>(heaps[out], out);

  for (uint32_t i = 0; i < plan_.weights.size(); ++i) {
    const pn_layout_choice& choice = layouts_.choices[i];
    uint32_t shares = layouts_.shares[i];
    weight_items_.push_back(
        shares != i ? weight_items_[shares]
                    : weights_->add(choice.tile_count * choice.tile_bytes, choice.alignment));
  }
  uint32_t lane_pages = (context_ + kPageTokens - 1) / kPageTokens;
  page_count_ = lane_pages * options_.slots;
  for (uint64_t unit : report_.unit_bytes) {
    cache_items_.push_back(work_->add(unit * page_count_));
    need_.page_bytes += unit;
  }
  need_.pages = page_count_;
  scratch_item_ = work_->add(report_.head.scratch_bytes);
  ids_item_ = work_->add(sizeof(int32_t) * plan_.lanes * plan_.ids_depth);
  uint64_t records = static_cast<uint64_t>(kStepDepth) * options_.slots;
  uint64_t bias_bytes = records * kBiasMax * 8;
  bias_item_ = work_->add(bias_bytes);
  result_stride_ = round_up(sizeof(pn_result) + kTopLogprobsMax * sizeof(pn_candidate),
                            std::max(heaps[out].alignment, 64u));
  results_item_ = results_->add(records * result_stride_);
  if (!work_->host_visible()) {
    staging_ = std::make_unique<Pool>(heaps[out], out);
    staging_item_ = staging_->add(bias_bytes);
  }
  need_.weights = weights_->bytes();
  need_.scratch = report_.head.scratch_bytes;
  need_.program = report_.head.program_bytes;
  need_.other = work_->bytes() - std::min(work_->bytes(), need_.cache() + need_.scratch);
  if (out == heap) need_.other += results_->bytes();
  return {};
}

// Every lane must be able to decode in one step; chunks shrink to what is left.
Result<void> Instance::check_step_bytes() const {
  uint64_t lane = sizeof(pn_entry) + sizeof(pn_row) + sizeof(pn_lane) +
                  2 * plan_.caches.size() * sizeof(pn_pages);
  uint64_t least = options_.slots * lane + kChunkBesideDecode * sizeof(int32_t);
  uint64_t most = report_.head.step_bytes_max;
  if (most == 0 || most >= least) return {};
  return fail(Code::unsupported,
              fmt::format("{} takes steps of at most {} bytes, {} slots need {}: lower slots to {}",
                          die_->id, most, options_.slots, least, most / (lane + 512)),
              "slots");
}

bool Instance::has_numerics(uint32_t bit) const {
  return std::all_of(report_.spans.begin(), report_.spans.end(),
                     [bit](const pn_span& span) { return (span.numerics & bit) != 0; });
}

uint64_t Instance::decode_weight_bytes() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < plan_.weights.size(); ++i) {
    if (plan_.weights[i].role == PN_ROLE_TABLE || layouts_.shares[i] != i) continue;
    uint64_t bytes = layouts_.choices[i].tile_count * layouts_.choices[i].tile_bytes;
    const arch::HyperParams& p = model_->params();
    if (plan_.weights[i].role == PN_ROLE_EXPERTS && p.experts != 0) {
      bytes = bytes * p.experts_used / p.experts;
    }
    sum += bytes;
  }
  return sum;
}

}  // namespace pn::engine
