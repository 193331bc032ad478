// SPDX-License-Identifier: Apache-2.0
//
// Executing what was decided: buffers, program, weights, queue.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/plan/instance.h"
#include "hal/host/watch.h"

namespace pn::engine {
namespace {

constexpr auto kRebuildMax = std::chrono::seconds(10);
constexpr uint32_t kQueueDepth = 8;  // what every plugin offers; kStepDepth of it is used

pn_binding bind(uint32_t kind, uint32_t index, const pn_slice& slice) {
  return {.kind = kind, .index = index, .first_part = 0, .part_count = 0, .slice = slice};
}

}  // namespace

Result<void> Instance::load(LoadProgress& progress) {
  {
    const auto control = take_control(*die_);
    PN_TRY(buy());
    PN_TRY(build());
  }
  ConvertJob job = conversion();
  PN_TRY(convert_weights(job, progress));
  return wait_built([&progress] { return progress.cancel.load(); });
}

Result<void> Instance::buy() {
  for (auto* pool : {&weights_, &work_, &results_, &staging_}) {
    if (!*pool) continue;
    Result<void> bought = (*pool)->commit(die_->device);
    if (bought) continue;
    Error error = std::move(bought).error();
    error.message = fmt::format("{} needs {} on {}: {}", options_.model, bytes_text(need_.total()),
                                die_->id, error.message);
    return tl::make_unexpected(std::move(error));
  }
  return {};
}

Result<void> Instance::build() {
  std::vector<pn_binding> all = bindings();
  PN_TRY(program_, die_->device.create_program(plan_.view(), all));
  PN_TRY(queue_, die_->device.create_queue(PN_QUEUE_RUN, kQueueDepth));
  return {};
}

std::vector<pn_binding> Instance::bindings() const {
  std::vector<pn_binding> all;
  for (uint32_t i = 0; i < plan_.weights.size(); ++i) {
    all.push_back(bind(PN_BIND_WEIGHT, i, weights_->slice(weight_items_[i])));
  }
  for (uint32_t i = 0; i < plan_.caches.size(); ++i) {
    pn_slice slice = work_->slice(cache_items_[i]);
    slice.bytes = report_.unit_bytes[i] * page_count_;
    all.push_back(bind(PN_BIND_CACHE, i, slice));
  }
  all.push_back(bind(PN_BIND_SCRATCH, 0, work_->slice(scratch_item_)));
  pn_slice ids = work_->slice(ids_item_);
  ids.bytes = sizeof(int32_t) * plan_.lanes * plan_.ids_depth;
  all.push_back(bind(PN_BIND_IDS, 0, ids));
  return all;
}

// In file order, so that a disk reads forwards; computed weights first.
ConvertJob Instance::conversion() {
  ConvertJob job;
  job.die = die_.get();
  job.file = &model_->file();
  job.layout = layouts_.convert ? &*layouts_.convert : nullptr;
  job.load = static_cast<const pn_load_api*>(die_->device.plugin().raw_interface(PN_LOAD_ID));
  job.threads = options_.threads != 0 ? options_.threads : std::thread::hardware_concurrency();
  for (uint32_t i = 0; i < plan_.weights.size(); ++i) {
    if (layouts_.shares[i] != i) continue;
    job.transfers.push_back({&plan_.weights[i], &plan_.sources[i], layouts_.choices[i],
                             weights_->slice(weight_items_[i]), weights_->host(weight_items_[i])});
  }
  auto place = [](const Transfer& t) -> std::pair<uint32_t, uint64_t> {
    if (t.source->tensor == nullptr) return {0, 0};
    return {t.source->tensor->shard, t.source->tensor->offset + 1};
  };
  std::stable_sort(job.transfers.begin(), job.transfers.end(),
                   [&](const Transfer& a, const Transfer& b) { return place(a) < place(b); });
  return job;
}

Result<void> Instance::wait_built(const std::function<bool()>& give_up) const {
  for (;;) {
    PN_TRY(pn_program_status status, program_.status());
    if (status.state == PN_PROGRAM_READY) return {};
    if (give_up()) return fail(Code::cancelled, "the program was not built in time");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Copy Instance::copy() {
  Copy copy;
  copy.model = options_.model;
  copy.die = die_->id;
  copy.api = &die_->device.plugin().table();
  copy.device = die_->device.handle();
  if (die_->device.plugin().isolation() != nullptr) copy.patience = hal::kIsolatedPatience;
  copy.queue = queue_.handle();
  copy.program = program_.handle();
  copy.shapes = plan_.shapes;
  for (const pn_cost& cost : report_.costs) copy.predicted_ns.push_back(cost.predicted_ns);
  for (uint32_t i = 0; i < plan_.caches.size(); ++i) copy.caches.push_back(i);
  copy.lanes = options_.slots;
  copy.context = context_;
  copy.page_tokens = kPageTokens;
  copy.page_count = page_count_;
  copy.token_multiple = std::max(1u, report_.head.token_multiple);
  copy.step_bytes_max = report_.head.step_bytes_max;
  copy.reuse_prefix = has_numerics(PN_NUMERICS_CHUNK_INVARIANT);
  copy.results = {results_->slice(results_item_), results_->host(results_item_), result_stride_};
  copy.bias.slice = work_->slice(bias_item_);
  copy.bias.pairs = kBiasMax;
  if (staging_) {
    copy.bias.staging = staging_->slice(staging_item_);
    copy.bias.host = staging_->host(staging_item_);
  } else {
    copy.bias.host = work_->host(bias_item_);
  }
  copy.replace = [this] { return replace(); };
  return copy;
}

// On the scheduler's thread, which waits for the build: seconds at most where plugins keep compiled
// programs, and nothing else can run on this copy meanwhile.
Result<Copy::Replacement> Instance::replace() {
  {
    const auto control = take_control(*die_);
    queue_ = {};
    program_ = {};
    PN_TRY(build());
  }
  auto end = std::chrono::steady_clock::now() + kRebuildMax;
  PN_TRY(wait_built([end] { return std::chrono::steady_clock::now() > end; }));
  return Copy::Replacement{queue_.handle(), program_.handle()};
}

}  // namespace pn::engine
