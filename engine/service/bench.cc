// SPDX-License-Identifier: Apache-2.0
//
// Prompts and decode steps built by hand from StepArrays and waited for with queue_wait, which
// serving may not use. Owns no figure but its own: the load's bytes come from the instance.
#include "engine/service/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/step.h"

namespace pn::engine {
namespace {

// A step of a big model on a slow host takes seconds; one that takes this long never ends.
constexpr uint64_t kStepWaitNs = 600'000'000'000ull;

StepArrays::Limits limits_of(const Copy& copy) {
  uint32_t lane_pages = (copy.context + copy.page_tokens - 1) / copy.page_tokens;
  auto caches = static_cast<uint32_t>(copy.caches.size());
  return {.tokens = copy.shapes.back().tokens,
          .lanes = copy.lanes,
          .history = 0,
          .pages = caches * copy.lanes * (lane_pages + 1),
          .bytes = 0};
}

void summarise(Speed& speed) {
  std::vector<double> sorted = speed.samples;
  std::sort(sorted.begin(), sorted.end());
  speed.median = sorted[sorted.size() / 2];
  speed.p10 = sorted[sorted.size() / 10];
}

Result<std::shared_ptr<Die>> open_die(const BenchConfig& config) {
  auto die = std::make_shared<Die>();
  PN_TRY(die->device, hal::Device::open(config.plugin, config.device));
  die->id = die->device.id();
  die->budget = config.budget;
  return die;
}

BenchResult facts(const BenchConfig& config, const Instance& instance) {
  const arch::HyperParams& params = instance.model().params();
  BenchResult result;
  result.file = config.file;
  result.architecture = params.architecture;
  result.plugin = config.plugin->name();
  result.die = instance.die().id;
  result.parameters = params.parameters;
  result.weight_bytes = instance.need().weights;
  result.decode_weight_bytes = instance.decode_weight_bytes();
  result.kv_bytes_per_token = instance.need().page_bytes / kPageTokens;
  result.prompt_tokens = config.prompt_tokens;
  result.decode_tokens = config.decode_tokens;
  result.batch = config.batch;
  for (const pn_heap_info& heap : instance.die().device.heaps()) {
    if (heap.kind == PN_HEAP_DEVICE) result.die_bytes_per_s = heap.read_bytes_per_s;
  }
  return result;
}

}  // namespace

Result<BenchResult> run_bench(const BenchConfig& config) {
  if (config.batch == 0 || config.prompt_tokens == 0 || config.rounds == 0) {
    return fail(Code::invalid, "batch, prompt tokens and rounds must be at least 1");
  }
  PN_TRY(auto file, gguf::File::open(config.file));
  PN_TRY(std::shared_ptr<const arch::Model> model, arch::Model::load(file));
  PN_TRY(std::shared_ptr<Die> die, open_die(config));
  InstanceOptions options;
  options.model = config.file;
  options.slots = config.batch;
  options.context = config.prompt_tokens + config.decode_tokens + 1;
  options.kv_type = config.kv_type;
  options.loss = config.loss;
  PN_TRY(std::unique_ptr<Instance> instance, Instance::plan(model, die, options));
  LoadProgress progress;
  uint64_t before = now_ns();
  PN_TRY(instance->load(progress));
  BenchResult result = facts(config, *instance);
  result.load_s = static_cast<double>(now_ns() - before) * 1e-9;

  RawLoop loop(instance->copy(), instance->vocab());
  for (uint32_t i = 0; i <= config.rounds; ++i) {
    PN_TRY(Round round, loop.round(config.batch, config.prompt_tokens, config.decode_tokens));
    if (i == 0) continue;  // pages of weights and code are touched for the first time
    double all = config.batch * 1e9;
    result.prompt.samples.push_back(all * config.prompt_tokens /
                                    static_cast<double>(round.prompt_ns));
    if (config.decode_tokens == 0) continue;
    result.decode.samples.push_back(all * config.decode_tokens /
                                    static_cast<double>(round.decode_ns));
  }
  summarise(result.prompt);
  if (config.decode_tokens == 0) return result;
  summarise(result.decode);
  double context = config.prompt_tokens + config.decode_tokens / 2.0;
  double step_bytes = static_cast<double>(result.decode_weight_bytes) +
                      config.batch * context * static_cast<double>(result.kv_bytes_per_token);
  result.decode_bytes_per_s = step_bytes * result.decode.median / config.batch;
  return result;
}

RawLoop::RawLoop(Copy copy, uint32_t vocab)
    : copy_(std::move(copy)), vocab_(vocab), value_(copy_.queue_value) {}

// Lane i owns pages [i * n, (i + 1) * n). Prompts go in one after the other, in the largest chunks.
Result<Round> RawLoop::round(uint32_t batch, uint32_t prompt_tokens, uint32_t decode_tokens) {
  StepArrays step(limits_of(copy_));
  Round round;
  uint64_t start = now_ns();
  std::vector<int32_t> prompt(prompt_tokens);
  for (uint32_t lane = 0; lane < batch; ++lane) {
    for (uint32_t i = 0; i < prompt_tokens; ++i) {
      prompt[i] = static_cast<int32_t>((i * 7919ull + lane * 104729ull + 3) % vocab_);
    }
    for (uint32_t done = 0; done < prompt_tokens;) {
      uint32_t count = std::min(copy_.shapes.back().tokens, prompt_tokens - done);
      step.clear();
      if (done == 0) set_up(step, lane, prompt_tokens + decode_tokens);
      uint32_t entry = step.give(lane, done, std::span(prompt).subspan(done, count));
      done += count;
      if (done == prompt_tokens) step.row(row(entry, count - 1, lane));
      PN_TRY(submit(step, done));
      PN_TRY(wait(value_ - 1));
    }
  }
  PN_TRY(wait(value_));
  round.prompt_ns = now_ns() - start;

  start = now_ns();
  for (uint32_t i = 0; i < decode_tokens; ++i) {
    step.clear();
    for (uint32_t lane = 0; lane < batch; ++lane) {
      uint32_t entry = step.feed(lane, prompt_tokens + i);
      step.row(row(entry, 0, lane));
    }
    PN_TRY(submit(step, prompt_tokens + i + 1));
    PN_TRY(wait(value_ - 1));
  }
  PN_TRY(wait(value_));
  round.decode_ns = now_ns() - start;
  return round;
}

void RawLoop::set_up(StepArrays& step, uint32_t lane, uint32_t tokens) {
  pn_lane setup{};
  setup.struct_size = sizeof(setup);
  setup.lane = lane;
  setup.flags = PN_LANE_RESET;
  setup.adapter = PN_NONE;
  setup.top_p = 1;
  setup.repeat_penalty = 1;
  step.lane(setup, {});
  uint32_t count = std::min((tokens + copy_.page_tokens - 1) / copy_.page_tokens,
                            copy_.page_count / copy_.lanes);
  std::vector<uint32_t> pages(count);
  std::iota(pages.begin(), pages.end(), lane * (copy_.page_count / copy_.lanes));
  for (uint32_t cache : copy_.caches) step.pages(cache, lane, 0, pages);
}

pn_row RawLoop::row(uint32_t entry, uint32_t token, uint32_t lane) const {
  pn_row row{};
  row.entry = entry;
  row.token = token;
  row.flags = PN_ROW_SAMPLE;
  uint64_t record = ((value_ + 1) % kStepDepth) * copy_.lanes + lane;
  row.target = {copy_.results.slice.buffer,
                copy_.results.slice.offset + record * copy_.results.stride, sizeof(pn_result)};
  return row;
}

Result<void> RawLoop::submit(StepArrays& arrays, uint32_t context) {
  pn_step step = arrays.view();
  pn_command run{};
  run.kind = PN_CMD_RUN;
  run.program = copy_.program;
  pn_shape need{arrays.run_tokens(), arrays.entries(), arrays.rows(), context};
  run.shape = pick_shape(copy_.shapes, need);
  pn_submit submit{};
  submit.struct_size = sizeof(submit);
  submit.command_count = submit.step_count = 1;
  submit.value = value_ + 1;
  submit.commands = &run;
  submit.steps = &step;
  pn_error error{};
  error.struct_size = sizeof(error);
  pn_status status = copy_.api->queue_submit(copy_.queue, &submit, &error);
  if (status != PN_OK) {
    return tl::unexpected<Error>(
        hal::to_error(copy_.die + ": a step of the measurement", status, error));
  }
  ++value_;
  return {};
}

Result<void> RawLoop::wait(uint64_t value) {
  if (value <= copy_.queue_value) return {};
  pn_error error{};
  error.struct_size = sizeof(error);
  pn_status status = copy_.api->queue_wait({copy_.queue, value}, kStepWaitNs, &error);
  if (status == PN_OK) return {};
  if (status == PN_NOT_READY) {
    return fail(Code::device_lost, copy_.die + " did not finish a step within ten minutes");
  }
  return tl::unexpected<Error>(hal::to_error(copy_.die + ": waiting for a step", status, error));
}

}  // namespace pn::engine
