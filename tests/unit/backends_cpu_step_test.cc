// SPDX-License-Identifier: Apache-2.0
//
// Steps, submits and queues of the CPU plugin: what is wrong is refused by name before anything
// runs, and what is right completes in order.
//
// Knows the ABI only. Each bad step starts from a good one with one thing changed.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "tests/support/cpu_host.h"

using namespace pn::test;

namespace {

// EMBED, QKV+ATTENTION, ROWS, LINEAR, EMIT over 10 ids: the smallest program with everything.
struct Small {
  CpuHost host;
  PlanBuilder plan;
  std::unique_ptr<CpuProgram> program;

  explicit Small(const HostOptions& options = {{"threads", "2"}}) : host(options) {
    plan.lanes = 3;
    plan.ids_depth = 2;
    plan.shapes = {{8, 3, 3, 32}, {1, 1, 1, 32}};
    plan.caches = {{sizeof(pn_cache), PN_CACHE_PAGED, 4, 1, PN_TYPE_F32, PN_TYPE_F32, 8, 0}};
    const uint16_t table = plan.matrix(8, 10, random_values(80, 1), PN_ROLE_TIED);
    const uint16_t q = plan.matrix(8, 8, random_values(64, 2)),
                   k = plan.matrix(8, 4, random_values(32, 3)),
                   v = plan.matrix(8, 4, random_values(32, 4));
    const uint16_t x = plan.slot(8), heads = plan.slot(8), attended = plan.slot(8),
                   rows = plan.slot(8, 0, PN_ROWS_OUT), logits = plan.slot(10, 0, PN_ROWS_OUT);
    pn_op& embed = plan.op(PN_OP_EMBED, pn_op_embed{0, 1});
    embed.out[0] = x;
    embed.weight[0] = table;
    pn_op_qkv p = {};
    p.query_heads = 2;
    p.kv_heads = 1;
    p.key_dim = p.value_dim = 4;
    pn_op& qkv = plan.op(PN_OP_QKV, p);
    qkv.in[0] = x;
    qkv.out[0] = heads;
    qkv.weight[0] = q;
    qkv.weight[1] = k;
    qkv.weight[2] = v;
    pn_op& attention =
        plan.op(PN_OP_ATTENTION, pn_op_attention{0, 0, 2, 1, 4, 4, 0, 0, 0, 0, 1, 0});
    attention.in[0] = heads;
    attention.out[0] = attended;
    pn_op& pick = plan.op(PN_OP_ROWS);
    pick.in[0] = attended;
    pick.out[0] = rows;
    pn_op& head = plan.op(PN_OP_LINEAR, pn_op_linear{0, 0, 1, 0});
    head.in[0] = rows;
    head.out[0] = logits;
    head.weight[0] = table;
    pn_op& emit = plan.op(PN_OP_EMIT, pn_op_emit{0, 10});
    emit.in[0] = logits;
    program = std::make_unique<CpuProgram>(host, plan, 24);
  }
  Steps good() {
    Steps steps;
    steps.lane(1).flags = PN_LANE_RESET;
    steps.pages.push_back({0, 1, 0, 5, 8, 0});
    steps.entry(1, 0, {1, 2, 3});
    steps.row(0, 2, PN_ROW_SAMPLE, program->results().slice(0, 64)).id_slot = 0;
    return steps;
  }
};

}  // namespace

