// SPDX-License-Identifier: Apache-2.0
//
// The wrapper on the null plugin: a whole life of a device, buffers, a program and a queue.
#include <doctest/doctest.h>

#include <cstring>
#include <new>
#include <vector>

#include "hal/host/hal.h"
#include "tests/support/paths.h"

namespace {

using pn::hal::Buffer;
using pn::hal::Device;
using pn::hal::Plugin;
using pn::hal::Queue;

std::shared_ptr<Plugin> null_plugin() {
  static pn::test::TempDir cache;
  pn::hal::LoadRequest request;
  request.plugin = pn::test::build_path("plugins/null/backend_null.so");
  request.options = {{"bytes", "1073741824"}};
  request.search.cache_dir = cache.path();
  auto plugin = Plugin::load(request);
  REQUIRE_MESSAGE(plugin, plugin.error().message);
  return *plugin;
}

// EMBED -> EMIT over one table of {8, 16} F32.
struct TinyPlan {
  pn_op_embed embed{sizeof(pn_op_embed), 1.0f};
  pn_op_emit emit{sizeof(pn_op_emit), 16};
  pn_op ops[2]{};
  pn_slot slots[2]{};
  pn_weight weight{};
  pn_shape shape{4, 2, 2, 64};
  pn_plan plan{};

  TinyPlan() {
    for (pn_op& op : ops) {
      op.struct_size = sizeof op;
      for (uint16_t& n : op.in) n = PN_NO16;
      for (uint16_t& n : op.out) n = PN_NO16;
      for (uint16_t& n : op.weight) n = PN_NO16;
    }
    ops[0].op = PN_OP_EMBED;
    ops[0].out[0] = 0;
    ops[0].weight[0] = 0;
    ops[0].params = &embed;
    ops[1].op = PN_OP_EMIT;
    ops[1].in[0] = 0;
    ops[1].params = &emit;
    slots[0] = {sizeof(pn_slot), PN_SLOT_INTERNAL, PN_ROWS_TOKENS, 16, PN_TYPE_F32, 0};
    weight.struct_size = sizeof weight;
    weight.role = PN_ROLE_TABLE;
    weight.layer = 7;
    weight.source_type = PN_TYPE_F32;
    for (int i = 0; i < 4; ++i) weight.shape[i] = i == 0 ? 8 : i == 1 ? 16 : 1;
    weight.bias = weight.scale = weight.adapter_a = weight.adapter_b = PN_NO16;
    plan = {sizeof plan, 2, 2, 1, 1, 0, 1, 1, ops, slots, &weight, nullptr, &shape};
  }
};

}  // namespace

TEST_CASE("devices, heaps and memory of the null die") {
  auto plugin = null_plugin();
  auto infos = plugin->devices();
  REQUIRE(infos);
  REQUIRE(infos->size() == 1);
  CHECK((*infos)[0].state == PN_STATE_READY);
  auto device = Device::open(plugin, 0);
  REQUIRE(device);
  CHECK(device->id() == "null:0");
  REQUIRE(device->heaps().size() == 2);
  CHECK(device->find_heap(PN_HEAP_DEVICE, PN_HEAP_BINDS) == 0);
  CHECK(device->find_heap(PN_HEAP_HOST_PINNED, PN_HEAP_RESULTS) == 1);
  CHECK(device->find_heap(PN_HEAP_HOST_MAPPED) == PN_NONE);
  auto memory = device->memory_status();
  REQUIRE(memory);
  CHECK(memory->total == uint64_t{1} << 30);
  auto wrong = Device::open(plugin, 9);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == pn::Code::not_found);
  CHECK(wrong.error().message.find("null:9") == 0);
}

TEST_CASE("buffers take memory, give it back, and refuse without a change") {
  auto device = Device::open(null_plugin(), 0);
  REQUIRE(device);
  auto used = [&] { return device->memory_status()->used_by_us; };
  CHECK(used() == 0);
  {
    auto a = device->create_buffer(0, 100);
    REQUIRE(a);
    CHECK(used() == 4096);  // a granule
    CHECK(a->bytes() == 100);
    REQUIRE(a->host() != nullptr);
    std::memset(a->host(), 7, 100);
    auto huge = device->create_buffer(0, uint64_t{1} << 40);
    REQUIRE_FALSE(huge);
    CHECK(huge.error().code == pn::Code::out_of_memory);
    CHECK(huge.error().message.find("1099511627776 bytes asked") != std::string::npos);
    CHECK(used() == 4096);
    Buffer moved = *std::move(a);
    CHECK(moved.slice(3, 5).buffer.id == moved.handle().id);
    CHECK(moved.slice(3, 5).offset == 3);
    CHECK(used() == 4096);
    moved = Buffer();
    CHECK(used() == 0);
  }
  CHECK(used() == 0);
  CHECK(device->create_buffer(5, 1).error().code == pn::Code::invalid);
  uint64_t words[4] = {};
  pn_import range{sizeof range, -1, 0, words, sizeof words, 3, 0};
  auto imported = device->import(range);
  REQUIRE(imported);
  CHECK(imported->host() == words);
  CHECK(used() == 0);
}

