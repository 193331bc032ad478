// SPDX-License-Identifier: Apache-2.0
//
// The validation layer: each kind of misbehaviour is told once, and of the right side.
//
// The plugin is the scripted one with single slots replaced; the host is this file, which calls the
// table as the wrapper never would. A well-behaved run says nothing.
#include "hal/host/validate.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/support/chaos_plugin.h"
#include "tests/support/tiny_plan.h"

namespace {

using namespace pn;
using namespace pn::test;

pn_plugin g_real;   // the scripted plugin's
pn_plugin g_table;  // what is judged: the same, with slots replaced

pn_status entry(const pn_host* host, const pn_plugin** out, pn_error* err) {
  const pn_plugin* given = nullptr;
  const pn_status status = pantheon_plugin_entry_1(host, &given, err);
  if (status != PN_OK) return status;
  const pn_plugin changed = g_table;
  g_real = *given;
  g_table = *given;
  auto keep = [](auto replacement, auto& slot) {
    if (replacement != nullptr) slot = replacement;
  };
  keep(changed.devices, g_table.devices);
  keep(changed.heaps, g_table.heaps);
  keep(changed.memory_status, g_table.memory_status);
  keep(changed.buffer_create, g_table.buffer_create);
  keep(changed.program_query, g_table.program_query);
  keep(changed.program_status, g_table.program_status);
  keep(changed.queue_create, g_table.queue_create);
  keep(changed.queue_query, g_table.queue_query);
  keep(changed.queue_error, g_table.queue_error);
  *out = &g_table;
  return PN_OK;
}

struct Line {
  uint32_t level;
  std::string text;
};
std::mutex g_lines_mutex;
std::vector<Line> g_lines;

// A judged plugin with one die, memory, a program and a queue, all by hand.
struct Rig {
  explicit Rig(const hal::Options& more = {}, const std::function<void(pn_plugin&)>& change = {},
               bool judged = true) {
    hal::Options options = {
        {"clock", "virtual"}, {"tick_ns", "0"}, {"step_ns", "1000"}, {"dies_per_card", "2"}};
    options.insert(options.end(), more.begin(), more.end());
    g_table = {};
    if (change) change(g_table);
    g_lines.clear();
    hal::set_log_sink([](uint32_t level, const std::string&, const char* text) {
      std::lock_guard lock(g_lines_mutex);
      g_lines.push_back({level, text});
    });
    if (judged) ::setenv("PANTHEON_HAL_VALIDATE", "1", 1);
    hal::Note note;
    note.name = "judged";
    auto made = hal::Plugin::from_entry(entry, note, options);
    ::unsetenv("PANTHEON_HAL_VALIDATE");
    REQUIRE_MESSAGE(made.has_value(), made.error().message);
    plugin = *made;
    api = &plugin->table();
    hand = &chaos_hand(*plugin);
  }
  ~Rig() {
    hand->release();
    for (pn_queue q : queues) api->queue_destroy(q);
    for (pn_program p : programs) api->program_destroy(p);
    for (pn_buffer b : buffers) api->buffer_destroy(b);
    if (device.id != 0) api->device_close(device);
    plugin.reset();
    hal::set_log_sink({});
  }
  void open() {
    uint32_t count = 0;
    REQUIRE(api->devices(&count, nullptr, &err) == PN_OK);
    REQUIRE(api->device_open(0, &device, &err) == PN_OK);
    pn_heap_info heaps[2]{};
    heaps[0].struct_size = heaps[1].struct_size = sizeof(pn_heap_info);
    count = 2;
    REQUIRE(api->heaps(device, &count, heaps, &err) == PN_OK);
  }
  pn_buffer buy(uint32_t heap, uint64_t bytes = 1 << 16) {
    pn_buffer out{};
    REQUIRE(api->buffer_create(device, heap, bytes, &out, &host, &err) == PN_OK);
    buffers.push_back(out);
    return out;
  }
  // Everything up to a program that is READY and a queue.
  void build() {
    open();
    pool = buy(0);
    results = buy(1);
    pn_span span{};
    span.struct_size = sizeof span;
    uint64_t unit = 0;
    pn_report report{};
    report.struct_size = sizeof report;
    report.span_count = 1;
    report.spans = &span;
    report.unit_bytes = &unit;
    REQUIRE(api->program_query(device, &tiny.plan, &report, &err) == PN_OK);
    const pn_binding bindings[] = {{PN_BIND_WEIGHT, 0, 0, 0, {pool, 0, 4096}},
                                   {PN_BIND_CACHE, 0, 0, 0, {pool, 4096, 4096}},
                                   {PN_BIND_SCRATCH, 0, 0, 0, {pool, 16384, 4096}},
                                   {PN_BIND_IDS, 0, 0, 0, {pool, 32768, 8}}};
    programs.emplace_back();
    REQUIRE(api->program_create(device, &tiny.plan, 4, bindings, &programs[0], &err) == PN_OK);
    pn_program_status status{};
    status.struct_size = sizeof status;
    REQUIRE(api->program_status(programs[0], &status, &err) == PN_OK);
    queues.emplace_back();
    REQUIRE(api->queue_create(device, PN_QUEUE_RUN, 8, &queues[0], &err) == PN_OK);
  }
  // A step of one token, as it should be; `change` spoils it.
  pn_status run(uint64_t value, const std::function<void(Rig&)>& change = {}) {
    setup = {};
    setup.struct_size = sizeof setup;
    setup.flags = PN_LANE_RESET;
    pages = {0, 0, 0, 0, 4, 0};
    entry_of = {0, 1, 0, 0, PN_NONE, PN_NONE, 0, 0};
    row = {0, 0, PN_ROW_SAMPLE, 0, 0, PN_MASK_NONE, 0, 0, {}, {results, 0, 16}};
    step = {sizeof step, 1, 1, 1, 1, 1, &token, &setup, &pages, &entry_of, &row};
    command = {};
    command.kind = PN_CMD_RUN;
    command.program = programs[0];
    submit = {sizeof submit, 0, 1, 1, value, nullptr, &command, &step};
    if (change) change(*this);
    return api->queue_submit(queues[0], &submit, &err);
  }
  pn_progress look() {
    pn_progress progress{};
    api->queue_query(1, queues.data(), &progress, &err);
    return progress;
  }

