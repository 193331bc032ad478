// SPDX-License-Identifier: Apache-2.0
//
// Buys what a Copy names straight from the fake plugin's table; frees nothing, since reset() does.
// Knows no file and no plan beyond shapes and pages.
#include "tests/support/fake_copy.h"

#include <chrono>

namespace pn::test {
namespace {

pn_slice area(const pn_plugin* api, uint32_t heap, uint64_t bytes, void** host) {
  pn_buffer buffer{};
  api->buffer_create(pn_device{1}, heap, bytes, &buffer, host, nullptr);
  return {buffer, 0, bytes};
}

std::atomic<uint64_t> g_ended{0};

}  // namespace

engine::Copy fake_copy(const FakeShape& shape) {
  const pn_plugin* api = FakePlugin::table();
  engine::Copy copy;
  copy.model = "scripted";
  copy.die = "fake:0";
  copy.api = api;
  copy.device = pn_device{1};
  copy.lanes = shape.lanes;
  copy.context = shape.context;
  copy.page_tokens = shape.page_tokens;
  uint32_t lane_pages = (shape.context + shape.page_tokens - 1) / shape.page_tokens;
  copy.page_count = shape.pages != 0 ? shape.pages : lane_pages * shape.lanes;
  copy.caches = {0};
  copy.reuse_prefix = shape.reuse;
  copy.shapes = {{1, 1, 1, shape.context},
                 {shape.lanes, shape.lanes, shape.lanes, shape.context},
                 {shape.tokens, shape.lanes, shape.lanes, shape.context}};
  copy.predicted_ns = {0, 0, 0};

  pn_cache cache{};
  cache.struct_size = sizeof(cache);
  cache.unit_tokens = shape.page_tokens;
  pn_plan plan{};
  plan.struct_size = sizeof(plan);
  plan.lanes = shape.lanes;
  plan.cache_count = 1;
  plan.caches = &cache;
  plan.shape_count = 3;
  plan.shapes = copy.shapes.data();
  api->program_create(copy.device, &plan, 0, nullptr, &copy.program, nullptr);
  api->queue_create(copy.device, PN_QUEUE_RUN, 8, &copy.queue, nullptr);

  void* host = nullptr;
  copy.results.stride = 512;
  uint64_t records = engine::kStepDepth * shape.lanes;
  copy.results.slice = area(api, 1, records * copy.results.stride, &host);
  copy.results.host = static_cast<const std::byte*>(host);
  copy.bias.pairs = 8;
  uint64_t bias_bytes = records * copy.bias.pairs * 8;
  copy.bias.slice = area(api, 0, bias_bytes, &host);
  if (shape.staged_bias) copy.bias.staging = area(api, 1, bias_bytes, &host);
  copy.bias.host = static_cast<std::byte*>(host);
  copy.replace = [api, program = copy.program,
                  failed = copy.queue]() mutable -> Result<engine::Copy::Replacement> {
    pn_queue fresh{};
    api->queue_create(pn_device{1}, PN_QUEUE_RUN, 8, &fresh, nullptr);
    api->queue_destroy(failed);
    failed = fresh;
    return engine::Copy::Replacement{fresh, program};
  };
  return copy;
}

bool Collector::token(const engine::Drawn& drawn) {
  std::lock_guard lock(mutex_);
  ids_.push_back(drawn.id);
  changed_.notify_all();
  return drawn.id != stop_id_;
}

void Collector::ended(const engine::Ended& end) {
  std::lock_guard lock(mutex_);
  end_ = end;
  ++ended_;
  order_ = ++g_ended;
  changed_.notify_all();
}

bool Collector::wait(uint64_t ms) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return ended_ != 0; });
}

bool Collector::wait_tokens(size_t n, uint64_t ms) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(ms),
                           [this, n] { return ids_.size() >= n; });
}

std::vector<int32_t> Collector::ids() {
  std::lock_guard lock(mutex_);
  return ids_;
}

engine::Ended Collector::end() {
  std::lock_guard lock(mutex_);
  return end_;
}

bool Collector::has_ended() {
  std::lock_guard lock(mutex_);
  return ended_ != 0;
}

int Collector::times_ended() {
  std::lock_guard lock(mutex_);
  return ended_;
}

uint64_t Collector::order() {
  std::lock_guard lock(mutex_);
  return order_;
}

std::unique_ptr<engine::Job> fake_job(std::vector<int32_t> prompt, uint32_t max_tokens,
                                      std::shared_ptr<engine::Sink> sink) {
  auto job = std::make_unique<engine::Job>();
  job->prompt_tokens = static_cast<uint32_t>(prompt.size());
  job->max_tokens = max_tokens;
  job->tokens = std::move(prompt);
  job->tokens.reserve(job->prompt_tokens + max_tokens);
  job->sink = std::move(sink);
  return job;
}

std::vector<int32_t> fake_answer(std::vector<int32_t> prompt, uint32_t max_tokens, int32_t stop_id,
                                 uint32_t vocab) {
  std::vector<int32_t> answer;
  while (answer.size() < max_tokens) {
    answer.push_back(fake_next(prompt, vocab));
    prompt.push_back(answer.back());
    if (answer.back() == stop_id) break;
  }
  return answer;
}

}  // namespace pn::test
