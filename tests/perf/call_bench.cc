// SPDX-License-Identifier: Apache-2.0
//
// What one call through the plugin's table costs, direct and with the validation layer in front, on
// a plugin that computes nothing. No bound: it prints the figures of docs/performance.md.
//
//   call_bench PATH/backend_null.so
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>

#include "hal/host/hal.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_plan.h"

namespace {

using namespace pn;

constexpr uint32_t kCalls = 20000;  // of one sample
constexpr int kSamples = 31;

struct Rig {
  test::TinyPlan tiny;
  std::shared_ptr<hal::Plugin> plugin;
  hal::Device device;
  hal::Buffer pool, results;
  hal::Program program;
  hal::Queue queue;
  uint64_t value = 0;
};

Result<void> build(const std::string& path, Rig& rig) {
  hal::LoadRequest request;
  request.plugin = path;
  PN_TRY(rig.plugin, hal::Plugin::load(request));
  PN_TRY(rig.device, hal::Device::open(rig.plugin, 0));
  PN_TRY(rig.pool, rig.device.create_buffer(0, 1 << 16));
  PN_TRY(rig.results, rig.device.create_buffer(1, 1 << 12));
  const pn_binding bindings[] = {{PN_BIND_WEIGHT, 0, 0, 0, rig.pool.slice(0, 4096)},
                                 {PN_BIND_CACHE, 0, 0, 0, rig.pool.slice(4096, 4096)},
                                 {PN_BIND_SCRATCH, 0, 0, 0, rig.pool.slice(8192, 4096)},
                                 {PN_BIND_IDS, 0, 0, 0, rig.pool.slice(16384, 8)}};
  PN_TRY(rig.program, rig.device.create_program(rig.tiny.plan, bindings));
  PN_TRY(rig.program.wait_ready(1'000'000'000));
  PN_TRY(rig.queue, rig.device.create_queue(PN_QUEUE_RUN, 8));
  return {};
}

double median_ns(const std::function<void()>& call) {
  std::vector<double> samples;
  for (int s = 0; s < kSamples; ++s) {
    const auto start = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    samples.push_back(took.count() / kCalls);
  }
  std::sort(samples.begin(), samples.end());
  return samples[kSamples / 2];
}

Result<void> measure(const char* what, Rig& rig) {
  const pn_plugin& api = rig.plugin->table();
  const pn_queue queue = rig.queue.handle();
  pn_error err{};
  err.struct_size = sizeof err;
  pn_progress progress{};
  pn_status worst = PN_OK;
  const double query =
      median_ns([&] { worst = std::min(worst, api.queue_query(1, &queue, &progress, &err)); });
  const int32_t token = 1;
  const pn_entry entry{0, 1, 0, 0, PN_NONE, PN_NONE, 0, 0};
  const pn_row row{0, 0, PN_ROW_SAMPLE, 0, 0, PN_MASK_NONE, 0, 0, {}, rig.results.slice(0, 16)};
  const pn_step step{sizeof step, 1, 0, 0, 1, 1, &token, nullptr, nullptr, &entry, &row};
  pn_command run{};
  run.kind = PN_CMD_RUN;
  run.program = rig.program.handle();
  const double submit = median_ns([&] {
    const pn_submit one{sizeof one, 0, 1, 1, ++rig.value, nullptr, &run, &step};
    worst = std::min(worst, api.queue_submit(queue, &one, &err));
    if (rig.value % 64 == 0) api.queue_query(1, &queue, &progress, &err);  // as a host would
  });
  if (worst != PN_OK) return fail(Code::failed, std::string(what) + ": " + err.message);
  printf("%-10s queue_query %7.1f ns   queue_submit of one row %7.1f ns\n", what, query, submit);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: call_bench PATH/backend_null.so\n");
    return 2;
  }
  test::TempDir folder;  // a file is loaded once a process: the second way needs its own copy
  const std::string copy = folder.path() + "/backend_null.so";
  std::filesystem::copy_file(argv[1], copy);
  const std::pair<const char*, std::string> ways[] = {{"direct", argv[1]}, {"validated", copy}};
  for (const auto& [what, path] : ways) {
    if (std::string(what) == "validated") setenv("PANTHEON_HAL_VALIDATE", "1", 1);
    Rig rig;
    Result<void> done = build(path, rig);
    if (done) done = measure(what, rig);
    if (done) continue;
    fprintf(stderr, "call_bench: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