TEST_CASE("a plan is answered, bound, run; rows give id 0; the next step is fed from ids") {
  auto device = Device::open(null_plugin(), 0);
  REQUIRE(device);
  TinyPlan tiny;
  auto report = device->query(tiny.plan);
  REQUIRE(report);
  CHECK(report->supported());
  REQUIRE(report->spans.size() == 1);
  CHECK(report->spans[0].op_count == 2);
  REQUIRE(report->costs.size() == 1);
  CHECK(report->head.scratch_bytes == 4096);

  auto pool = device->create_buffer(0, 1 << 16), results = device->create_buffer(1, 4096);
  REQUIRE(pool);
  REQUIRE(results);
  std::vector<pn_binding> bindings = {{PN_BIND_WEIGHT, 0, 0, 0, pool->slice(0, 512)},
                                      {PN_BIND_SCRATCH, 0, 0, 0, pool->slice(4096, 4096)},
                                      {PN_BIND_IDS, 0, 0, 0, pool->slice(8192, 8)}};
  auto unbound = device->create_program(tiny.plan, std::span(bindings).subspan(1));
  REQUIRE_FALSE(unbound);
  CHECK(unbound.error().message.find("weight 0 of layer 7 is not bound") != std::string::npos);
  auto program = device->create_program(tiny.plan, bindings);
  REQUIRE(program);
  auto ready = program->wait_ready(1'000'000'000);
  REQUIRE(ready);
  CHECK(ready->state == PN_PROGRAM_READY);

  auto queue = device->create_queue(PN_QUEUE_RUN, 8);
  REQUIRE(queue);
  auto* ids = reinterpret_cast<int32_t*>(static_cast<char*>(pool->host()) + 8192);
  ids[0] = ids[1] = 99;
  const int32_t token = 5;
  pn_entry entry{1, 1, 0, 0, PN_NONE, PN_NONE, 0, 0};
  pn_row row{0, 0, PN_ROW_SAMPLE, 2, 0, PN_MASK_NONE, 0, 0, {}, results->slice(64, 32)};
  pn_step step{sizeof step, 1, 0, 0, 1, 1, &token, nullptr, nullptr, &entry, &row};
  pn_command commands[2]{};
  commands[0].kind = PN_CMD_RUN;
  commands[0].program = program->handle();
  commands[1].kind = PN_CMD_COPY;
  commands[1].source = results->slice(64, 32);
  commands[1].target = results->slice(128, 32);
  pn_submit submit{sizeof submit, 0, 2, 1, 1, nullptr, commands, &step};
  auto accepted = queue->submit(submit);
  REQUIRE_MESSAGE(accepted, accepted.error().message);
  CHECK(*accepted);
  CHECK(queue->query()->completed == 1);
  CHECK(*queue->wait(1, 0));
  CHECK_FALSE(*queue->wait(2, 0));
  CHECK(ids[0] == 99);  // lane 1 alone
  CHECK(ids[1] == 0);
  for (uint64_t offset : {64, 128}) {
    pn_result result;
    std::memcpy(&result, static_cast<char*>(results->host()) + offset, sizeof result);
    CHECK(result.id == 0);
    CHECK(result.top == 2);
  }
  CHECK(queue->submit(submit).error().code == pn::Code::invalid);  // value 1 again
  commands[0].kind = 77;
  submit.value = 2;
  CHECK(queue->submit(submit).error().code == pn::Code::unsupported);
  CHECK(queue->failure().code == PN_OK);

  pn_queue handles[2] = {queue->handle(), queue->handle()};
  pn_progress progress[2]{};
  REQUIRE(pn::hal::query_many(device->plugin(), handles, progress));
  CHECK(progress[1].completed == 1);
}

TEST_CASE("layouts: rank, convert a range of tiles, decode, targets") {
  TinyPlan tiny;
  auto layout = pn::hal::Layout::of(null_plugin(), 0);
  REQUIRE(layout);
  auto choices = layout->rank(tiny.weight);
  REQUIRE(choices);
  const pn_layout_choice& choice = choices->front();
  CHECK(choice.tile_count == 16);
  CHECK(choice.tile_bytes == 32);
  std::vector<float> source(128), out(16), back(16);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i);
  REQUIRE(layout->convert(tiny.weight, choice, source.data(), out.data(), 3, 2));
  CHECK(out[0] == 24.0f);
  REQUIRE(layout->decode(tiny.weight, choice, out.data(), back.data(), 3, 2));
  CHECK(back[15] == 39.0f);
  CHECK_FALSE(layout->convert(tiny.weight, choice, source.data(), out.data(), 15, 2));
  auto targets = layout->targets();
  REQUIRE(targets);
  CHECK(targets->front().first == "null");
  tiny.weight.source_type = 250;
  CHECK(layout->rank(tiny.weight).error().code == pn::Code::unsupported);
}

TEST_CASE("a serving thread may not block; objects outlive the name of their device") {
  auto plugin = null_plugin();
  Queue queue;
  {
    auto device = Device::open(plugin, 0);
    REQUIRE(device);
    auto made = device->create_queue(PN_QUEUE_TRANSFER, 8);
    REQUIRE(made);
    queue = *std::move(made);
  }
  CHECK(queue.query());
  CHECK_FALSE(plugin->shutdown(0));  // a device is open
  {
    pn::hal::ServingThread serving;
    auto wait = queue.wait(0, 0);
    REQUIRE_FALSE(wait);
    CHECK(wait.error().message.find("serving thread") != std::string::npos);
  }
  CHECK(queue.wait(0, 0));
}
