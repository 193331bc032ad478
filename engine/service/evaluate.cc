// SPDX-License-Identifier: Apache-2.0
//
// One token a step, one row a step: slow and simple, since batch invariance makes it equal to what
// serving computes. See evaluate.h.
#include "engine/service/evaluate.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "engine/schedule/step.h"

namespace pn::engine {

namespace {

constexpr uint64_t kStepWaitNs = 600'000'000'000ull;

pn_lane fresh_lane() {
  pn_lane lane{};
  lane.struct_size = sizeof(lane);
  lane.flags = PN_LANE_RESET;
  lane.adapter = PN_NONE;
  lane.top_p = 1;
  lane.repeat_penalty = 1;
  return lane;
}

}  // namespace

Result<std::unique_ptr<Evaluator>> Evaluator::open(const EvaluateConfig& config) {
  std::unique_ptr<Evaluator> e(new Evaluator());
  PN_TRY(auto file, gguf::File::open(config.file));
  PN_TRY(std::shared_ptr<const arch::Model> model, arch::Model::load(file));
  e->die_ = std::make_shared<Die>();
  PN_TRY(e->die_->device, hal::Device::open(config.plugin, config.device));
  e->die_->id = e->die_->device.id();
  InstanceOptions options;
  options.model = config.file;
  options.slots = 1;
  options.context = config.context;
  options.kv_type = config.kv_type;
  PN_TRY(e->instance_, Instance::plan(model, e->die_, options));
  LoadProgress progress;
  PN_TRY(e->instance_->load(progress));
  e->copy_ = e->instance_->copy();
  e->value_ = e->copy_.queue_value;
  e->vocab_ = e->instance_->vocab();
  const hal::Device& device = e->die_->device;
  for (uint32_t heap = 0; heap < device.heaps().size(); ++heap) {
    const uint32_t want = PN_HEAP_RESULTS | PN_HEAP_HOST_VISIBLE;
    if (e->out_ || (device.heaps()[heap].flags & want) != want) continue;
    PN_TRY(e->out_, device.create_buffer(heap, uint64_t{e->vocab_} * sizeof(float)));
  }
  if (!e->out_)
    return fail(Code::unsupported,
                e->die_->id + " has no heap for results that the host can read in place");
  return e;
}

Result<void> Evaluator::step(std::span<const int32_t> ids, uint32_t position) {
  const uint32_t pages = (copy_.context + copy_.page_tokens - 1) / copy_.page_tokens;
  StepArrays arrays({.tokens = 1,
                     .lanes = 1,
                     .history = 0,
                     .pages = static_cast<uint32_t>(copy_.caches.size()) * (pages + 1),
                     .bytes = 0});
  if (position == 0) {
    arrays.lane(fresh_lane(), {});
    std::vector<uint32_t> numbers(std::min(pages, copy_.page_count));
    std::iota(numbers.begin(), numbers.end(), 0u);
    for (const uint32_t cache : copy_.caches) arrays.pages(cache, 0, 0, numbers);
  }
  pn_row row{};
  row.entry = arrays.give(0, position, ids.subspan(position, 1));
  row.flags = PN_ROW_LOGITS;
  row.id_slot = PN_NONE;
  row.target = out_.slice(0, uint64_t{vocab_} * sizeof(float));
  arrays.row(row);
  const pn_step view = arrays.view();
  pn_command run{};
  run.kind = PN_CMD_RUN;
  run.program = copy_.program;
  run.shape = pick_shape(copy_.shapes, {1, 1, 1, position + 1});
  pn_submit submit{};
  submit.struct_size = sizeof(submit);
  submit.command_count = submit.step_count = 1;
  submit.value = ++value_;
  submit.commands = &run;
  submit.steps = &view;
  pn_error error{};
  error.struct_size = sizeof(error);
  pn_status status = copy_.api->queue_submit(copy_.queue, &submit, &error);
  if (status == PN_OK) status = copy_.api->queue_wait({copy_.queue, value_}, kStepWaitNs, &error);
  if (status == PN_OK) return {};
  return tl::unexpected<Error>(hal::to_error(
      fmt::format("{}: evaluating the token at {}", copy_.die, position), status, error));
}

Result<std::vector<float>> Evaluator::logits(std::span<const int32_t> ids) {
  if (ids.size() > copy_.context)
    return fail(Code::invalid,
                fmt::format("{} tokens do not fit a context of {}", ids.size(), copy_.context));
  std::vector<float> all(ids.size() * vocab_);
  for (uint32_t i = 0; i < ids.size(); ++i) {
    PN_TRY(step(ids, i));
    std::memcpy(all.data() + size_t{i} * vocab_, out_.host(), size_t{vocab_} * sizeof(float));
  }
  return all;
}

}  // namespace pn::engine
