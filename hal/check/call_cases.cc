// SPDX-License-Identifier: Apache-2.0
//
// Group contract: arguments, handles, errors, texts, interfaces.
#include "hal/check/contract.h"

#include <set>

namespace pn::check {

namespace {

// ---- NULL where something is needed -------------------------------------------------------------

std::vector<Failing> null_calls(Side* side, Rig* rig) {
  const pn_plugin& t = side->table();
  const pn_device d = side->handle();
  const pn_queue q = side->queue().handle();
  std::vector<Failing> c = {
      {"devices without count", PN_INVALID,
       [&t](pn_error* e) { return t.devices(nullptr, nullptr, e); }},
      {"heaps without count", PN_INVALID,
       [&t, d](pn_error* e) { return t.heaps(d, nullptr, nullptr, e); }},
      {"device_open without out", PN_INVALID,
       [&t](pn_error* e) { return t.device_open(4000000, nullptr, e); }},
      {"memory_status without out", PN_INVALID,
       [&t, d](pn_error* e) { return t.memory_status(d, nullptr, e); }},
      {"buffer_create without out", PN_INVALID,
       [&t, d](pn_error* e) { return t.buffer_create(d, 0, 4096, nullptr, nullptr, e); }},
      {"queue_create without out", PN_INVALID,
       [&t, d](pn_error* e) { return t.queue_create(d, PN_QUEUE_RUN, 8, nullptr, e); }},
      {"queue_submit without submit", PN_INVALID,
       [&t, q](pn_error* e) { return t.queue_submit(q, nullptr, e); }},
      {"queue_submit of one command, none given", PN_INVALID,
       [&t, q, side](pn_error* e) {
         pn_submit s{};
         s.struct_size = sizeof s;
         s.command_count = 1;
         s.value = side->next_value();
         return t.queue_submit(q, &s, e);
       }},
      {"queue_query of one queue, none given", PN_INVALID,
       [&t](pn_error* e) { return t.queue_query(1, nullptr, nullptr, e); }},
      {"program_query without plan", PN_INVALID, [&t, d](pn_error* e) {
         pn_report r{};
         r.struct_size = sizeof r;
         return t.program_query(d, nullptr, &r, e);
       }}};
  if (rig == nullptr) return c;
  c.push_back({"program_query without report", PN_INVALID, [&t, d, rig](pn_error* e) {
                 const pn_plan plan = rig->plan().view();
                 return t.program_query(d, &plan, nullptr, e);
               }});
  c.push_back({"program_query of ops that are NULL", PN_INVALID, [&t, d, rig](pn_error* e) {
                 pn_plan plan = rig->plan().view();
                 plan.ops = nullptr;
                 pn_report r{};
                 r.struct_size = sizeof r;
                 return t.program_query(d, &plan, &r, e);
               }});
  c.push_back({"program_create without out", PN_INVALID, [&t, d, rig](pn_error* e) {
                 const pn_plan plan = rig->plan().view();
                 return t.program_create(d, &plan, static_cast<uint32_t>(rig->bindings().size()),
                                         rig->bindings().data(), nullptr, e);
               }});
  c.push_back({"program_status without out", PN_INVALID, [&t, rig](pn_error* e) {
                 return t.program_status(rig->program().handle(), nullptr, e);
               }});
  return c;
}

Result<void> null_arguments(Bench& bench) {
  PN_TRY(auto rig, simple_rig(bench));
  PN_TRY(Side * side, bench.subject());
  for (const Failing& f : null_calls(side, rig.get())) {
    pn_error err = new_error();
    const pn_status status = f.call(&err);
    bench.expect(status == f.wanted, "{}: status {}, wanted PN_INVALID", f.name, status);
  }
  if (const auto* layout = side->plugin().interface<pn_layout_api>()) {
    uint32_t count = 1;
    pn_error err = new_error();
    const pn_status status =
        layout->rank(nullptr, side->device().info().layout_target, &count, nullptr, &err);
    bench.expect(status == PN_INVALID, "layout.rank without weight: status {}", status);
  }
  return {};
}

Result<void> errors_null(Bench& bench) {
  PN_TRY(auto rig, simple_rig(bench));
  PN_TRY(const std::vector<Failing> calls, failing_calls(bench, rig.get()));
  for (const Failing& f : calls) {
    pn_error err = new_error();
    const pn_status with = f.call(&err), without = f.call(nullptr);
    bench.expect(with == without, "{}: status {} with a pn_error, {} without", f.name, with,
                 without);
  }
  return {};
}

Result<void> error_text(Bench& bench) {
  PN_TRY(auto rig, simple_rig(bench));
  PN_TRY(const std::vector<Failing> calls, failing_calls(bench, rig.get()));
  for (const Failing& f : calls) {
    unsigned char bytes[sizeof(pn_error) + 32];
    std::memset(bytes, 0xcd, sizeof bytes);
    pn_error err;
    std::memset(&err, 0xcd, sizeof err);
    err.struct_size = sizeof err;
    std::memcpy(bytes, &err, sizeof err);
    const pn_status status = f.call(reinterpret_cast<pn_error*>(bytes));
    std::memcpy(&err, bytes, sizeof err);
    bench.expect(status == f.wanted, "{}: status {}, wanted {}", f.name, status, f.wanted);
    bench.expect(err.code == status, "{}: returns {}, its pn_error says {}", f.name, status,
                 err.code);
    const size_t length = ::strnlen(err.message, sizeof err.message);
    bench.expect(length != 0, "{}: no text", f.name);
    bench.expect(length < sizeof err.message && static_cast<unsigned char>(err.message[0]) != 0xcd,
                 "{}: the text does not end in its field, or was not written", f.name);
    bench.expect(err.scope <= PN_SCOPE_PLUGIN && err.recovery <= PN_RECOVER_OPERATOR,
                 "{}: scope {} and recovery {}", f.name, err.scope, err.recovery);
    bench.expect(bytes[sizeof err] == 0xcd && bytes[sizeof err + 31] == 0xcd,
                 "{}: writes past pn_error", f.name);
  }
  return {};
}

Result<void> handles(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  const pn_plugin& t = side->table();
  PN_TRY(hal::Buffer buffer, side->place(4096));
  const pn_buffer dead_buffer = buffer.handle();
  buffer = {};
  PN_TRY(hal::Queue queue, side->device().create_queue(PN_QUEUE_TRANSFER, 8));
  const pn_queue dead_queue = queue.handle();
  queue = {};
  for (const uint64_t id : {uint64_t{0}, uint64_t{0x7eadbeef00000001}, dead_queue.id}) {
    pn_error err = new_error();
    pn_progress progress{};
    const pn_queue q{id};
    const pn_status status = t.queue_query(1, &q, &progress, &err);
    bench.expect(status == PN_INVALID, "queue_query of {:#x}: status {}, wanted PN_INVALID", id,
                 status);
  }
  for (const uint64_t id : {uint64_t{0}, uint64_t{0x7eadbeef00000001}, dead_buffer.id}) {
    PN_TRY(hal::Buffer live, side->place(4096));
    pn_command command{};
    command.kind = PN_CMD_COPY;
    command.source = {{id}, 0, 64};
    command.target = live.slice(0, 64);
    if (id == live.handle().id) continue;  // handles may be used again
    const bool taken = side->execute({&command, 1}, {}).has_value();
    if (!bench.expect(!taken, "COPY from buffer {:#x} is taken", id)) continue;
    PN_TRY(side->renew_queue());
  }
  for (const uint64_t id : {uint64_t{0}, uint64_t{0x7eadbeef00000001}}) {
    pn_error err = new_error();
    pn_memory_status memory{};
    memory.struct_size = sizeof memory;
    pn_program_status program{};
    program.struct_size = sizeof program;
    const pn_status of_device = t.memory_status({id}, &memory, &err);
    const pn_status of_program = t.program_status({id}, &program, &err);
    bench.expect(of_device == PN_INVALID, "memory_status of {:#x}: status {}", id, of_device);
    bench.expect(of_program == PN_INVALID, "program_status of {:#x}: status {}", id, of_program);
  }
  return {};
}

// ---- texts, interfaces, dies --------------------------------------------------------------------

bool ends(const char* text, size_t room) { return ::strnlen(text, room) < room; }

Result<void> strings(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const auto dies, side->plugin().devices());
  for (const pn_device_info& die : dies)
    bench.expect(ends(die.uid, sizeof die.uid) && ends(die.name, sizeof die.name) &&
                     ends(die.reason, sizeof die.reason),
                 "a text of die {} does not end in its field", die.die_index);
  // A plan that nobody can do carries its reason.
  Plan plan;
  plan.shapes = {{4, 1, 1, 16}};
  plan.input(64), plan.output(64);
  pn_op& op = plan.op(4711);
  op.in[0] = 0;
  op.out[0] = 1;
  const pn_plan view = plan.view();
  const auto report = side->device().query(view);
  if (report) {
    bench.expect(!report->supported(), "op 4711 is supported");
    for (const pn_span& span : report->spans)
      if (span.granularity == PN_SPAN_UNSUPPORTED)
        bench.expect(ends(span.reason, sizeof span.reason) && span.reason[0] != 0,
                     "an UNSUPPORTED span has no reason that ends in its field");
  }
  if (const auto* telemetry = side->plugin().interface<pn_telemetry_api>()) {
    char reason[128 + 16];
    std::memset(reason, 0x11, sizeof reason);
    uint32_t health = 99;
    pn_error err = new_error();
    const pn_status status = telemetry->health(side->handle(), &health, reason, &err);
    bench.expect(status == PN_OK && health <= PN_HEALTH_FAILING, "health: status {}, health {}",
                 status, health);
    bench.expect(ends(reason, 128) && reason[128] == 0x11, "health: the reason does not end");
  }
  if (!side->layout()) return {};
  Plan weights;
  weights.matrix(64, 64, 1);
  weights.random_vector(64, 1);
  for (const pn_weight& w : weights.weights) {
    const auto choices = side->layout()->rank(w);
    if (!choices) continue;
    for (const pn_layout_choice& choice : *choices)
      bench.expect(ends(choice.name, sizeof choice.name) && choice.name[0] != 0,
                   "a layout has no name that ends in its field");
  }
  return {};
}

template <typename T>
void check_table(Bench& bench, Side* side, const char* id, std::span<const size_t> slots) {
  const void* given = side->plugin().raw_interface(id);
  if (given == nullptr) return;
  uint32_t size = 0;
  std::memcpy(&size, given, 4);
  bench.expect(size >= sizeof(T) && size % 8 == 0, "{}: struct_size {}, wanted {}", id, size,
               sizeof(T));
  bench.expect(side->plugin().raw_interface(id) == given, "{}: another table the second time", id);
  for (const size_t slot : slots) {
    const void* function = nullptr;
    std::memcpy(&function, static_cast<const char*>(given) + slot, sizeof function);
    bench.expect(function != nullptr, "{}: the slot at byte {} is empty", id, slot);
  }
}

Result<void> interfaces(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  constexpr size_t kOne[] = {8}, kThree[] = {8, 16, 24}, kFour[] = {8, 16, 24, 32};
  check_table<pn_layout_api>(bench, side, "pantheon.layout/1", kFour);
  check_table<pn_hostmem_api>(bench, side, "pantheon.hostmem/1", kOne);
  check_table<pn_sampler_api>(bench, side, "pantheon.sampler/1", kOne);
  check_table<pn_graph_api>(bench, side, "pantheon.graph/1", kOne);
  check_table<pn_topology_api>(bench, side, "pantheon.topology/1", kOne);
  check_table<pn_peer_api>(bench, side, "pantheon.peer/1", kOne);
  check_table<pn_telemetry_api>(bench, side, "pantheon.telemetry/1", kThree);
  check_table<pn_reset_api>(bench, side, "pantheon.reset/1", kThree);
  for (const char* id :
       {"", "pantheon.layout", "pantheon.layout/2", "pantheon.layout/1x", "org.example.unknown/1"})
    bench.expect(side->plugin().raw_interface(id) == nullptr, "answers the interface \"{}\"", id);
  return {};
}

Result<void> devices(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const auto dies, side->plugin().devices());
  std::set<std::string> uids;
  for (const pn_device_info& die : dies) {
    bench.expect(die.uid[0] != 0 && uids.insert(die.uid).second, "uid \"{}\" is empty or double",
                 die.uid);
    bench.expect(die.name[0] != 0, "{} has no name", die.uid);
    bench.expect(die.dies_on_card == 0 || die.die_index < die.dies_on_card,
                 "{}: die {} of {} on its card", die.uid, die.die_index, die.dies_on_card);
    bench.expect(die.state == PN_STATE_READY || die.state == PN_STATE_IN_USE || die.reason[0] != 0,
                 "{}: state {} without a reason", die.uid, die.state);
    bench.expect(die.state != PN_STATE_READY || die.lost_settle_ms != 0,
                 "{}: no bound for settling after a loss (lost_settle_ms)", die.uid);
  }
  bool results = false;
  for (const pn_heap_info& heap : side->device().heaps()) {
    results = results || (heap.flags & PN_HEAP_RESULTS) != 0;
    const bool power = heap.alignment != 0 && (heap.alignment & (heap.alignment - 1)) == 0;
    bench.expect(power && heap.copy_alignment != 0 && heap.granule != 0,
                 "a heap has alignment {}, copy alignment {}, granule {}", heap.alignment,
                 heap.copy_alignment, heap.granule);
    bench.expect(heap.bytes_max != 0 && heap.kind <= PN_HEAP_HOST_MAPPED,
                 "a heap has bytes_max {}, kind {}", heap.bytes_max, heap.kind);
  }
  bench.expect(results, "no heap has RESULTS");
  pn_error err = new_error();
  pn_device second{};
  const pn_status status = side->table().device_open(side->device().index(), &second, &err);
  if (status == PN_OK) side->table().device_close(second);
  bench.expect(status == PN_OK || status == PN_UNSUPPORTED || status == PN_INVALID,
               "opening an open die: status {}", status);
  return {};
}