  std::shared_ptr<hal::Plugin> plugin;
  const pn_plugin* api = nullptr;
  const chaos_control* hand = nullptr;
  pn_error err{sizeof(pn_error), 0, 0, 0, 0, {}};
  pn_device device{};
  pn_buffer pool{}, results{};
  void* host = nullptr;
  std::vector<pn_buffer> buffers;
  std::vector<pn_program> programs;
  std::vector<pn_queue> queues;
  TinyPlan tiny;
  int32_t token = 5;
  pn_lane setup{};
  pn_pages pages{};
  pn_entry entry_of{};
  pn_row row{};
  pn_step step{};
  pn_command command{};
  pn_submit submit{};
};

bool told(uint32_t level, const std::string& part) {
  std::lock_guard lock(g_lines_mutex);
  for (const Line& line : g_lines) {
    if (line.level == level && line.text.find(part) != std::string::npos) return true;
  }
  return false;
}

std::string all_lines() {
  std::lock_guard lock(g_lines_mutex);
  std::string text;
  for (const Line& line : g_lines) text += std::to_string(line.level) + " " + line.text + "\n";
  return text;
}

#define CHECK_TOLD(level, part) CHECK_MESSAGE(told(level, part), all_lines())
constexpr uint32_t kHost = PN_LOG_HOST_BUG, kPlugin = PN_LOG_PLUGIN_BUG;

struct Deed {
  const char* text;  // part of what is told
  std::function<void(Rig&)> act;
};

void host_does(const std::vector<Deed>& deeds) {
  for (const Deed& deed : deeds) {
    CAPTURE(std::string(deed.text));
    Rig rig;
    rig.build();
    CHECK_MESSAGE(all_lines().empty(), all_lines());
    deed.act(rig);
    CHECK_TOLD(kHost, deed.text);
  }
}

}  // namespace

TEST_CASE("validation: off, the table is the plugin's own; on, a good run is silent") {
  {
    Rig plain({}, {}, false);
    plain.build();
    CHECK((plain.api->queue_submit == g_real.queue_submit));
    plain.run(1, [](Rig& x) { x.command.reserved = 1; });
    CHECK_FALSE(told(PN_LOG_HOST_BUG, "pn_command"));
  }
  Rig rig;
  rig.build();
  CHECK((rig.api->queue_submit != g_real.queue_submit));
  CHECK(rig.run(1) == PN_OK);
  CHECK(rig.look().completed == 0);
  rig.hand->advance(5000);
  CHECK(rig.look().completed == 1);
  pn_memory_status memory{};
  memory.struct_size = sizeof memory;
  CHECK(rig.api->memory_status(rig.device, &memory, &rig.err) == PN_OK);
  CHECK_MESSAGE(all_lines().empty(), all_lines());
}

