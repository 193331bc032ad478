// SPDX-License-Identifier: Apache-2.0
//
// Group contract: what a host can get wrong in plans, bindings and steps, and must hear about.
#include <limits>

#include "hal/check/contract.h"

namespace pn::check {

namespace {

// A submit or step with one mistake in it. It must be refused: at once, or by failing the queue.
void refused(Bench& bench, const std::string& what, pn_status status) {
  bench.expect(status == PN_INVALID || status == PN_UNSUPPORTED || status == PN_FAILED,
               "{}: status {}, wanted PN_INVALID", what, status);
}

struct Mistake {
  const char* name;
  std::function<void(Steps&)> make;
};

// A step of the small llama that is right: two lanes, one of them told to sample.
Steps good_steps() {
  Steps steps;
  for (uint32_t lane = 0; lane < 2; ++lane) {
    steps.lane(lane);
    steps.page(lane, 0, lane, 1);
    const int32_t ids[] = {3, 5, 7};
    steps.entry(lane, 0, ids);
    steps.row(lane, 2, PN_ROW_SAMPLE).id_slot = 0;
  }
  return steps;
}

Result<void> try_mistakes(Bench& bench, std::span<const Mistake> mistakes) {
  PN_TRY(auto rig, model_rig(bench));
  if (rig == nullptr) return {};
  for (const Mistake& m : mistakes) {
    Steps steps = good_steps();
    rig->aim(&steps);
    m.make(steps);
    refused(bench, m.name, rig->attempt(steps));
    if (!rig->program())
      return fail(Code::failed, "the queue could not be made anew after " + std::string(m.name));
  }
  Steps steps = good_steps();
  PN_TRY(rig->run(steps));
  return {};
}

Result<void> steps(Bench& bench) {
  constexpr int32_t kFar = 1 << 24;
  const Mistake mistakes[] = {
      {"a token past the table", [](Steps& s) { s.tokens[1] = kFar; }},
      {"a token of -1", [](Steps& s) { s.tokens[4] = -1; }},
      {"a lane past the plan's", [](Steps& s) { s.entries[1].lane = 99; }},
      {"a lane twice", [](Steps& s) { s.entries[1].lane = 0; }},
      {"no tokens", [](Steps& s) { s.entries[1].count = 0; }},
      {"tokens past the list", [](Steps& s) { s.entries[1].token = 5; }},
      {"a position past the context", [](Steps& s) { s.entries[0].position = 1 << 20; }},
      {"a lane edit past the lanes", [](Steps& s) { s.lanes[0].lane = 99; }},
      {"a temperature below 0", [](Steps& s) { s.lanes[0].temperature = -1; }},
      {"a temperature that is NaN",
       [](Steps& s) { s.lanes[0].temperature = std::numeric_limits<float>::quiet_NaN(); }},
      {"a page past the cache", [](Steps& s) { s.pages[0].page = 1 << 28; }},
      {"a page of another cache", [](Steps& s) { s.pages[0].cache = 7; }},
      {"a page for a lane past the lanes", [](Steps& s) { s.pages[1].lane = 99; }},
      {"a page past the table", [](Steps& s) { s.pages[1].index = 1 << 20; }},
      {"a row of no entry", [](Steps& s) { s.rows[1].entry = 9; }},
      {"a row of no token", [](Steps& s) { s.rows[1].token = 3; }},
      {"an id slot past the depth", [](Steps& s) { s.rows[0].id_slot = 9; }},
      {"a hidden row that is not emitted", [](Steps& s) { s.rows[0].flags = PN_ROW_HIDDEN; }},
      {"a row target that is too small", [](Steps& s) { s.rows[0].target.bytes = 8; }},
      {"a history past the tokens",
       [](Steps& s) { s.lanes[0].history_token = 4, s.lanes[0].history_count = 9; }},
      {"more candidates than the vocabulary", [](Steps& s) { s.rows[0].top = 1 << 20; }},
      {"a mask form that is unknown",
       [](Steps& s) { s.rows[0].mask_form = 9, s.rows[0].mask_count = 1; }}};
  return try_mistakes(bench, mistakes);
}

Result<void> flags(Bench& bench) {
  constexpr uint32_t kBit = 1u << 29;
  const Mistake mistakes[] = {{"an entry flag", [](Steps& s) { s.entries[0].flags = kBit; }},
                              {"a lane flag", [](Steps& s) { s.lanes[1].flags |= kBit; }},
                              {"a row flag", [](Steps& s) { s.rows[0].flags |= kBit; }}};
  PN_TRY(try_mistakes(bench, mistakes));
  PN_TRY(auto rig, simple_rig(bench));
  if (rig == nullptr) return {};
  pn_command command = rig->command();
  command.flags = kBit;
  const Steps good = simple_steps();
  const pn_step step = good.view();
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.command_count = submit.step_count = 1;
  submit.commands = &command;
  submit.steps = &step;
  refused(bench, "a command flag", rig->attempt(&submit));
  PN_TRY(auto model, model_rig(bench));
  if (model == nullptr) return {};
  for (size_t i = 0; i < model->plan().ops.size(); ++i) {
    const uint16_t kind = model->plan().ops[i].op;
    if (kind != PN_OP_QKV && kind != PN_OP_ATTENTION && kind != PN_OP_MLP) continue;
    Plan plan = model->plan();
    const uint32_t bit = kBit;
    std::memcpy(plan.params[i].data() + 4, &bit, 4);  // flags is the second word of all three
    const auto report = model->side().device().query(plan.view());
    bench.expect(!report || !report->supported(), "an unknown flag of op {} is taken", kind);
  }
  return {};
}

Result<void> reserved(Bench& bench) {
  const Mistake mistakes[] = {{"pn_pages", [](Steps& s) { s.pages[0].reserved = 1; }},
                              {"pn_row", [](Steps& s) { s.rows[0].reserved = 1; }},
                              {"pn_lane", [](Steps& s) { s.lanes[0].reserved = 1; }}};
  PN_TRY(try_mistakes(bench, mistakes));
  PN_TRY(auto rig, simple_rig(bench));
  if (rig == nullptr) return {};
  pn_command command = rig->command();
  command.reserved = 1;
  const Steps good = simple_steps();
  const pn_step step = good.view();
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.command_count = submit.step_count = 1;
  submit.commands = &command;
  submit.steps = &step;
  refused(bench, "pn_command", rig->attempt(&submit));
  const auto taken = [&](const char* what, const std::function<void(Plan&)>& change) {
    Plan plan = rig->plan();
    change(plan);
    const auto report = rig->side().device().query(plan.view());
    bench.expect(!report || !report->supported(), "{}: a reserved word that is not 0 is taken",
                 what);
  };
  taken("pn_op", [](Plan& p) { p.ops[0].reserved = 1; });
  taken("pn_slot", [](Plan& p) { p.slots[0].reserved = 1; });
  if (!rig->plan().weights.empty()) taken("pn_weight", [](Plan& p) { p.weights[0].reserved = 1; });
  return {};
}

Result<void> commands(Bench& bench) {
  PN_TRY(auto rig, simple_rig(bench));
  if (rig == nullptr) return {};
  const Steps good = simple_steps();
  const pn_step step = good.view();
  const auto with = [&](const char* what, const std::function<void(pn_command&)>& change) {
    pn_command command = rig->command();
    change(command);
    pn_submit submit{};
    submit.struct_size = sizeof submit;
    submit.command_count = submit.step_count = 1;
    submit.commands = &command;
    submit.steps = &step;
    refused(bench, what, rig->attempt(&submit));
  };
  with("command kind 99", [](pn_command& c) { c.kind = 99; });
  with("command kind 0", [](pn_command& c) { c.kind = 0; });
  with("a shape past the plan's", [](pn_command& c) { c.shape = 9; });
  with("a step past the submit's", [](pn_command& c) { c.step = 9; });
  with("no program", [](pn_command& c) { c.program = {}; });
  const auto unknown = [&](const char* what, const std::function<void(Plan&)>& change) {
    Plan plan = rig->plan();
    change(plan);
    const auto report = rig->side().device().query(plan.view());
    bench.expect(!report || !report->supported(), "{} is taken", what);
  };
  unknown("op 4711", [](Plan& p) { p.ops[0].op = 4711; });
  unknown("revision 9 of an op", [](Plan& p) { p.ops[0].rev = 9; });
  unknown("slot kind 9", [](Plan& p) { p.slots[1].kind = 9; });
  unknown("slot type 77", [](Plan& p) { p.slots[0].type = 77; });
  unknown("an op that reads a slot nobody wrote", [](Plan& p) { p.slots[0].kind = 0; });
  const pn_plugin& t = rig->side().table();
  pn_error err = new_error();
  pn_queue queue{};
  bench.expect(t.queue_create(rig->side().handle(), 7, 8, &queue, &err) == PN_INVALID,
               "queue kind 7 is not PN_INVALID");
  pn_buffer buffer{};
  void* host = nullptr;
  const pn_status heap = t.buffer_create(rig->side().handle(), 99, 4096, &buffer, &host, &err);
  bench.expect(heap == PN_INVALID, "heap 99: status {}, wanted PN_INVALID", heap);
  Steps again = simple_steps();
  PN_TRY(rig->run(again));
  return {};
}

Result<void> bindings(Bench& bench) {
  PN_TRY(auto rig, model_rig(bench));
  if (rig == nullptr) return {};
  const pn_plan plan = rig->plan().view();
  PN_TRY(const pn_memory_status before, rig->side().device().memory_status());
  const auto create = [&](const char* what, uint32_t index, std::vector<pn_binding> list) {
    pn_program program{};
    pn_error err = new_error();
    const pn_status status = rig->side().table().program_create(rig->side().handle(), &plan,
                                                                static_cast<uint32_t>(list.size()),
                                                                list.data(), &program, &err);
    bench.expect(status == PN_INVALID, "{} (binding {}): status {}, wanted PN_INVALID", what, index,
                 status);
    if (status == PN_OK) rig->side().table().program_destroy(program);
  };
  uint32_t seen[5] = {};
  for (uint32_t i = 0; i < rig->bindings().size(); ++i) {
    const uint32_t kind = rig->bindings()[i].kind;
    if (++seen[kind] > 2) continue;  // two weights stand for all
    std::vector<pn_binding> list = rig->bindings();
    list.erase(list.begin() + i);
    create("missing", i, list);
    list = rig->bindings();
    list[i].slice.bytes = 8;
    if (kind != PN_BIND_SCRATCH || rig->report().head.scratch_bytes > 8)
      create("too small", i, list);
    list = rig->bindings();
    list[i].slice.buffer.id = 0;
    create("of no buffer", i, list);
    list = rig->bindings();
    list[i].slice.offset += uint64_t{1} << 40;
    create("past its buffer", i, list);
  }
  std::vector<pn_binding> list = rig->bindings();
  list.push_back(list[0]);
  list.back().kind = 99;
  create("of kind 99", 99, list);
  PN_TRY(const pn_memory_status after, rig->side().device().memory_status());
  bench.expect(before.used_by_us == after.used_by_us, "refused programs took {} bytes",
               static_cast<int64_t>(after.used_by_us - before.used_by_us));
  return {};
}

pn_status submit_empty(Side& side, const hal::Queue& queue, uint64_t value,
                       std::vector<pn_point> waits) {
  pn_submit s{};
  s.struct_size = sizeof s;
  s.value = value;
  s.wait_count = static_cast<uint32_t>(waits.size());
  s.waits = waits.data();
  pn_error err = new_error();
  return side.table().queue_submit(queue.handle(), &s, &err);
}

// A wait that can never be met: refused at once, or (a remote plugin) it fails its queue.
Result<void> bad_wait(Bench& bench, Side& side, const char* what, uint64_t value) {
  PN_TRY(hal::Queue queue, side.device().create_queue(PN_QUEUE_RUN, 8));
  const pn_queue of = value == 0 ? pn_queue{} : value == 1 ? side.queue().handle() : queue.handle();
  const pn_status status = submit_empty(side, queue, 9, {{of, value == 1 ? uint64_t{1} << 40 : 8}});
  if (status == PN_INVALID) return {};
  const bool failed = status == PN_OK && !queue.wait(9, kPatience).has_value();
  bench.expect(failed, "a wait for {}: status {}, wanted PN_INVALID", what, status);
  return {};
}

Result<void> values(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(hal::Queue queue, side->device().create_queue(PN_QUEUE_RUN, 8));
  const auto submit = [&](uint64_t value) { return submit_empty(*side, queue, value, {}); };
  bench.expect(submit(5) == PN_OK, "value 5 on a new queue is refused");
  bench.expect(submit(5) == PN_INVALID, "value 5 after 5 is not PN_INVALID");
  bench.expect(submit(4) == PN_INVALID, "value 4 after 5 is not PN_INVALID");
  bench.expect(submit_empty(*side, queue, 9, {{queue.handle(), 5}}) == PN_OK,
               "a wait for submitted work is refused");
  PN_TRY(const bool done, queue.wait(9, kPatience));
  bench.expect(done, "the queue does not complete after refused submits");
  PN_TRY(const pn_progress progress, queue.query());
  bench.expect(progress.completed == 9 && progress.state == PN_QUEUE_OK,
               "completed {} in state {}, wanted 9 and 0", progress.completed, progress.state);
  PN_TRY(bad_wait(bench, *side, "no queue", 0));
  PN_TRY(bad_wait(bench, *side, "work that was not submitted", 1));
  return bad_wait(bench, *side, "a value of its own queue that was not submitted", 2);
}

Result<void> slices(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(hal::Buffer a, side->results(8192));
  PN_TRY(hal::Buffer b, side->results(8192));
  struct Bad {
    const char* what;
    pn_slice from, to;
  };
  const Bad list[] = {
      {"unequal sizes", a.slice(0, 4096), b.slice(0, 2048)},
      {"a source past its buffer", a.slice(4096, 8192), b.slice(0, 8192)},
      {"a target past its buffer", a.slice(0, 8192), b.slice(1 << 20, 8192)},
      {"an offset that wraps", a.slice(UINT64_MAX - 4095, 8192), b.slice(0, 8192)},
      {"a size that wraps", a.slice(4096, UINT64_MAX - 2047), b.slice(4096, UINT64_MAX - 2047)}};
  for (const Bad& bad : list) {
    const bool taken = side->copy(bad.from, bad.to).has_value();
    if (!bench.expect(!taken, "COPY with {} is taken", bad.what)) continue;
    PN_TRY(side->renew_queue());
  }
  return side->copy(a.slice(0, 4096), b.slice(4096, 4096));
}

constexpr Case kCases[] = {
    {"contract/flags", "R7", "unknown flag bits are refused", flags},
    {"contract/reserved", "R7", "reserved words must be zero", reserved},
    {"contract/commands", "R7", "unknown commands, kinds, ops and revisions are refused", commands},
    {"contract/bindings", "program_create", "missing and too small bindings are refused", bindings},
    {"contract/values", "pn_submit", "values rise, waits are for submitted work", values},
    {"contract/steps", "step.h", "bounds of tokens, lanes, pages, rows, positions", steps},
    {"contract/slices", "PN_CMD_COPY", "equal sizes, inside their buffers", slices},
};

}  // namespace

std::span<const Case> step_cases() { return kCases; }

}  // namespace pn::check
