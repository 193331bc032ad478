// SPDX-License-Identifier: Apache-2.0
//
// Negotiation and stubs on tables made here: what a file could only show with many builds.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "hal/host/hal.h"
#include "hal/host/negotiate.h"

namespace {

pn_plugin g_table;
const pn_host* g_host;
pn_layout_api g_layout;

pn_status rank(const pn_weight*, uint64_t, uint32_t* count, pn_layout_choice*, pn_error*) {
  *count = 0;
  return PN_OK;
}
pn_status devices(uint32_t* count, pn_device_info*, pn_error* err) {
  *count = 0;
  err->native_code = 719;
  std::strcpy(err->message, "illegal address");
  return PN_DEVICE_LOST;
}
const void* get_interface(const char* id) {
  return std::strcmp(id, "pantheon.layout/1") == 0 ? &g_layout : nullptr;
}

pn_status entry(const pn_host* host, const pn_plugin** out, pn_error*) {
  g_host = host;
  *out = &g_table;
  return PN_OK;
}

// Every slot is something; only those that a test calls are right.
void fill_table() {
  g_table = {};
  g_table.struct_size = sizeof g_table;
  g_table.abi_minor = g_table.min_host_minor = PN_ABI_MINOR;
  g_table.devices = devices;
  g_table.device_open = [](uint32_t, pn_device*, pn_error*) -> pn_status { return PN_FAILED; };
  g_table.device_close = [](pn_device) {};
  g_table.heaps = [](pn_device, uint32_t*, pn_heap_info*, pn_error*) -> pn_status { return 0; };
  g_table.memory_status = [](pn_device, pn_memory_status*, pn_error*) -> pn_status { return 0; };
  g_table.buffer_create = [](pn_device, uint32_t, uint64_t, pn_buffer*, void**,
                             pn_error*) -> pn_status { return 0; };
  g_table.buffer_destroy = [](pn_buffer) {};
  g_table.program_query = [](pn_device, const pn_plan*, pn_report*, pn_error*) -> pn_status {
    return 0;
  };
  g_table.program_create = [](pn_device, const pn_plan*, uint32_t, const pn_binding*, pn_program*,
                              pn_error*) -> pn_status { return 0; };
  g_table.program_status = [](pn_program, pn_program_status*, pn_error*) -> pn_status { return 0; };
  g_table.program_destroy = [](pn_program) {};
  g_table.queue_create = [](pn_device, uint32_t, uint32_t, pn_queue*, pn_error*) -> pn_status {
    return 0;
  };
  g_table.queue_submit = [](pn_queue, const pn_submit*, pn_error*) -> pn_status { return 0; };
  g_table.queue_query = [](uint32_t, const pn_queue*, pn_progress*, pn_error*) -> pn_status {
    return 0;
  };
  g_table.queue_wait = [](pn_point, uint64_t, pn_error*) -> pn_status { return 0; };
  g_table.queue_error = [](pn_queue, pn_error*) -> pn_status { return 0; };
  g_table.queue_destroy = [](pn_queue) {};
  g_table.get_interface = get_interface;
  g_table.shutdown = [](uint64_t) {};
  g_layout = {};
  g_layout.struct_size = 24;  // a table that ends after `convert`'s place: rank and nothing else
  g_layout.rank = rank;
}

pn::Result<std::shared_ptr<pn::hal::Plugin>> start(const pn::hal::Options& options = {}) {
  pn::hal::Note note;
  note.name = "made";
  return pn::hal::Plugin::from_entry(entry, note, options);
}

}  // namespace

TEST_CASE("a complete table is taken; the host's side is filled in") {
  fill_table();
  auto plugin = start({{"isa", "sse2"}});
  REQUIRE_MESSAGE(plugin, plugin.error().message);
  REQUIRE(g_host != nullptr);
  CHECK(g_host->struct_size == sizeof(pn_host));
  CHECK(g_host->abi_minor == PN_ABI_MINOR);
  REQUIRE(g_host->config_count == 1);
  CHECK(std::string(g_host->config[0].key) == "isa");
  CHECK(std::string(g_host->config[0].value) == "sse2");
  const uint64_t t = g_host->now_ns(g_host->self);
  CHECK(g_host->now_ns(g_host->self) >= t);
  CHECK(g_host->thread_check(g_host->self, PN_THREAD_LOAD) == 1);
}