TEST_CASE("validation: handles that are not alive are named and not passed on") {
  host_does({
      {"was destroyed before",
       [](Rig& r) {
         const pn_buffer extra = r.buy(0);
         r.buffers.pop_back();
         r.api->buffer_destroy(extra);
         r.api->buffer_destroy(extra);
         CHECK(chaos_counts_of(*r.hand).host_faults == 0);  // the second one was not passed on
       }},
      {"was never given by this plugin",
       [](Rig& r) {
         pn_program_status status{};
         status.struct_size = sizeof status;
         CHECK(r.api->program_status({777}, &status, &r.err) == PN_INVALID);
       }},
      {"queue_query: queue",
       [](Rig& r) {
         pn_queue gone = r.queues[0];
         r.api->queue_destroy(gone);
         r.queues.clear();
         pn_progress progress{};
         CHECK(r.api->queue_query(1, &gone, &progress, &r.err) == PN_INVALID);
       }},
      {"row target", [](Rig& r) { r.run(1, [](Rig& x) { x.row.target.offset = 1 << 20; }); }},
  });
}

TEST_CASE("validation: what is in flight, bound or alive may not be destroyed under it") {
  host_does({
      {"is destroyed while value 1 of queue",
       [](Rig& r) {
         CHECK(r.run(1) == PN_OK);
         r.api->program_destroy(r.programs[0]);
         r.programs.clear();
       }},
      {"is bound to program",
       [](Rig& r) {
         r.api->buffer_destroy(r.pool);
         r.buffers.erase(r.buffers.begin());
       }},
      {"device_close: 2 buffer(s) of the device are alive",
       [](Rig& r) {
         r.api->device_close(r.device);
         r.device = {};
         r.queues.clear();
         r.programs.clear();
         r.buffers.clear();
       }},
      {"shutdown: still alive: 1 device(s)",
       [](Rig& r) {
         r.api->shutdown(0);
         r.queues.clear();
         r.programs.clear();
         r.buffers.clear();
         r.device = {};
       }},
  });
}

TEST_CASE("validation: threads and overlapping calls") {
  host_does({
      {"devices: a [load] function was called on a serving thread",
       [](Rig& r) {
         hal::ServingThread serving;
         uint32_t count = 0;
         r.api->devices(&count, nullptr, &r.err);
       }},
      {"queue_wait: a function that blocks was called on a serving thread",
       [](Rig& r) {
         hal::ServingThread serving;
         r.api->queue_wait({r.queues[0], 0}, 0, &r.err);
       }},
      {"queue_create: overlaps another [control] call on device",
       [](Rig& r) {
         r.hand->set("hang", "buffer_create:3");
         std::thread other([&r] { r.buy(0); });
         while (chaos_counts_of(*r.hand).hung == 0) std::this_thread::yield();
         pn_queue queue{};
         CHECK(r.api->queue_create(r.device, PN_QUEUE_RUN, 8, &queue, &r.err) == PN_OK);
         r.queues.push_back(queue);
         r.hand->release();
         other.join();
       }},
      {"queue_submit: overlaps another [queue] call on queue",
       [](Rig& r) {
         r.hand->set("hang", "queue_submit:1");
         pn_submit empty{sizeof empty, 0, 0, 0, 1, nullptr, nullptr, nullptr};
         std::thread other([&] { r.api->queue_submit(r.queues[0], &empty, nullptr); });
         while (chaos_counts_of(*r.hand).hung == 0) std::this_thread::yield();
         pn_submit second = empty;
         second.value = 2;
         r.api->queue_submit(r.queues[0], &second, nullptr);
         r.hand->release();
         other.join();
       }},
  });
}

