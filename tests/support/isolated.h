// SPDX-License-Identifier: Apache-2.0
//
// An isolated plugin in a test's hands: loaded from a copy of its file, so that each test has a
// process and options of its own, and a small program that runs on it.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "hal/host/hal.h"
#include "hal/host/load.h"
#include "tests/support/paths.h"
#include "tests/support/row_plan.h"

namespace pn::test {

inline constexpr uint64_t kLongNs = 60'000'000'000ull;

inline hal::LoadRequest isolated_request(const TempDir& folder, const std::string& file,
                                         hal::Options options = {}) {
  static int copies = 0;
  hal::LoadRequest request;
  request.plugin = folder.path() + "/copy" + std::to_string(++copies) + ".so";
  std::filesystem::copy_file(build_path(file), request.plugin);
  request.options = std::move(options);
  request.search.cache_dir = folder.path();
  request.search.probe = false;
  request.search.backend_host = build_path("pantheon-backend-host");
  request.isolated = true;
  return request;
}

inline std::shared_ptr<hal::Plugin> load(const hal::LoadRequest& request) {
  auto plugin = hal::Plugin::load(request);
  REQUIRE_MESSAGE(plugin, plugin.error().message);
  return *plugin;
}

// One lane, one row, top 3, on the first die.
struct RowRun {
  RowPlan plan;
  hal::Device device;
  hal::Buffer memory, results;
  hal::Program program;
  hal::Queue queue;
  uint64_t value = 0;

  explicit RowRun(const std::shared_ptr<hal::Plugin>& plugin) {
    auto opened = hal::Device::open(plugin, 0);
    REQUIRE_MESSAGE(opened, opened.error().message);
    device = std::move(*opened);
    memory = buffer(device.find_heap(PN_HEAP_DEVICE), 65536);
    const uint32_t heap = device.find_heap(PN_HEAP_HOST_PINNED, PN_HEAP_RESULTS);
    REQUIRE(heap != PN_NONE);
    results = buffer(heap, 4096);
    auto report = device.query(plan.plan);
    REQUIRE_MESSAGE(report, report.error().message);
    const pn_binding bindings[] = {
        {PN_BIND_WEIGHT, 0, 0, 0, memory.slice(0, 512)},
        {PN_BIND_SCRATCH, 0, 0, 0, memory.slice(4096, report->head.scratch_bytes)},
        {PN_BIND_IDS, 0, 0, 0, memory.slice(32768, 64)}};
    auto made = device.create_program(plan.plan, bindings);
    REQUIRE_MESSAGE(made, made.error().message);
    program = std::move(*made);
    REQUIRE(program.wait_ready(kLongNs));
    auto q = device.create_queue(PN_QUEUE_RUN, 8);
    REQUIRE_MESSAGE(q, q.error().message);
    queue = std::move(*q);
  }
  hal::Buffer buffer(uint32_t heap, uint64_t bytes) {
    auto made = device.create_buffer(heap, bytes);
    REQUIRE_MESSAGE(made, made.error().message);
    return std::move(*made);
  }
  // The submit's own answer.
  Result<bool> submit() {
    const int32_t token = 3;
    const pn_entry entry = {0, 1, 0, 0, PN_NONE, PN_NONE, 0, 0};
    pn_row row{};
    row.flags = PN_ROW_SAMPLE;
    row.top = 3;
    row.target = results.slice(128, sizeof(pn_result) + 3 * sizeof(pn_candidate));
    const pn_step step = {sizeof step, 1, 0, 0, 1, 1, &token, nullptr, nullptr, &entry, &row};
    pn_command run{};
    run.kind = PN_CMD_RUN;
    run.program = program.handle();
    const pn_submit all = {sizeof all, 0, 1, 1, value + 1, nullptr, &run, &step};
    auto sent = queue.submit(all);
    if (sent && *sent) ++value;
    return sent;
  }
  // What the null plugin draws, with marks around it untouched.
  void check_row() {
    auto* at = static_cast<unsigned char*>(results.host());
    REQUIRE(at != nullptr);
    std::memset(at, 0xaa, 4096);
    auto sent = submit();
    REQUIRE_MESSAGE(sent, sent.error().message);
    REQUIRE(*sent);
    auto done = queue.wait(value, kLongNs);
    REQUIRE_MESSAGE(done, done.error().message);
    REQUIRE(*done);
    pn_result result{};
    pn_candidate top[3];
    std::memcpy(&result, at + 128, sizeof result);
    std::memcpy(top, at + 128 + sizeof result, sizeof top);
    CHECK(result.id == 0);
    CHECK(result.top == 3);
    for (int i = 0; i < 3; ++i) CHECK(top[i].id == i);
    CHECK(at[127] == 0xaa);
    CHECK(at[128 + sizeof result + sizeof top] == 0xaa);
  }
  pn_error wait_lost() {
    for (int i = 0; i < 6000; ++i) {
      auto progress = queue.query();
      REQUIRE(progress);
      if (progress->state == PN_QUEUE_LOST) return queue.failure();
      ::usleep(10'000);
    }
    FAIL("the queue was not lost within a minute");
    return {};
  }
};

}  // namespace pn::test
