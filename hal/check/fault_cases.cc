// SPDX-License-Identifier: Apache-2.0
//
// Group fault: failed queues and lost devices. A loss is made where the plugin offers one: option
// `check_fault`, value `lost:N`, the N-th submit with a RUN.
#include <chrono>
#include <thread>

#include "hal/check/contract.h"
#include "hal/check/trial.h"

namespace pn::check {

namespace {

using Clock = std::chrono::steady_clock;

// A run on pages that its lane was never given.
Steps without_pages() {
  Steps steps;
  steps.lane(0);
  const int32_t ids[] = {1};
  steps.entry(0, 0, ids);
  return steps;
}

Result<void> queue_failed(Bench& bench) {
  PN_TRY(auto rig, model_rig(bench));
  if (rig == nullptr) return {};
  Side& side = rig->side();
  Steps bad = without_pages();
  const pn_command command = rig->command();
  const pn_step step = bad.view();
  pn_submit s{};
  s.struct_size = sizeof s;
  s.command_count = s.step_count = 1;
  s.commands = &command;
  s.steps = &step;
  s.value = side.next_value();
  pn_error err = new_error();
  const pn_queue queue = side.queue().handle();
  if (side.table().queue_submit(queue, &s, &err) != PN_OK)
    return bench.unsupported("the plugin refuses at submit what would fail a queue"),
           Result<void>{};
  const pn_status waited = side.table().queue_wait({queue, s.value}, kPatience, &err);
  bench.expect(waited < 0, "queue_wait on a failed queue: status {}", waited);
  std::string first;
  for (int i = 0; i < 3; ++i) {
    PN_TRY(const pn_progress progress, side.queue().query());
    bench.expect(progress.state == PN_QUEUE_FAILED || progress.state == PN_QUEUE_LOST,
                 "state {} after a failure", progress.state);
    bench.expect(progress.completed < s.value, "a failed value counts as completed");
    err = new_error();
    const pn_status status = side.table().queue_error(queue, &err);
    bench.expect(status == PN_OK && err.code < 0, "queue_error: status {}, code {}", status,
                 err.code);
    const std::string text(err.message, ::strnlen(err.message, sizeof err.message));
    bench.expect(!text.empty() && (first.empty() || first == text),
                 "queue_error says \"{}\", before \"{}\"", text, first);
    first = text;
    pn_submit empty{};
    empty.struct_size = sizeof empty;
    empty.value = side.next_value();
    const pn_status more = side.table().queue_submit(queue, &empty, &err);
    bench.expect(more < 0, "a failed queue takes another submit: status {}", more);
  }
  PN_TRY(side.renew_queue());
  PN_TRY(hal::Buffer a, side.place(4096));
  PN_TRY(side.copy(a.slice(0, 64), a.slice(128, 64)));
  // A queue that is well has no error.
  err = new_error();
  const pn_status well = side.table().queue_error(side.queue().handle(), &err);
  bench.expect(well == PN_OK && err.code == PN_OK,
               "queue_error of a well queue: status {}, code {}", well, err.code);
  return {};
}

// The plugin under test with a loss at the n-th run; empty, and the bench told, without the option.
Result<std::unique_ptr<Side>> side_to_lose(Bench& bench, uint32_t n) {
  hal::LoadRequest request;
  request.plugin = bench.setup().file;
  request.options = bench.setup().options;
  request.options.emplace_back("check_fault", "lost:" + std::to_string(n));
  request.search = bench.setup().search;
  request.search.probe = false;
  request.isolated = bench.setup().isolated;
  auto plugin = hal::Plugin::load(request);
  if (plugin) return Side::open(*plugin);
  if (plugin.error().code != Code::invalid) return tl::unexpected<Error>(plugin.error());
  bench.unsupported("the plugin has no option check_fault to lose its device with");
  return std::unique_ptr<Side>();
}

// Loses the device with `behind` submits queued behind the run that is lost.
struct Loss {
  std::unique_ptr<Rig> rig;
  std::vector<uint64_t> values;
};
Result<Loss> lose(Side& side, uint32_t behind) {
  Loss loss;
  PN_TRY(const Plan plan, simple_plan(side));
  PN_TRY(loss.rig, Rig::make(side, plan));
  Steps steps = simple_steps();
  PN_TRY(loss.rig->run(steps));  // the first is well
  const pn_command command = loss.rig->command();
  const pn_step step = steps.view();
  for (uint32_t i = 0; i <= behind; ++i) {
    pn_submit s{};
    s.struct_size = sizeof s;
    s.command_count = s.step_count = 1;
    s.commands = &command;
    s.steps = &step;
    s.value = side.next_value();
    pn_error err = new_error();
    const pn_status status = side.table().queue_submit(side.queue().handle(), &s, &err);
    if (status == PN_OK) loss.values.push_back(s.value);
    if (status < 0 && status != PN_DEVICE_LOST)
      return fail(Code::failed, fmt::format("a submit behind the loss: status {}", status));
  }
  return loss;
}

Result<void> settle(Bench& bench) {
  PN_TRY(auto side, side_to_lose(bench, 2));
  if (side == nullptr) return {};
  PN_TRY(hal::Queue other, side->device().create_queue(PN_QUEUE_TRANSFER, 8));
  PN_TRY(const Loss loss, lose(*side, 4));
  const uint32_t bound = side->device().info().lost_settle_ms;
  const auto start = Clock::now();
  bool settled = false;
  while (!settled && Clock::now() - start < std::chrono::milliseconds(bound + 1000)) {
    PN_TRY(const pn_progress a, side->queue().query());
    PN_TRY(const pn_progress b, other.query());
    settled = a.state == PN_QUEUE_LOST && b.state == PN_QUEUE_LOST;
    if (!settled) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  bench.expect(settled, "not every queue of the device says LOST within {} ms", bound);
  for (const uint64_t value : loss.values) {
    pn_error err = new_error();
    const pn_status status =
        side->table().queue_wait({side->queue().handle(), value}, kPatience, &err);
    bench.expect(status == PN_DEVICE_LOST || status == PN_FAILED,
                 "queue_wait on outstanding work after the loss: status {}", status);
  }
  return {};
}

Result<void> sticky(Bench& bench) {
  PN_TRY(auto side, side_to_lose(bench, 2));
  if (side == nullptr) return {};
  const pn_plugin& t = side->table();
  PN_TRY(hal::Buffer kept, side->place(4096));
  PN_TRY(Loss loss, lose(*side, 0));
  pn_error err = new_error();
  const pn_queue queue = side->queue().handle();
  if (!loss.values.empty()) t.queue_wait({queue, loss.values[0]}, kPatience, &err);
  for (int round = 0; round < 3; ++round) {
    pn_memory_status memory{};
    memory.struct_size = sizeof memory;
    pn_buffer buffer{};
    void* host = nullptr;
    pn_submit empty{};
    empty.struct_size = sizeof empty;
    empty.value = side->next_value();
    const pn_status status[] = {
        t.memory_status(side->handle(), &memory, &err),
        t.buffer_create(side->handle(), side->heap(), 4096, &buffer, &host, &err),
        t.queue_submit(queue, &empty, &err)};
    const char* names[] = {"memory_status", "buffer_create", "queue_submit"};
    for (int i = 0; i < 3; ++i)
      bench.expect(status[i] == PN_DEVICE_LOST,
                   "{} after the loss: status {}, wanted "
                   "PN_DEVICE_LOST",
                   names[i], status[i]);
    err = new_error();
    const pn_status asked = t.queue_error(queue, &err);
    bench.expect(asked == PN_OK && err.code == PN_DEVICE_LOST && err.scope >= PN_SCOPE_DEVICE,
                 "queue_error: status {}, code {}, scope {}", asked, err.code, err.scope);
    bench.expect(err.recovery != PN_RECOVER_NONE, "the loss names no recovery");
  }
  loss.rig.reset();  // destroy and close still work
  kept = {};
  return {};
}

constexpr Case kCases[] = {
    {"fault/queue_failed", "queue_error", "a failed queue stays failed, and says why",
     queue_failed},
    {"fault/settle", "R11", "outstanding work settles within lost_settle_ms", settle, true},
    {"fault/sticky", "R11", "every later call is PN_DEVICE_LOST; destroy works", sticky, true},
};

}  // namespace

std::span<const Case> fault_cases() { return kCases; }

}  // namespace pn::check