TEST_CASE("validation: arguments, sizes, strides, reserved words") {
  host_does({
      {"buffer_create: out or host is NULL",
       [](Rig& r) {
         CHECK(r.api->buffer_create(r.device, 0, 64, nullptr, nullptr, &r.err) == PN_INVALID);
         CHECK(std::string(r.err.message).find("NULL") != std::string::npos);
       }},
      {"buffer_create: there is no heap 7",
       [](Rig& r) {
         pn_buffer out{};
         r.api->buffer_create(r.device, 7, 64, &out, &r.host, &r.err);
       }},
      {"pn_memory_status.struct_size is 4",
       [](Rig& r) {
         pn_memory_status memory{};
         memory.struct_size = 4;
         CHECK(r.api->memory_status(r.device, &memory, &r.err) == PN_INVALID);
       }},
      {"pn_error.struct_size is 0",
       [](Rig& r) {
         pn_error bad{};
         uint32_t count = 0;
         CHECK(r.api->devices(&count, nullptr, &bad) == PN_INVALID);
       }},
      {"ops[1].struct_size is 64",
       [](Rig& r) {
         r.tiny.ops[1].struct_size = 64;
         pn_report report{};
         report.struct_size = sizeof report;
         r.api->program_query(r.device, &r.tiny.plan, &report, &r.err);
       }},
      {"op 0 reads slot 9",
       [](Rig& r) {
         r.tiny.ops[0].in[0] = 9;
         pn_report report{};
         report.struct_size = sizeof report;
         r.api->program_query(r.device, &r.tiny.plan, &report, &r.err);
       }},
      {"a reserved word is not 0",
       [](Rig& r) {
         r.tiny.weight.reserved = 1;
         pn_report report{};
         report.struct_size = sizeof report;
         r.api->program_query(r.device, &r.tiny.plan, &report, &r.err);
       }},
      {"queue_create: kind 0 (0 or 1), depth 2 (at least 8)",
       [](Rig& r) {
         pn_queue queue{};
         r.api->queue_create(r.device, PN_QUEUE_RUN, 2, &queue, &r.err);
       }},
      {"an array is NULL, its count is not 0",
       [](Rig& r) { r.run(1, [](Rig& x) { x.submit.commands = nullptr; }); }},
  });
}

TEST_CASE("validation: submits, steps and waits") {
  host_does({
      {"value 1 after 1",
       [](Rig& r) {
         CHECK(r.run(1) == PN_OK);
         CHECK(r.run(1) == PN_INVALID);
       }},
      {"waits for value 9 of queue",
       [](Rig& r) {
         pn_point wait{r.queues[0], 9};
         r.run(1, [&](Rig& x) {
           x.submit.wait_count = 1;
           x.submit.waits = &wait;
         });
       }},
      {"queue_wait: value 5 of queue",
       [](Rig& r) {
         r.api->queue_wait({r.queues[0], 5}, 0, &r.err);
       }},
      {"a reserved word of pn_command is not 0",
       [](Rig& r) { r.run(1, [](Rig& x) { x.command.reserved = 1; }); }},
      {"there is no command of kind 9",
       [](Rig& r) { r.run(1, [](Rig& x) { x.command.kind = 9; }); }},
      {"shape 3 of 1", [](Rig& r) { r.run(1, [](Rig& x) { x.command.shape = 3; }); }},
      {"step 0: entry of lane 9", [](Rig& r) { r.run(1, [](Rig& x) { x.entry_of.lane = 9; }); }},
      {"entry 0: tokens past the end",
       [](Rig& r) { r.run(1, [](Rig& x) { x.entry_of.count = 2; }); }},
      {"row 0 is at token 3 of entry 0", [](Rig& r) { r.run(1, [](Rig& x) { x.row.token = 3; }); }},
      {"lanes[0].struct_size is 8",
       [](Rig& r) { r.run(1, [](Rig& x) { x.setup.struct_size = 8; }); }},
      {"a program stays on one queue",
       [](Rig& r) {
         CHECK(r.run(1) == PN_OK);
         r.queues.insert(r.queues.begin(), pn_queue{});
         CHECK(r.api->queue_create(r.device, PN_QUEUE_RUN, 8, &r.queues[0], &r.err) == PN_OK);
         r.run(1);
       }},
  });
}

// ---- the plugin misbehaves ----------------------------------------------------------------------

namespace {

int g_calls;

void plugin_does(const char* text, const std::function<void(pn_plugin&)>& change,
                 const std::function<void(Rig&)>& act, const hal::Options& options = {}) {
  CAPTURE(std::string(text));
  g_calls = 0;
  Rig rig(options, change);
  act(rig);
  CHECK_TOLD(kPlugin, text);
  CHECK_MESSAGE(!told(kHost, ""), all_lines());
}

pn_status remember(Rig& r) {
  pn_memory_status memory{};
  memory.struct_size = sizeof memory;
  return r.api->memory_status(r.device, &memory, &r.err);
}

void list_dies(Rig& r) {
  pn_device_info infos[2]{};
  infos[0].struct_size = infos[1].struct_size = sizeof(pn_device_info);
  uint32_t count = 2;
  r.api->devices(&count, infos, &r.err);
  CHECK(infos[0].struct_size == sizeof(pn_device_info));  // repaired
  CHECK(infos[0].name[sizeof infos[0].name - 1] == 0);
}

}  // namespace