TEST_CASE("each required slot that is null is refused by its name") {
  struct Slot {
    const char* name;
    size_t offset;
  };
  const size_t first = offsetof(pn_plugin, devices);
  const size_t count = (sizeof(pn_plugin) - first) / sizeof(void*);
  CHECK(count == 19);
  for (size_t i = 0; i < count; ++i) {
    fill_table();
    std::memset(reinterpret_cast<char*>(&g_table) + first + i * sizeof(void*), 0, sizeof(void*));
    auto plugin = start();
    REQUIRE_FALSE(plugin);
    CHECK(plugin.error().message.find("is null in its table") != std::string::npos);
    if (i == 11) CHECK(plugin.error().message.find("queue_create") != std::string::npos);
  }
}

TEST_CASE("a table of another minor is refused with both numbers") {
  fill_table();
  g_table.abi_minor = PN_ABI_MINOR + 3;
  auto plugin = start();
  REQUIRE_FALSE(plugin);
  CHECK(plugin.error().message.find("0." + std::to_string(PN_ABI_MINOR + 3)) != std::string::npos);
  CHECK(plugin.error().message.find("0." + std::to_string(PN_ABI_MINOR)) != std::string::npos);
}

TEST_CASE("a short interface table is completed with stubs that name themselves") {
  fill_table();
  auto plugin = start();
  REQUIRE(plugin);
  const auto* layout = (*plugin)->interface<pn_layout_api>();
  REQUIRE(layout != nullptr);
  CHECK(layout->struct_size == sizeof(pn_layout_api));
  CHECK((layout->rank == rank));
  REQUIRE((layout->targets != nullptr));
  pn_error err{};
  err.struct_size = sizeof err;
  uint32_t n = 0;
  CHECK(layout->targets(&n, nullptr, &err) == PN_UNSUPPORTED);
  CHECK(std::string(err.message).find("layout.targets") != std::string::npos);
  CHECK(layout->decode(nullptr, 0, 0, nullptr, nullptr, 0, 0, nullptr) == PN_UNSUPPORTED);
  CHECK((*plugin)->interface<pn_reset_api>() == nullptr);
  pn_weight weight{};
  auto ranked = pn::hal::Layout::of(*plugin, 0)->rank(weight);
  REQUIRE_FALSE(ranked);
  CHECK(ranked.error().message.find("named no layout") != std::string::npos);
}

TEST_CASE("a plugin's error keeps its text, its kind and the driver's number") {
  fill_table();
  auto plugin = start();
  REQUIRE(plugin);
  auto infos = (*plugin)->devices();
  REQUIRE_FALSE(infos);
  CHECK(infos.error().code == pn::Code::device_lost);
  CHECK(infos.error().message == "made: devices: illegal address (code 719)");
  pn_error none{};
  CHECK(pn::hal::to_error("x", PN_OUT_OF_MEMORY, none).code == pn::Code::out_of_memory);
  CHECK(pn::hal::to_error("x", -99, none).code == pn::Code::failed);
}

TEST_CASE("log lines reach the sink with the plugin's name, and a flood is cut") {
  fill_table();
  auto plugin = start();
  REQUIRE(plugin);
  int lines = 0;
  std::string last;
  pn::hal::set_log_sink([&](uint32_t level, const std::string& name, const char* text) {
    ++lines;
    if (level == PN_LOG_ERROR) last = name + ": " + text;
  });
  g_host->log(g_host->self, PN_LOG_ERROR, "hot and more", 3);
  CHECK(last == "made: hot");
  for (int i = 0; i < 10000; ++i) g_host->log(g_host->self, PN_LOG_INFO, "x", 1);
  CHECK(lines >= 100);
  CHECK(lines < 1000);
  pn::hal::set_log_sink(nullptr);
}