TEST_CASE("cpu step: one wrong number is refused with its name, and nothing ran") {
  Small s;
  struct Case {
    const char* says;
    std::function<void(Steps&)> spoil;
  };
  const Case cases[] = {
      {"lane edit 0: lane 3 of 3", [](Steps& x) { x.lanes[0].lane = 3; }},
      {"lane edit 0: flags", [](Steps& x) { x.lanes[0].flags = 6; }},
      {"adapter 0", [](Steps& x) { x.lanes[0].adapter = 0; }},
      {"temperature -1", [](Steps& x) { x.lanes[0].temperature = -1; }},
      {"repeat_penalty 0", [](Steps& x) { x.lanes[0].repeat_penalty = 0; }},
      {"history of 4 tokens", [](Steps& x) { x.lanes[0].history_count = 4; }},
      {"history of 2 tokens",
       [](Steps& x) { x.lanes[0].history_count = 2, x.lanes[0].history_position = 31; }},
      {"bias: buffer", [](Steps& x) { x.lanes[0].bias_count = 1; }},
      {"cache 1", [](Steps& x) { x.pages[0].cache = 1; }},
      {"page edit 0: lane 9", [](Steps& x) { x.pages[0].lane = 9; }},
      {"entries 1 + 8 of a table of 8", [](Steps& x) { x.pages[0].index = 1; }},
      {"pages 17 + 8 of 24", [](Steps& x) { x.pages[0].page = 17; }},
      {"entry 0: lane 3", [](Steps& x) { x.entries[0].lane = 3; }},
      {"both advance lane 1", [](Steps& x) { x.entry(1, 3, {1}); }},
      {"entry 0: flags", [](Steps& x) { x.entries[0].flags = 2; }},
      {"entry 0: 0 tokens", [](Steps& x) { x.entries[0].count = 0, x.rows.clear(); }},
      {"position 30", [](Steps& x) { x.entries[0].position = 30; }},
      {"tokens 1 + 3 of 3", [](Steps& x) { x.entries[0].token = 1; }},
      {"token 10, the table has 10", [](Steps& x) { x.tokens[1] = 10; }},
      {"token -1", [](Steps& x) { x.tokens[0] = -1; }},
      {"feeds ids 0 + 3 of 2", [](Steps& x) { x.entries[0].flags = PN_ENTRY_FEED; }},
      {"9 tokens in a shape of 8",
       [](Steps& x) {
         x.entry(0, 0, {1, 1, 1, 1, 1, 1});
       }},
      {"row 0: token 3 of entry 0", [](Steps& x) { x.rows[0].token = 3; }},
      {"row 0: token 2 of entry 1", [](Steps& x) { x.rows[0].entry = 1; }},
      {"row 0: flags", [](Steps& x) { x.rows[0].flags = 32; }},
      {"HOLD goes with SAMPLE", [](Steps& x) { x.rows[0].flags = PN_ROW_HOLD; }},
      {"hidden row", [](Steps& x) { x.rows[0].flags |= PN_ROW_HIDDEN; }},
      {"11 candidates", [](Steps& x) { x.rows[0].top = 11; }},
      {"id slot 2 of 2", [](Steps& x) { x.rows[0].id_slot = 2; }},
      {"mask form 4", [](Steps& x) { x.rows[0].mask_form = 4; }},
      {"mask: buffer", [](Steps& x) { x.rows[0].mask_form = 1, x.rows[0].mask_count = 1; }},
      {"row target: the slice has 8", [](Steps& x) { x.rows[0].target.bytes = 8; }},
      {"row target: buffer", [](Steps& x) { x.rows[0].target.buffer.id = 12345; }},
      {"4 rows in a shape", [](Steps& x) { x.rows.resize(4, x.rows[0]); }},
  };
  s.program->ids()[2] = 77;
  for (const Case& c : cases) {
    Steps steps = s.good();
    c.spoil(steps);
    std::string message;
    CHECK(s.program->run(steps.view(), 0, &message) == PN_INVALID);
    CHECK_MESSAGE(message.find(c.says) != std::string::npos, c.says << " is not in: " << message);
  }
  CHECK(s.program->ids()[2] == 77);
  std::string message;
  CHECK(s.program->run(s.good().view(), 2, &message) == PN_INVALID);
  CHECK(message.find("shape 2 of a plan that has 2") != std::string::npos);
  REQUIRE(s.program->run(s.good().view(), 0, &message) == PN_OK);
  CHECK(s.program->ids()[2] != 77);
}

TEST_CASE("cpu step: lists walk by the caller's stride; an unknown tail must be zero") {
  Small s;
  struct Longer {
    pn_lane lane;
    uint64_t extra;
  } lanes[2] = {};
  Steps steps = s.good();
  steps.lane(2);
  for (int i = 0; i < 2; ++i) {
    lanes[i].lane = steps.lanes[i];
    lanes[i].lane.struct_size = sizeof(Longer);
  }
  pn_step view = steps.view();
  view.lanes = &lanes[0].lane;
  CHECK(s.program->run(view) == PN_OK);
  lanes[1].extra = 1;
  std::string message;
  CHECK(s.program->run(view, 0, &message) == PN_UNSUPPORTED);
  CHECK(message.find("pn_lane") != std::string::npos);
  lanes[1].extra = 0;
  lanes[0].lane.struct_size = 96;  // shorter than the frozen first size
  CHECK(s.program->run(view) == PN_UNSUPPORTED);
}

