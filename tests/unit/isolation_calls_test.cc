// SPDX-License-Identifier: Apache-2.0
//
// An isolated plugin answers as one in this process: the same lists, reports, bytes and errors.
#include <fcntl.h>

#include <fstream>
#include <vector>

#include "hal/host/layout.h"
#include "tests/support/isolated.h"

using namespace pn;
using namespace pn::test;

namespace {

const char* const kNull = "plugins/null/backend_null.so";
const char* const kFragile = "tests/fixtures/fragile.so";

struct Pair {
  TempDir folder;
  std::shared_ptr<hal::Plugin> direct, isolated;
  Pair() {
    hal::LoadRequest request = isolated_request(folder, kNull, {{"bytes", "1073741824"}});
    isolated = load(request);
    request.isolated = false;
    direct = load(request);
  }
};

hal::Device open(const std::shared_ptr<hal::Plugin>& plugin) {
  auto device = hal::Device::open(plugin, 0);
  REQUIRE_MESSAGE(device, device.error().message);
  return std::move(*device);
}

void place(const std::shared_ptr<hal::Plugin>& plugin, const hal::Device& device,
           const std::string& file, pn_slice to) {
  const auto* api = static_cast<const pn_load_api*>(plugin->raw_interface(PN_LOAD_ID));
  REQUIRE(api != nullptr);
  RowPlan plan;
  pn_error err{};
  err.struct_size = sizeof err;
  const int fd = ::open(file.c_str(), O_RDONLY);
  uint64_t source = 0;
  REQUIRE(api->open(fd, 640, &source, &err) == PN_OK);
  ::close(fd);
  pn_load_piece piece{};
  piece.struct_size = sizeof piece;
  piece.weight = &plan.weight;
  piece.first = 4;
  piece.count = 8;
  piece.tile_count = 16;
  piece.tile_bytes = 32;
  piece.source = source;
  piece.offset = 128;
  piece.bytes = 512;
  piece.to = to;
  const pn_status status = api->place(device.handle(), &piece, &err);
  CHECK_MESSAGE(status == PN_OK, err.message);
  piece.offset = 256;
  CHECK(api->place(device.handle(), &piece, &err) == PN_INVALID);
  api->close(source);
  const std::vector<float> computed(128, 2.5f);  // comes along, and stays as it is here
  piece.source = 0;
  piece.computed = computed.data();
  piece.to.offset += 256;
  CHECK(api->place(device.handle(), &piece, &err) == PN_OK);
  piece.source = source;
  piece.offset = 128;
  CHECK(api->place(device.handle(), &piece, &err) == PN_INVALID);
}

}  // namespace

TEST_CASE("isolated: it is another process, and a die looks the same") {
  Pair pair;
  REQUIRE(pair.isolated->isolation() != nullptr);
  CHECK(pair.direct->isolation() == nullptr);
  CHECK(pair.isolated->isolation()->pid() != ::getpid());
  CHECK(pair.isolated->isolation()->alive());
  auto here = pair.direct->devices(), there = pair.isolated->devices();
  REQUIRE(here);
  REQUIRE(there);
  REQUIRE(there->size() == here->size());
  CHECK(std::memcmp(&(*here)[0], &(*there)[0], sizeof(pn_device_info)) == 0);
  CHECK_FALSE(hal::Device::open(pair.isolated, 1));
}

TEST_CASE("isolated: device memory is not shared, pinned memory is") {
  Pair pair;
  hal::Device device = open(pair.isolated);
  REQUIRE(device.heaps().size() == 2);
  CHECK((device.heaps()[0].flags & PN_HEAP_HOST_VISIBLE) == 0);
  CHECK((device.heaps()[0].flags & PN_HEAP_BINDS) != 0);
  CHECK((device.heaps()[1].flags & PN_HEAP_HOST_VISIBLE) != 0);
  auto before = device.memory_status();
  REQUIRE(before);
  auto buffer = device.create_buffer(0, 1 << 20);
  REQUIRE(buffer);
  CHECK(buffer->host() == nullptr);
  auto after = device.memory_status();
  REQUIRE(after);
  CHECK(after->used_by_us == before->used_by_us + (1 << 20));
  *buffer = {};
  CHECK(device.memory_status()->used_by_us == before->used_by_us);
}

TEST_CASE("isolated: errors come back whole") {
  Pair pair;
  hal::Device here = open(pair.direct), there = open(pair.isolated);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 40}) {
    auto a = here.create_buffer(0, bytes), b = there.create_buffer(0, bytes);
    REQUIRE_FALSE(a);
    REQUIRE_FALSE(b);
    CHECK(a.error().code == b.error().code);
    CHECK(a.error().message == b.error().message);
  }
  hal::LoadRequest request = isolated_request(pair.folder, kNull, {{"byts", "1"}});
  auto refused = hal::Plugin::load(request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::invalid);
  CHECK(refused.error().message.find("byts") != std::string::npos);
  request.search.backend_host = "/no/such/program";
  auto missing = hal::Plugin::load(request);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message.find("/no/such/program") != std::string::npos);
}