Result<void> query(Bench& bench) {
  PN_TRY(auto rig, simple_rig(bench));
  if (rig == nullptr) return {};
  PN_TRY(const pn_memory_status before, rig->side().device().memory_status());
  const pn_plan plan = rig->plan().view();
  for (int i = 0; i < 50; ++i) {
    PN_TRY(const hal::Report report, rig->side().device().query(plan));
    const hal::Report& first = rig->report();
    bool same = report.spans.size() == first.spans.size();
    for (size_t s = 0; same && s < report.spans.size(); ++s)
      same = std::memcmp(&report.spans[s], &first.spans[s], sizeof(pn_span)) == 0;
    same = same && report.head.scratch_bytes == first.head.scratch_bytes &&
           report.head.program_bytes == first.head.program_bytes &&
           report.unit_bytes == first.unit_bytes;
    if (!bench.expect(same, "query {} answers otherwise than the first", i)) break;
  }
  uint32_t covered = 0;
  for (const pn_span& span : rig->report().spans) {
    bench.expect(span.first_op == covered && span.op_count != 0, "spans leave out or repeat op {}",
                 covered);
    covered = span.first_op + span.op_count;
  }
  bench.expect(covered == plan.op_count, "spans cover {} of {} ops", covered, plan.op_count);
  PN_TRY(const pn_memory_status after, rig->side().device().memory_status());
  bench.expect(after.used_by_us == before.used_by_us, "queries took {} bytes of memory",
               static_cast<int64_t>(after.used_by_us - before.used_by_us));
  return {};
}

