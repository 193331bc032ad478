// SPDX-License-Identifier: Apache-2.0
//
// The CPU plugin as a host meets it: options, dies, heaps and caps, imports, layouts, growth rules,
// idle cost.
//
// Knows the ABI only; the options are also tried through their parser.
#include <doctest/doctest.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "backends/cpu/options.h"
#include "tests/support/cpu_host.h"

using namespace pn::test;

namespace {

pn_status parse(const char* key, const char* value, pn::cpu::Options* out, std::string* message) {
  const pn_pair pair = {key, value};
  pn_error err = new_error();
  const pn_status status = pn::cpu::parse_options(&pair, 1, out, &err);
  *message = err.message;
  return status;
}

double process_cpu_s() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("cpu options: values are read, and refusals say what would work") {
  pn::cpu::Options options;
  std::string message;
  CHECK(parse("dies", "2x512MiB, 3,1GiB", &options, &message) == PN_OK);
  const std::vector<uint64_t> caps = {512u << 20, 512u << 20, 0, 0, 0, 1u << 30};
  CHECK(options.dies == caps);
  CHECK(parse("threads", "7", &options, &message) == PN_OK);
  CHECK(options.threads == 7);
  CHECK(parse("numerics", "reference", &options, &message) == PN_OK);
  CHECK(options.numerics == pn::cpu::Numerics::reference);
  CHECK(parse("pin", "true", &options, &message) == PN_OK);
  CHECK(options.pin);
  CHECK(parse("isa", "baseline", &options, &message) == PN_OK);
  CHECK(options.isa == pn::cpu::Isa::baseline);
  const char* bad[][3] = {
      {"thread", "2", "unknown option 'thread' of the cpu plugin; known: isa, threads"},
      {"threads", "0", "option threads: '0'"},
      {"threads", "999", "1 to 256"},
      {"numerics", "exact", "neither fast nor reference"},
      {"pin", "maybe", "neither true nor false"},
      {"isa", "sse9", "none of auto, baseline"},
      {"dies", "2x", "not a count"},
      {"dies", "1,,2", "not a count"},
      {"dies", "65", "64 dies at most"},
      {"dies", "0", "not a count"},
      {"dies", "17EiB", "not a count"},
  };
  for (const auto& c : bad) {
    CHECK(parse(c[0], c[1], &options, &message) == PN_INVALID);
    CHECK_MESSAGE(message.find(c[2]) != std::string::npos, c[2] << " is not in: " << message);
  }
}

TEST_CASE("cpu dies: listed by stride, opened once, capped; beyond the cap nothing changes") {
  CpuHost host(HostOptions{{"dies", "2x8MiB"}, {"threads", "1"}});
  const pn_plugin& api = host.api();
  pn_error err = new_error();
  uint32_t count = 0;
  REQUIRE(api.devices(&count, nullptr, &err) == PN_OK);
  CHECK(count == 2);
  struct Longer {
    pn_device_info info;
    uint64_t more;
  } infos[2];
  memset(infos, 0xff, sizeof(infos));
  infos[0].info.struct_size = infos[1].info.struct_size = sizeof(Longer);
  REQUIRE(api.devices(&count, &infos[0].info, &err) == PN_OK);
  CHECK(std::string(infos[1].info.uid) == "cpu:1");
  CHECK(infos[1].more == 0);
  CHECK(infos[0].info.state == PN_STATE_IN_USE);
  CHECK(infos[1].info.state == PN_STATE_READY);
  CHECK(infos[1].info.struct_size == sizeof(Longer));
  count = 1;
  CHECK(api.devices(&count, &infos[0].info, &err) == PN_INCOMPLETE);
  CHECK(count == 2);
  pn_device again = {};
  CHECK(api.device_open(0, &again, &err) == PN_INVALID);
  CHECK(api.device_open(2, &again, &err) == PN_INVALID);

  pn_memory_status memory = {};
  memory.struct_size = sizeof(memory);
  const CpuHost::Memory first = host.allocate((6 << 20) - 4000);  // whole granules of 4096 count
  REQUIRE(api.memory_status(host.device(), &memory, &err) == PN_OK);
  CHECK(memory.total == 8 << 20);
  CHECK(memory.used_by_us == 6 << 20);
  CHECK(memory.free_now <= 2 << 20);
  pn_buffer buffer = {99};
  void* at = nullptr;
  CHECK(api.buffer_create(host.device(), 0, 3 << 20, &buffer, &at, &err) == PN_OUT_OF_MEMORY);
  CHECK(std::string(err.message).find("cap of 8 MiB") != std::string::npos);
  CHECK(err.recovery == PN_RECOVER_RETRY_LATER);
  CHECK(buffer.id == 99);
  // Host heaps have no cap; the device heap has its room back after a destroy.
  host.allocate((32 << 20) + 1, 1);
  host.allocate(32 << 20, 2);
  REQUIRE(api.memory_status(host.device(), &memory, &err) == PN_OK);
  CHECK(memory.used_by_us == 6 << 20);
  api.buffer_destroy(first.buffer);
  CHECK(api.buffer_create(host.device(), 0, 8 << 20, &buffer, &at, &err) == PN_OK);
  CHECK(reinterpret_cast<uintptr_t>(at) % (2 << 20) == 0);
  // More than the machine has is refused at once, not when it is touched.
  CHECK(api.buffer_create(host.device(), 1, uint64_t{1} << 46, &buffer, &at, &err) ==
        PN_OUT_OF_MEMORY);
  CHECK(api.buffer_create(host.device(), 1, UINT64_MAX, &buffer, &at, &err) == PN_OUT_OF_MEMORY);
  CHECK(api.buffer_create(host.device(), 3, 4096, &buffer, &at, &err) == PN_INVALID);
  CHECK(api.buffer_create(host.device(), 0, 0, &buffer, &at, &err) == PN_INVALID);
}

TEST_CASE("cpu heaps: the three kinds and what they may hold") {
  CpuHost host;
  pn_heap_info infos[4] = {};
  for (pn_heap_info& info : infos) info.struct_size = sizeof(info);
  uint32_t count = 4;
  pn_error err = new_error();
  REQUIRE(host.api().heaps(host.device(), &count, infos, &err) == PN_OK);
  REQUIRE(count == 3);
  CHECK(infos[0].kind == PN_HEAP_DEVICE);
  CHECK(infos[2].kind == PN_HEAP_HOST_MAPPED);
  CHECK((infos[0].flags & PN_HEAP_BINDS) != 0);
  CHECK((infos[1].flags & PN_HEAP_BINDS) == 0);
  CHECK((infos[2].flags & (PN_HEAP_BINDS | PN_HEAP_RESULTS | PN_HEAP_HOST_VISIBLE)) == 13);
}

TEST_CASE("cpu errors: a shorter or longer pn_error keeps its size and its bounds") {
  CpuHost host;
  struct Guarded {
    pn_error err;
    char guard[64];
  } longer = {};
  longer.err.struct_size = sizeof(Guarded);
  memset(longer.guard, 1, sizeof(longer.guard));
  pn_device out = {};
  CHECK(host.api().device_open(77, &out, &longer.err) == PN_INVALID);
  CHECK(longer.err.struct_size == sizeof(Guarded));
  for (char c : longer.guard) CHECK(c == 0);
  struct {
    uint32_t struct_size;
    int32_t code;
    char guard[24];
  } shorter = {8, 0, {}};
  memset(shorter.guard, 7, sizeof(shorter.guard));
  CHECK(host.api().device_open(77, &out, reinterpret_cast<pn_error*>(&shorter)) == PN_INVALID);
  CHECK(shorter.code == PN_INVALID);
  for (char c : shorter.guard) CHECK(c == 7);
  CHECK(host.api().device_open(77, &out, nullptr) == PN_INVALID);
}

TEST_CASE("cpu hostmem: a mapping is imported for copies or for binding") {
  CpuHost host;
  const auto* hostmem = host.interface<pn_hostmem_api>("pantheon.hostmem/1");
  REQUIRE(hostmem != nullptr);
  std::vector<std::byte> memory(4096, std::byte{9});
  pn_import request = {sizeof(pn_import), -1, 0, memory.data(), 4096, 1, 0};
  pn_buffer buffer = {};
  pn_error err = new_error();
  REQUIRE(hostmem->import(host.device(), &request, &buffer, &err) == PN_OK);
  const CpuHost::Memory to = host.allocate(4096);
  pn_command command = {};
  command.kind = PN_CMD_COPY;
  command.source = {buffer, 96, 4000};
  command.target = to.slice(0, 4000);
  CHECK(host.submit(command, nullptr) == PN_OK);
  CHECK(to.host[3999] == std::byte{9});
  std::swap(command.source, command.target);
  std::string message;
  CHECK(host.submit(command, nullptr, &message) == PN_INVALID);
  CHECK(message.find("reading only") != std::string::npos);
  request.use = 64;
  CHECK(hostmem->import(host.device(), &request, &buffer, &err) == PN_INVALID);
  host.api().buffer_destroy(buffer);
}

TEST_CASE("cpu layout: every type converts in any cut, decodes back, and says its name") {
  CpuHost host;
  const pn_layout_api& layout = host.layout();
  pn_error err = new_error();
  pn_weight w = {};
  w.struct_size = sizeof(w);
  w.role = PN_ROLE_EXPERTS;
  w.source_type = PN_TYPE_F32;
  w.shape[0] = 20, w.shape[1] = 21, w.shape[2] = 3, w.shape[3] = 1;
  w.bias = w.scale = w.adapter_a = w.adapter_b = PN_NO16;
  pn_layout_choice choice = {};
  choice.struct_size = sizeof(choice);
  uint32_t count = 1;
  REQUIRE(layout.rank(&w, 1, &count, &choice, &err) == PN_OK);
  CHECK(std::string(choice.name) == "cpu.tile16.f32/1");
  CHECK(choice.tile_count == 6);
  CHECK(choice.loss == PN_LOSS_NONE);
  const std::vector<float> values = random_values(20 * 21 * 3, 1);
  std::vector<std::byte> whole(choice.tile_count * choice.tile_bytes), parts(whole.size());
  REQUIRE(layout.convert(&w, 1, choice.layout, values.data(), whole.data(), 0, 6, &err) == PN_OK);
  for (uint64_t first : {0u, 1u, 4u}) {
    const uint64_t tiles = first == 1 ? 3 : first == 0 ? 1 : 2;
    REQUIRE(layout.convert(&w, 1, choice.layout, values.data(),
                           parts.data() + first * choice.tile_bytes, first, tiles, &err) == PN_OK);
  }
  CHECK(whole == parts);
  std::vector<float> back(values.size());
  REQUIRE(layout.decode(&w, 1, choice.layout, whole.data(), back.data(), 0, 6, &err) == PN_OK);
  CHECK(back == values);
  CHECK(layout.convert(&w, 1, choice.layout, values.data(), whole.data(), 4, 3, &err) ==
        PN_INVALID);
  CHECK(layout.convert(&w, 1, 0, values.data(), whole.data(), 0, 1, &err) == PN_INVALID);
  CHECK(layout.rank(&w, 2, &count, &choice, &err) == PN_INVALID);
  w.source_type = 16;
  CHECK(layout.rank(&w, 1, &count, &choice, &err) == PN_UNSUPPORTED);
  CHECK(std::string(err.message).find("type 16") != std::string::npos);
  w.source_type = 12;
  CHECK(layout.rank(&w, 1, &count, &choice, &err) == PN_INVALID);
  CHECK(std::string(err.message).find("multiple of 256") != std::string::npos);
  w.role = PN_ROLE_VECTOR;
  w.source_type = PN_TYPE_F32;
  REQUIRE(layout.rank(&w, 1, &count, &choice, &err) == PN_OK);
  CHECK(choice.flags == 1);
  CHECK(choice.layout == 0);
}

TEST_CASE("cpu queue: an idle die uses less than 1 % of a core") {
  CpuHost host(HostOptions{{"threads", "4"}});
  const CpuHost::Memory a = host.allocate(4 << 20), b = host.allocate(4 << 20);
  pn_command command = {};
  command.kind = PN_CMD_COPY;
  command.source = a.slice();
  command.target = b.slice();
  REQUIRE(host.submit(command, nullptr) == PN_OK);
  usleep(20'000);
  const double before = process_cpu_s();
  usleep(400'000);
  CHECK(process_cpu_s() - before < 0.004);
}

TEST_CASE("cpu plugin: interfaces by name, and a second load after shutdown") {
  for (int round = 0; round < 3; ++round) {
    CpuHost host;
    for (const char* id : {"pantheon.layout/1", "pantheon.hostmem/1", "pantheon.sampler/1",
                           "pantheon.telemetry/1", "pantheon.topology/1", "pantheon.peer/1"})
      CHECK(host.api().get_interface(id) != nullptr);
    CHECK(host.api().get_interface("pantheon.graph/1") == nullptr);
    host.allocate(1 << 20);
  }
}