TEST_CASE("cpu step: a page that was never given fails the queue before anything runs") {
  Small s;
  Steps steps = s.good();
  steps.pages[0].count = 1;
  REQUIRE(s.program->run(steps.view()) == PN_OK);  // positions 0..2 need one page
  Steps next;
  next.entry(1, 3, {1, 1});
  next.row(0, 0, PN_ROW_SAMPLE, s.program->results().slice(0, 64)).id_slot = 1;
  s.program->ids()[3] = 55;
  std::string message;
  CHECK(s.program->run(next.view(), 0, &message) == PN_FAILED);
  CHECK(message.find("lane 1 at position 3 needs entry 1") != std::string::npos);
  CHECK(s.program->ids()[3] == 55);
  CHECK(s.program->run(s.good().view(), 0, &message) == PN_FAILED);
}

TEST_CASE("cpu step: a fed -1 spoils its own lane only") {
  Small s;
  Steps steps = s.good();
  steps.lane(0);
  steps.pages.push_back({0, 0, 0, 13, 8, 0});
  steps.entry(0, 0, {4});
  s.program->ids()[0] = -1;
  steps.entries[1].flags = PN_ENTRY_FEED;
  steps.entries[1].token = 0;
  steps.row(1, 0, PN_ROW_SAMPLE, s.program->results().slice(64, 64)).id_slot = 0;
  REQUIRE(s.program->run(steps.view()) == PN_OK);
  pn_result good, spoiled;
  memcpy(&good, s.program->results().host, 16);
  memcpy(&spoiled, s.program->results().host + 64, 16);
  CHECK(good.id >= 0);
  CHECK(spoiled.id == -1);
}

TEST_CASE("cpu step: a step without entries edits and runs nothing") {
  Small s;
  Steps edits;
  edits.lane(1).flags = PN_LANE_RESET;
  edits.pages.push_back({0, 1, 0, 5, 8, 0});
  REQUIRE(s.program->run(edits.view()) == PN_OK);
  Steps steps;
  steps.entry(1, 0, {1, 2, 3});
  steps.row(0, 2, PN_ROW_SAMPLE, s.program->results().slice(0, 64)).id_slot = 0;
  CHECK(s.program->run(steps.view()) == PN_OK);
}