// The main thread says that it serves: then waiting is refused, and asking is not.
Result<void> thread_check(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  const pn_queue queue = side->queue().handle();
  pn_error err = new_error();
  const hal::ServingThread serving;
  const pn_status waited = side->table().queue_wait({queue, 1}, 0, &err);
  bench.expect(waited == PN_INVALID,
               "queue_wait on a serving thread: status {}, wanted PN_INVALID (ask thread_check for "
               "PN_THREAD_BLOCK)",
               waited);
  pn_progress progress{};
  const pn_status asked = side->table().queue_query(1, &queue, &progress, &err);
  bench.expect(asked == PN_OK, "queue_query on a serving thread: status {}", asked);
  pn_memory_status memory{};
  memory.struct_size = sizeof memory;
  const pn_status status = side->table().memory_status(side->handle(), &memory, &err);
  bench.expect(status == PN_OK, "memory_status on a serving thread: status {}", status);
  return {};
}

constexpr Case kCases[] = {
    {"contract/null_arguments", "R10", "NULL where something is needed is PN_INVALID",
     null_arguments},
    {"contract/errors_null", "R10", "pn_error may be NULL", errors_null},
    {"contract/error_text", "R9", "failures have a text, the right code, and end in their field",
     error_text},
    {"contract/handles", "core.h", "0, invented and destroyed handles are refused", handles},
    {"contract/strings", "R9", "texts end inside their fields", strings},
    {"contract/interfaces", "get_interface", "stable, complete tables; unknown ids get none",
     interfaces},
    {"contract/devices", "device.h", "dies and heaps say what they must", devices},
    {"contract/query", "program_query", "no effects, the same answer, spans over all ops", query},
    {"contract/thread_check", "PN_THREAD_BLOCK", "a serving thread is not blocked", thread_check},
};

}  // namespace

std::span<const Case> call_cases() { return kCases; }

}  // namespace pn::check