TEST_CASE("isolated: a plan's report is the same") {
  Pair pair;
  hal::Device here = open(pair.direct), there = open(pair.isolated);
  RowPlan plan;
  auto a = here.query(plan.plan), b = there.query(plan.plan);
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE(a->spans.size() == b->spans.size());
  CHECK(std::memcmp(a->spans.data(), b->spans.data(), a->spans.size() * sizeof(pn_span)) == 0);
  CHECK(a->head.scratch_bytes == b->head.scratch_bytes);
  CHECK(a->costs[0].predicted_ns == b->costs[0].predicted_ns);
  CHECK(b->head.step_bytes_max > 0);
  plan.ops[0].op = 999;
  auto c = here.query(plan.plan), d = there.query(plan.plan);
  REQUIRE(c.has_value() == d.has_value());
  if (!c) CHECK(c.error().message == d.error().message);
}

TEST_CASE("isolated: interfaces answer alike") {
  Pair pair;
  RowPlan plan;
  auto here = hal::Layout::of(pair.direct, 0), there = hal::Layout::of(pair.isolated, 0);
  REQUIRE(here);
  REQUIRE(there);
  auto a = here->rank(plan.weight), b = there->rank(plan.weight);
  REQUIRE(a);
  REQUIRE(b);
  REQUIRE(a->size() == b->size());
  CHECK(std::memcmp(a->data(), b->data(), a->size() * sizeof(pn_layout_choice)) == 0);
  std::vector<float> source(128), tiles(64), back(64);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i) / 3;
  REQUIRE(there->convert(plan.weight, b->front(), source.data(), tiles.data(), 4, 8));
  CHECK(std::memcmp(tiles.data(), source.data() + 32, 256) == 0);
  REQUIRE(there->decode(plan.weight, b->front(), tiles.data(), back.data(), 4, 8));
  CHECK(back == tiles);
  CHECK_FALSE(there->convert(plan.weight, b->front(), source.data(), tiles.data(), 15, 2));
  CHECK(here->targets().value() == there->targets().value());
  hal::Device device = open(pair.isolated);
  CHECK(device.sampler()->features == open(pair.direct).sampler()->features);
  uint32_t count = 9;
  CHECK(pair.isolated->interface<pn_topology_api>()->edges(&count, nullptr, nullptr) == PN_OK);
  CHECK(count == 0);
  char reason[128] = "?";
  uint32_t health = 9;
  CHECK(pair.isolated->interface<pn_telemetry_api>()->health(device.handle(), &health, reason,
                                                             nullptr) == PN_OK);
  CHECK(health == PN_HEALTH_OK);
  pn_reset_info info{};
  info.struct_size = sizeof info;
  CHECK(pair.isolated->interface<pn_reset_api>()->describe(0, &info, nullptr) == PN_OK);
  CHECK(std::string(info.reason) == "nothing to reset");
  CHECK(pair.isolated->raw_interface("no.such/1") == nullptr);
}

TEST_CASE("isolated: a step runs and its row is read in this process") {
  TempDir folder;
  RowRun run(load(isolated_request(folder, kNull)));
  for (int i = 0; i < 100; ++i) run.check_row();
}

TEST_CASE("isolated: results are copied where the plugin cannot write them in place") {
  TempDir folder;
  for (const char* deed : {"no_import", "one_heap"}) {
    CAPTURE(std::string(deed));
    RowRun run(load(isolated_request(folder, kFragile, {{"deed", deed}})));
    for (int i = 0; i < 20; ++i) run.check_row();
  }
}

TEST_CASE("isolated: bytes copied to the die and back") {
  TempDir folder;
  for (const char* deed : {"none", "no_import"}) {
    CAPTURE(std::string(deed));
    RowRun run(load(isolated_request(folder, kFragile, {{"deed", deed}})));
    auto* at = static_cast<unsigned char*>(run.results.host());
    for (int i = 0; i < 1024; ++i) at[i] = static_cast<unsigned char>(i * 7);
    pn_command copies[2]{};
    copies[0].kind = copies[1].kind = PN_CMD_COPY;
    copies[0].source = run.results.slice(0, 1024);
    copies[0].target = copies[1].source = run.memory.slice(8192, 1024);
    copies[1].target = run.results.slice(2048, 1024);
    const pn_submit submit = {sizeof submit, 0, 2, 0, ++run.value, nullptr, copies, nullptr};
    REQUIRE(run.queue.submit(submit));
    REQUIRE(run.queue.wait(run.value, kLongNs));
    CHECK(std::memcmp(at, at + 2048, 1024) == 0);
  }
}

TEST_CASE("isolated: weights go from the file to the die without passing here") {
  TempDir folder;
  const std::string file = folder.path() + "/weights";
  std::vector<float> values(160);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(values.data()), 640);
  for (const char* deed : {"none", "hidden"}) {  // with a host address, and through staging
    CAPTURE(std::string(deed));
    const auto plugin = load(isolated_request(folder, kFragile, {{"deed", deed}}));
    RowRun run(plugin);
    place(plugin, run.device, file, run.memory.slice(1024, 256));
    const std::vector<float> computed(64, 2.5f);
    pn_command copy{};
    copy.kind = PN_CMD_COPY;
    copy.source = run.memory.slice(1024, 512);
    copy.target = run.results.slice(0, 512);
    const pn_submit submit = {sizeof submit, 0, 1, 0, ++run.value, nullptr, &copy, nullptr};
    REQUIRE(run.queue.submit(submit));
    REQUIRE(run.queue.wait(run.value, kLongNs));
    CHECK(std::memcmp(run.results.host(), values.data() + 32 + 32, 256) == 0);
    CHECK(std::memcmp(static_cast<char*>(run.results.host()) + 256, computed.data(), 256) == 0);
  }
}