TEST_CASE("cpu queue: copies, waits, order, and refusals") {
  CpuHost host(HostOptions{{"threads", "2"}, {"dies", "2"}});
  const pn_plugin& api = host.api();
  pn_error err = new_error();
  pn_device other = {};
  REQUIRE(api.device_open(1, &other, &err) == PN_OK);
  pn_queue second = {}, transfer = {};
  REQUIRE(api.queue_create(other, PN_QUEUE_RUN, 8, &second, &err) == PN_OK);
  REQUIRE(api.queue_create(other, PN_QUEUE_TRANSFER, 8, &transfer, &err) == PN_OK);
  const uint64_t size = 6 << 20;
  CpuHost::Memory a = host.allocate(size), b = host.allocate(size), c = host.allocate(size, 1);
  for (uint64_t i = 0; i < size; ++i) a.host[i] = static_cast<std::byte>(i * 31 >> 3);
  const auto copy = [](const CpuHost::Memory& from, const CpuHost::Memory& to) {
    pn_command command = {};
    command.kind = PN_CMD_COPY;
    command.source = from.slice();
    command.target = to.slice();
    return command;
  };
  const auto submit = [&](pn_queue queue, const pn_command& command, uint64_t value,
                          const pn_point* wait = nullptr) {
    pn_submit s = {};
    s.struct_size = sizeof(s);
    s.command_count = 1;
    s.commands = &command;
    s.value = value;
    s.wait_count = wait == nullptr ? 0 : 1;
    s.waits = wait;
    return api.queue_submit(queue, &s, &err);
  };
  // second: a -> b; transfer, after it: b -> c.
  const pn_command first_copy = copy(a, b), second_copy = copy(b, c);
  const pn_point early = {second, 10}, late = {second, 11};
  CHECK(submit(transfer, second_copy, 1, &late) == PN_INVALID);
  REQUIRE(submit(second, first_copy, 10) == PN_OK);
  REQUIRE(submit(transfer, second_copy, 5, &early) == PN_OK);
  CHECK(submit(transfer, second_copy, 5) == PN_INVALID);  // not above the last
  REQUIRE(api.queue_wait({transfer, 5}, 10'000'000'000u, &err) == PN_OK);
  CHECK(memcmp(a.host, c.host, size) == 0);
  const pn_queue queues[2] = {second, transfer};
  pn_progress progress[2] = {};
  REQUIRE(api.queue_query(2, queues, progress, &err) == PN_OK);
  CHECK(progress[0].completed == 10);
  CHECK(progress[1].completed == 5);
  CHECK(progress[1].state == PN_QUEUE_OK);
  pn_command bad = first_copy;
  bad.target.bytes = 5;
  CHECK(submit(second, bad, 20) == PN_INVALID);
  bad = first_copy;
  bad.kind = 9;
  CHECK(submit(second, bad, 20) == PN_INVALID);
  bad = first_copy;
  bad.source.offset = 1;
  CHECK(submit(second, bad, 20) == PN_INVALID);
  CHECK(std::string(err.message).find("reach past") != std::string::npos);
  CHECK(api.queue_wait({second, 20}, 1'000'000, &err) == PN_NOT_READY);
  CHECK(api.queue_error(second, &err) == PN_OK);
  api.queue_destroy(second);
  CHECK(api.queue_query(1, &second, progress, &err) == PN_INVALID);
}

TEST_CASE("cpu queue: full is NOT_READY with nothing done, and all that was taken completes") {
  Small s;
  const pn_plugin& api = s.host.api();
  pn_queue queue = {};
  pn_error err = new_error();
  REQUIRE(api.queue_create(s.host.device(), PN_QUEUE_RUN, 8, &queue, &err) == PN_OK);
  const uint64_t size = 32 << 20;
  CpuHost::Memory a = s.host.allocate(size), b = s.host.allocate(size);
  pn_command command = {};
  command.kind = PN_CMD_COPY;
  command.source = a.slice();
  command.target = b.slice();
  pn_submit submit = {};
  submit.struct_size = sizeof(submit);
  submit.command_count = 1;
  submit.commands = &command;
  uint64_t taken = 0;
  bool full = false;
  for (int i = 0; i < 2000 && !full; ++i) {
    submit.value = taken + 1;
    const pn_status status = api.queue_submit(queue, &submit, &err);
    REQUIRE(status >= 0);
    full = status == PN_NOT_READY;
    if (!full) ++taken;
  }
  CHECK(full);
  CHECK(api.queue_wait({queue, taken}, 60'000'000'000u, &err) == PN_OK);
  submit.value = taken + 1;
  CHECK(api.queue_submit(queue, &submit, &err) == PN_OK);
  api.queue_destroy(queue);
}

TEST_CASE("cpu queue: a program stays on one queue, and on its die") {
  Small s(HostOptions{{"threads", "1"}, {"dies", "2"}});
  const pn_plugin& api = s.host.api();
  pn_error err = new_error();
  REQUIRE(s.program->run(s.good().view()) == PN_OK);
  pn_device other = {};
  REQUIRE(api.device_open(1, &other, &err) == PN_OK);
  for (pn_device device : {s.host.device(), other}) {
    pn_queue queue = {};
    REQUIRE(api.queue_create(device, PN_QUEUE_RUN, 8, &queue, &err) == PN_OK);
    pn_command command = {};
    command.kind = PN_CMD_RUN;
    command.program = s.program->handle();
    const Steps steps = s.good();
    const pn_step step = steps.view();
    pn_submit submit = {};
    submit.struct_size = sizeof(submit);
    submit.command_count = 1;
    submit.commands = &command;
    submit.step_count = 1;
    submit.steps = &step;
    submit.value = 1;
    CHECK(api.queue_submit(queue, &submit, &err) == PN_INVALID);
  }
}
