// SPDX-License-Identifier: Apache-2.0
//
// What the host pays for a step: from the decision to the return of submit, on a plugin that
// computes nothing. The bound is 5 us for a 24-layer plan (median); the exit status says whether it
// held.
//
//   step_bench PATH/backend_null.so
#include <stdio.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "engine/plan/instance.h"
#include "engine/schedule/scheduler.h"
#include "tests/support/random_model.h"

namespace {

using namespace pn;
using namespace pn::engine;

constexpr uint32_t kSteps = 10000;
constexpr double kMedianMaxUs = 5;

class Nobody : public Sink {
 public:
  bool token(const Drawn&) override { return true; }
  void ended(const Ended& end) override {
    if (end.error && end.error->code != Code::cancelled)
      fprintf(stderr, "step_bench: %s\n", end.error->message.c_str());
  }
};

std::unique_ptr<Job> job_of(uint32_t prompt, uint32_t answer) {
  auto job = std::make_unique<Job>();
  job->tokens.reserve(prompt + answer);
  job->tokens.assign(prompt, 1);
  job->prompt_tokens = prompt;
  job->max_tokens = answer;
  job->setup.adapter = PN_NONE;
  job->setup.top_p = 1;
  job->setup.repeat_penalty = 1;
  job->sink = std::make_shared<Nobody>();
  return job;
}

Result<std::unique_ptr<Instance>> load(const std::string& plugin, uint32_t lanes) {
  hal::LoadRequest request;
  request.plugin = plugin;
  PN_TRY(std::shared_ptr<hal::Plugin> loaded, hal::Plugin::load(request));
  auto die = std::make_shared<Die>();
  PN_TRY(die->device, hal::Device::open(loaded, 0));
  die->id = die->device.id();

  test::ModelSpec spec;
  spec.layers = 24;
  spec.context = 32768;
  std::string path = (std::filesystem::temp_directory_path() / "pn-step-bench.gguf").string();
  PN_TRY(test::GgufWriter writer, test::random_model(spec));
  PN_TRY(writer.write(path));
  Result<std::shared_ptr<const gguf::File>> file = gguf::File::open(path);
  std::filesystem::remove(path);
  if (!file) return tl::make_unexpected(file.error());
  PN_TRY(std::shared_ptr<const arch::Model> model, arch::Model::load(*file));
  InstanceOptions options;
  options.model = "24 layers";
  options.slots = lanes;
  options.context = 32768;
  PN_TRY(std::unique_ptr<Instance> instance, Instance::plan(model, die, options));
  LoadProgress progress;
  PN_TRY(instance->load(progress));
  return instance;
}

Result<double> measure(const std::string& plugin, uint32_t lanes) {
  PN_TRY(std::unique_ptr<Instance> instance, load(plugin, lanes));
  Runner runner(instance->copy());
  for (uint32_t i = 0; i < lanes; ++i) {
    runner.counts.outstanding.fetch_add(1);
    runner.enqueue(job_of(64, 2 * kSteps + 100));
  }
  std::vector<double> us;
  us.reserve(kSteps);
  pn_progress progress{};
  pn_queue queue = runner.copy().queue;
  while (us.size() < kSteps && !runner.empty()) {
    uint64_t steps = runner.counts.steps.load();
    uint64_t start = now_ns();
    runner.pump(start);
    uint64_t took = now_ns() - start;
    uint64_t made = runner.counts.steps.load() - steps;
    if (made != 0) us.push_back(static_cast<double>(took) / 1000 / static_cast<double>(made));
    runner.copy().api->queue_query(1, &queue, &progress, nullptr);
    runner.collect(progress, now_ns());
  }
  if (us.size() < kSteps) return fail(Code::failed, "the sequences ended early");
  std::sort(us.begin(), us.end());
  double median = us[us.size() / 2];
  printf("%3u sequences: median %.2f us, p99 %.2f us a step, decision to return of submit\n", lanes,
         median, us[us.size() * 99 / 100]);
  return median;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: step_bench PATH/backend_null.so\n");
    return 2;
  }
  bool held = true;
  for (uint32_t lanes : {1u, 8u, 32u}) {
    Result<double> median = measure(argv[1], lanes);
    if (!median) {
      fprintf(stderr, "step_bench: %s\n", median.error().message.c_str());
      return 1;
    }
    held = held && (*median <= kMedianMaxUs || lanes > 8);
  }
  return held ? 0 : 1;
}
