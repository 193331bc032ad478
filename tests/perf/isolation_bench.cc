// SPDX-License-Identifier: Apache-2.0
//
// What isolation costs a step: submit to seen complete, in this process and through a backend host,
// on a plugin that computes nothing; and what the pair burns while idle. Direct and isolated steps
// take turns, in rounds, so that a busy machine meets both.
//
//   isolation_bench PATH/backend_null.so PATH/pantheon-backend-host
//
// Bounds of the exit status: median at most 20 us more, p99 at most 100 us more.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "hal/host/hal.h"
#include "tests/support/row_plan.h"

namespace {

using namespace pn;

constexpr int kRounds = 40;
constexpr int kSteps = 250;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

struct Side {
  test::RowPlan plan;
  std::shared_ptr<hal::Plugin> plugin;
  hal::Device device;
  hal::Buffer memory, results;
  hal::Program program;
  hal::Queue queue;
  uint64_t value = 0;
  std::vector<double> us;

  Result<void> open(const std::string& path, const std::string& host) {
    hal::LoadRequest request;
    request.plugin = path;
    request.isolated = !host.empty();
    request.search.backend_host = host;
    PN_TRY(plugin, hal::Plugin::load(request));
    PN_TRY(device, hal::Device::open(plugin, 0));
    PN_TRY(memory, device.create_buffer(device.find_heap(PN_HEAP_DEVICE), 65536));
    const uint32_t heap = device.find_heap(PN_HEAP_HOST_PINNED, PN_HEAP_RESULTS);
    PN_TRY(results, device.create_buffer(heap, 4096));
    PN_TRY(hal::Report report, device.query(plan.plan));
    const pn_binding bindings[] = {
        {PN_BIND_WEIGHT, 0, 0, 0, memory.slice(0, 512)},
        {PN_BIND_SCRATCH, 0, 0, 0, memory.slice(4096, report.head.scratch_bytes)},
        {PN_BIND_IDS, 0, 0, 0, memory.slice(32768, 64)}};
    PN_TRY(program, device.create_program(plan.plan, bindings));
    PN_TRY(program.wait_ready(10'000'000'000));
    PN_TRY(queue, device.create_queue(PN_QUEUE_RUN, 8));
    return {};
  }

  // The engine reads ids after every step, so each step is waited for; it is looked for as the
  // scheduler does near its due time, without a nap.
  Result<void> step() {
    const int32_t token = 3;
    const pn_entry entry = {0, 1, 0, 0, PN_NONE, PN_NONE, 0, 0};
    pn_row row{};
    row.flags = PN_ROW_SAMPLE;
    row.target = results.slice(0, sizeof(pn_result));
    const pn_step step = {sizeof step, 1, 0, 0, 1, 1, &token, nullptr, nullptr, &entry, &row};
    pn_command run{};
    run.kind = PN_CMD_RUN;
    run.program = program.handle();
    const pn_submit submit = {sizeof submit, 0, 1, 1, ++value, nullptr, &run, &step};
    const uint64_t start = now_ns();
    PN_TRY(bool sent, queue.submit(submit));
    if (!sent) return fail(Code::failed, "the queue was full");
    for (;;) {
      PN_TRY(pn_progress progress, queue.query());
      if (progress.state != PN_QUEUE_OK) return fail(Code::failed, queue.failure().message);
      if (progress.completed >= value) break;
      sched_yield();
    }
    us.push_back(static_cast<double>(now_ns() - start) / 1000);
    return {};
  }
};

double at(std::vector<double>& us, double part) {
  std::sort(us.begin(), us.end());
  return us[static_cast<size_t>(part * static_cast<double>(us.size() - 1))];
}

// Milliseconds of processor time of a process so far.
double cpu_ms(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  long user = 0, kernel = 0;
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  sscanf(text.c_str() + end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user,
         &kernel);
  return static_cast<double>(user + kernel) * 1000 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

Result<bool> measure(const std::string& path, const std::string& host, uint64_t pause_us) {
  static Side direct, isolated;
  if (!direct.plugin) {
    PN_TRY(direct.open(path, ""));
    PN_TRY(isolated.open(path, host));
  }
  direct.us.clear();
  isolated.us.clear();
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kSteps; ++i) PN_TRY(direct.step());
    for (int i = 0; i < kSteps; ++i) {
      if (pause_us != 0) usleep(static_cast<useconds_t>(pause_us));
      PN_TRY(isolated.step());
    }
  }
  const double median = at(isolated.us, 0.5) - at(direct.us, 0.5);
  const double p99 = at(isolated.us, 0.99) - at(direct.us, 0.99);
  printf(
      "%s: direct median %.2f us, p99 %.2f us; isolated median %.2f us, p99 %.2f us; "
      "more: median %.2f us, p99 %.2f us\n",
      pause_us == 0 ? "steps one after the other" : "a step each 500 us, its reader asleep",
      at(direct.us, 0.5), at(direct.us, 0.99), at(isolated.us, 0.5), at(isolated.us, 0.99), median,
      p99);
  const int pid = isolated.plugin->isolation()->pid();
  const double here = cpu_ms(getpid()), there = cpu_ms(pid);
  sleep(3);
  printf("idle for 3 s: %.0f ms of processor time here, %.0f ms in the backend host\n",
         cpu_ms(getpid()) - here, cpu_ms(pid) - there);
  return median <= 20 && p99 <= 100;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: isolation_bench PATH/backend_null.so PATH/pantheon-backend-host\n");
    return 2;
  }
  bool held = true;
  for (const uint64_t pause : {0ull, 500ull}) {
    const auto result = measure(argv[1], argv[2], pause);
    if (!result) {
      fprintf(stderr, "isolation_bench: %s\n", result.error().message.c_str());
      return 1;
    }
    held = held && *result;
  }
  return held ? 0 : 1;
}