TEST_CASE("validation: answers of the plugin about dies and memory") {
  plugin_does(
      "memory_status: changed struct_size",
      [](pn_plugin& t) {
        t.memory_status = [](pn_device d, pn_memory_status* out, pn_error* err) {
          const pn_status status = g_real.memory_status(d, out, err);
          out->struct_size = 8;
          return status;
        };
      },
      [](Rig& r) {
        r.open();
        remember(r);
      });
  plugin_does(
      "devices: name does not end with NUL",
      [](pn_plugin& t) {
        t.devices = [](uint32_t* count, pn_device_info* infos, pn_error* err) {
          const pn_status status = g_real.devices(count, infos, err);
          if (infos != nullptr) std::memset(infos->name, 'x', sizeof infos->name);
          return status;
        };
      },
      list_dies);
  plugin_does(
      "devices: there were 2 dies, now 3",
      [](pn_plugin& t) {
        t.devices = [](uint32_t* count, pn_device_info* infos, pn_error* err) {
          const pn_status status = g_real.devices(count, infos, err);
          if (++g_calls == 2) *count = 3;
          return status;
        };
      },
      [](Rig& r) {
        uint32_t count = 0;
        r.api->devices(&count, nullptr, &r.err);
        count = 0;
        r.api->devices(&count, nullptr, &r.err);
      });
  plugin_does(
      "room for 1, there are 2, and it returned 0",
      [](pn_plugin& t) {
        t.devices = [](uint32_t* count, pn_device_info* infos, pn_error* err) -> pn_status {
          g_real.devices(count, infos, err);
          return PN_OK;
        };
      },
      [](Rig& r) {
        pn_device_info info{};
        info.struct_size = sizeof info;
        uint32_t count = 1;
        r.api->devices(&count, &info, &r.err);
      });
  plugin_does(
      "heaps: none has PN_HEAP_RESULTS",
      [](pn_plugin& t) {
        t.heaps = [](pn_device d, uint32_t* count, pn_heap_info* infos, pn_error* err) {
          const pn_status status = g_real.heaps(d, count, infos, err);
          if (infos != nullptr) infos[1].flags &= ~PN_HEAP_RESULTS;
          return status;
        };
      },
      [](Rig& r) { r.open(); });
  plugin_does(
      "HOST_VISIBLE, and the address says otherwise",
      [](pn_plugin& t) {
        t.buffer_create = [](pn_device d, uint32_t heap, uint64_t bytes, pn_buffer* out,
                             void** host, pn_error* err) {
          const pn_status status = g_real.buffer_create(d, heap, bytes, out, host, err);
          *host = nullptr;
          return status;
        };
      },
      [](Rig& r) {
        r.open();
        r.buy(0);
      });
  plugin_does("memory_status: 106300440576 free", {},
              [](Rig& r) {
                r.open();
                remember(r);
              },
              {{"says_free", "99GiB"}});
}

TEST_CASE("validation: handles, errors and losses of the plugin") {
  plugin_does(
      "gave buffer 0, none",
      [](pn_plugin& t) {
        t.buffer_create = [](pn_device, uint32_t, uint64_t, pn_buffer* out, void** host,
                             pn_error*) -> pn_status {
          static char memory[64];
          out->id = 0;
          *host = memory;
          return PN_OK;
        };
      },
      [](Rig& r) {
        r.open();
        r.buy(0);
        r.buffers.clear();
      });
  plugin_does(
      "which is alive already",
      [](pn_plugin& t) {
        t.queue_create = [](pn_device d, uint32_t kind, uint32_t depth, pn_queue* out,
                            pn_error* err) -> pn_status {
          static pn_queue first;
          if (++g_calls == 1) {
            const pn_status status = g_real.queue_create(d, kind, depth, &first, err);
            *out = first;
            return status;
          }
          *out = first;
          return PN_OK;
        };
      },
      [](Rig& r) {
        r.open();
        r.queues.emplace_back();
        r.api->queue_create(r.device, PN_QUEUE_RUN, 8, &r.queues[0], &r.err);
        pn_queue twin{};
        r.api->queue_create(r.device, PN_QUEUE_RUN, 8, &twin, &r.err);
      });
  auto fails_as = [](const char* text, pn_status (*slot)(pn_device, pn_memory_status*, pn_error*)) {
    plugin_does(
        text, [slot](pn_plugin& t) { t.memory_status = slot; },
        [](Rig& r) {
          r.open();
          remember(r);
          remember(r);
        });
  };
  fails_as("returned -5 and wrote code -3",
           [](pn_device, pn_memory_status*, pn_error* err) -> pn_status {
             err->code = PN_OUT_OF_MEMORY;
             std::strcpy(err->message, "something");
             return PN_FAILED;
           });
  fails_as("failed without a message",
           [](pn_device, pn_memory_status*, pn_error* err) -> pn_status {
             err->code = PN_FAILED;
             err->message[0] = 0;
             return PN_FAILED;
           });
  fails_as("returned 17, which it may not",
           [](pn_device, pn_memory_status*, pn_error*) -> pn_status { return 17; });
  fails_as("said PN_DEVICE_LOST of this device before, and PN_OK now",
           [](pn_device d, pn_memory_status* out, pn_error* err) -> pn_status {
             if (++g_calls == 2) return g_real.memory_status(d, out, err);
             err->code = PN_DEVICE_LOST;
             err->scope = PN_SCOPE_DEVICE;
             std::strcpy(err->message, "gone");
             return PN_DEVICE_LOST;
           });
}

TEST_CASE("validation: progress, failures and programs of the plugin") {
  auto looks_as = [](const char* text,
                     pn_status (*slot)(uint32_t, const pn_queue*, pn_progress*, pn_error*)) {
    plugin_does(
        text, [slot](pn_plugin& t) { t.queue_query = slot; },
        [](Rig& r) {
          r.build();
          CHECK(r.run(1) == PN_OK);
          for (int i = 0; i < 3; ++i) r.look();
        });
  };
  looks_as("completed went back from 1 to 0",
           [](uint32_t, const pn_queue*, pn_progress* out, pn_error*) -> pn_status {
             out[0] = {++g_calls == 1 ? 1u : 0u, PN_QUEUE_OK, 0};
             return PN_OK;
           });
  looks_as("completed 8, submitted was 1",
           [](uint32_t, const pn_queue*, pn_progress* out, pn_error*) -> pn_status {
             out[0] = {8, PN_QUEUE_OK, 0};
             return PN_OK;
           });
  looks_as("state 1 became 0",
           [](uint32_t, const pn_queue*, pn_progress* out, pn_error*) -> pn_status {
             out[0] = {0, ++g_calls == 1 ? PN_QUEUE_FAILED : PN_QUEUE_OK, 0};
             return PN_OK;
           });
  looks_as("completed rose after it had failed",
           [](uint32_t, const pn_queue*, pn_progress* out, pn_error*) -> pn_status {
             out[0] = {++g_calls == 1 ? 0u : 1u, PN_QUEUE_FAILED, 0};
             return PN_OK;
           });
  plugin_does(
      "queue_error: the answer has changed",
      [](pn_plugin& t) {
        t.queue_error = [](pn_queue q, pn_error* err) {
          const pn_status status = g_real.queue_error(q, err);
          err->recovery = ++g_calls == 1 ? PN_RECOVER_NONE : PN_RECOVER_OPERATOR;
          return status;
        };
      },
      [](Rig& r) {
        r.build();
        CHECK(r.run(1) == PN_OK);
        r.hand->advance(5000);
        CHECK(r.look().state == PN_QUEUE_FAILED);
        r.api->queue_error(r.queues[0], &r.err);
        r.api->queue_error(r.queues[0], &r.err);
      },
      {{"fail_step", "1"}});
  plugin_does(
      "the spans end at op 1 of 2",
      [](pn_plugin& t) {
        t.program_query = [](pn_device d, const pn_plan* plan, pn_report* report, pn_error* err) {
          const pn_status status = g_real.program_query(d, plan, report, err);
          report->spans->op_count = 1;
          return status;
        };
      },
      [](Rig& r) { r.build(); });
  plugin_does(
      "program_status: state 1 became 0",
      [](pn_plugin& t) {
        t.program_status = [](pn_program p, pn_program_status* out, pn_error* err) {
          const pn_status status = g_real.program_status(p, out, err);
          if (++g_calls == 2) out->state = PN_PROGRAM_BUILDING;
          return status;
        };
      },
      [](Rig& r) {
        r.build();
        pn_program_status status{};
        status.struct_size = sizeof status;
        r.api->program_status(r.programs[0], &status, &r.err);
      });
}
