// SPDX-License-Identifier: Apache-2.0
//
// The tables: dies, heaps, buffers, queues and their knobs. What a step means is in
// fake_program.cc. Steps are executed when they complete, so results that are read too early are
// stale.
#include "tests/support/fake_plugin.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "tests/support/fake_state.h"

namespace pn::test {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

uint64_t clock_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(t.tv_nsec);
}

FakePlugin::State& state() { return FakePlugin::instance().state(); }

pn_status devices(uint32_t* count, pn_device_info* infos, pn_error*) {
  if (*count == 0 || infos == nullptr) {
    *count = 1;
    return PN_OK;
  }
  pn_device_info info{};
  info.state = PN_STATE_READY;
  std::strcpy(info.uid, "fake:0");
  std::strcpy(info.name, "fake die");
  info.dies_on_card = 1;
  info.pci_domain = PN_NONE;
  info.numa_node = -1;
  pn_write(infos, &info, sizeof(info));
  *count = 1;
  return PN_OK;
}

pn_status device_open(uint32_t index, pn_device* out, pn_error* error) {
  if (index != 0) return fake_error(error, PN_INVALID, "there is one die");
  out->id = 1;
  return PN_OK;
}

void device_close(pn_device) {}

pn_status heaps(pn_device, uint32_t* count, pn_heap_info* infos, pn_error*) {
  if (infos == nullptr || *count == 0) {
    *count = 2;
    return PN_OK;
  }
  Lock lock(FakePlugin::instance().mutex());
  pn_heap_info device{};
  device.kind = PN_HEAP_DEVICE;
  device.flags = PN_HEAP_BINDS;
  if (state().knobs.device_visible) device.flags |= PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED;
  device.alignment = 256;
  device.copy_alignment = 16;
  device.granule = 4096;
  device.bytes_max = 64 << 20;
  device.total = 1ull << 32;
  pn_heap_info pinned = device;
  pinned.kind = PN_HEAP_HOST_PINNED;
  pinned.flags = PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_RESULTS;
  pn_write(infos, &device, sizeof(device));
  if (*count > 1) pn_write(PN_AT(pn_heap_info, infos, 1), &pinned, sizeof(pinned));
  *count = 2;
  return PN_OK;
}

pn_status memory_status(pn_device, pn_memory_status* out, pn_error* error) {
  Lock lock(FakePlugin::instance().mutex());
  if (state().knobs.lost) return fake_error(error, PN_DEVICE_LOST, "pulled out");
  pn_memory_status memory{};
  memory.quality = 2;
  memory.total = 1ull << 32;
  memory.free_now = state().knobs.memory_free;
  pn_write(out, &memory, sizeof(memory));
  return PN_OK;
}

pn_status buffer_create(pn_device, uint32_t heap, uint64_t bytes, pn_buffer* out, void** host,
                        pn_error*) {
  Lock lock(FakePlugin::instance().mutex());
  out->id = state().next_id++;
  FakeBuffer& buffer = state().buffers[out->id];
  buffer.heap = heap;
  buffer.bytes.resize(bytes + 256);
  bool visible = heap == 1 || state().knobs.device_visible;
  if (host != nullptr) *host = visible ? fake_at(state(), {*out, 0, bytes}) : nullptr;
  return PN_OK;
}

void buffer_destroy(pn_buffer buffer) {
  Lock lock(FakePlugin::instance().mutex());
  state().buffers.erase(buffer.id);
}

pn_status program_status(pn_program, pn_program_status* out, pn_error*) {
  pn_program_status status{};
  status.state = PN_PROGRAM_READY;
  status.done = status.total = 1;
  pn_write(out, &status, sizeof(status));
  return PN_OK;
}

void program_destroy(pn_program program) {
  Lock lock(FakePlugin::instance().mutex());
  state().programs.erase(program.id);
}

pn_status queue_create(pn_device, uint32_t, uint32_t, pn_queue* out, pn_error*) {
  Lock lock(FakePlugin::instance().mutex());
  out->id = state().next_id++;
  state().queues[out->id] = FakeQueue{};
  return PN_OK;
}

void queue_destroy(pn_queue queue) {
  Lock lock(FakePlugin::instance().mutex());
  state().queues.erase(queue.id);
}

void take_step(FakePlugin::Pending& pending, const pn_step& step) {
  pending.tokens.assign(step.tokens, step.tokens + step.token_count);
  pending.lanes.assign(step.lanes, step.lanes + step.lane_count);
  pending.pages.assign(step.pages, step.pages + step.page_count);
  pending.entries.assign(step.entries, step.entries + step.entry_count);
  pending.rows.assign(step.rows, step.rows + step.row_count);
}

pn_status queue_submit(pn_queue queue, const pn_submit* submit, pn_error* error) {
  Lock lock(FakePlugin::instance().mutex());
  FakePlugin::State& s = state();
  FakeQueue& q = s.queues[queue.id];
  if (s.knobs.lost || q.state == PN_QUEUE_LOST) {
    return fake_error(error, PN_DEVICE_LOST, "pulled out");
  }
  if (submit->value <= q.submitted) return fake_error(error, PN_INVALID, "value went back");
  FakePlugin::Pending pending;
  pending.value = submit->value;
  pending.start_ns = clock_ns();
  pending.commands.assign(submit->commands, submit->commands + submit->command_count);
  for (const pn_command& command : pending.commands) {
    if (command.kind != PN_CMD_RUN) continue;
    const pn_step& step = submit->steps[command.step];
    take_step(pending, step);
    pending.number = ++s.counters.steps;
    FakeProgram& program = s.programs[command.program.id];
    fake_check(s, program, step);
    if (step.token_count == 0 && step.entry_count == 0) continue;
    const pn_shape& shape = program.shapes[command.shape];
    uint32_t tokens = 0;
    for (const pn_entry& entry : pending.entries) tokens += entry.count;
    if (tokens > shape.tokens || step.entry_count > shape.entries || step.row_count > shape.rows) {
      s.counters.broken.push_back("a step does not fit its shape");
    }
  }
  q.submitted = submit->value;
  q.pending.push_back(std::move(pending));
  s.counters.most_queued = std::max<uint64_t>(s.counters.most_queued, q.pending.size());
  return PN_OK;
}

// Executes what is due. Returns false when nothing more is.
bool advance(FakeQueue& q) {
  FakePlugin::State& s = state();
  if (q.pending.empty() || q.state != PN_QUEUE_OK) return false;
  FakePlugin::Pending& next = q.pending.front();
  bool run = next.number != 0;
  if (run && s.knobs.by_hand && s.allowed == 0) return false;
  uint64_t start = std::max(next.start_ns, q.last_done_ns);
  if (run && s.knobs.step_ns != 0 && clock_ns() < start + s.knobs.step_ns) return false;
  if (run && s.knobs.by_hand) --s.allowed;
  if (run && next.number == s.knobs.fail_at) q.state = PN_QUEUE_FAILED;
  if (run && next.number == s.knobs.lose_at) {
    q.state = PN_QUEUE_LOST;
    s.knobs.lost = true;
  }
  if (q.state != PN_QUEUE_OK) return false;
  fake_execute(s, next);
  q.completed = next.value;
  q.last_done_ns = s.knobs.step_ns != 0 ? start + s.knobs.step_ns : 0;
  q.pending.pop_front();
  return true;
}

pn_status queue_query(uint32_t count, const pn_queue* queues, pn_progress* out, pn_error*) {
  Lock lock(FakePlugin::instance().mutex());
  for (uint32_t i = 0; i < count; ++i) {
    FakeQueue& q = state().queues[queues[i].id];
    if (state().knobs.lost) q.state = PN_QUEUE_LOST;
    while (advance(q)) {
    }
    out[i] = {q.completed, q.state, 0};
  }
  return PN_OK;
}

pn_status queue_wait(pn_point point, uint64_t, pn_error* error) {
  pn_progress progress{};
  queue_query(1, &point.queue, &progress, error);
  return progress.completed >= point.value ? PN_OK : PN_NOT_READY;
}

pn_status queue_error(pn_queue queue, pn_error* error) {
  Lock lock(FakePlugin::instance().mutex());
  bool lost = state().queues[queue.id].state == PN_QUEUE_LOST;
  fake_error(error, lost ? PN_DEVICE_LOST : PN_FAILED, lost ? "pulled out" : "a kernel trapped");
  return PN_OK;
}

pn_status describe_sampler(pn_device, pn_sampler_info* out, pn_error*) {
  Lock lock(FakePlugin::instance().mutex());
  pn_sampler_info info{sizeof(pn_sampler_info), state().knobs.features, 32, 4096};
  pn_write(out, &info, sizeof(info));
  return PN_OK;
}

const void* get_interface(const char* id) {
  static const pn_sampler_api sampler{sizeof(pn_sampler_api), 0, describe_sampler};
  if (std::strcmp(id, "pantheon.sampler/1") == 0) return &sampler;
  if (std::strcmp(id, "pantheon.layout/1") == 0) return fake_layout();
  return nullptr;
}

void shutdown(uint64_t) {}

}  // namespace

FakePlugin::FakePlugin() : state_(std::make_unique<State>()) {}
FakePlugin::~FakePlugin() = default;

FakePlugin& FakePlugin::instance() {
  static FakePlugin plugin;
  return plugin;
}

const pn_plugin* FakePlugin::table() {
  static const pn_plugin plugin{
      .struct_size = sizeof(pn_plugin),
      .abi_minor = PN_ABI_MINOR,
      .min_host_minor = PN_ABI_MINOR,
      .reserved = 0,
      .devices = devices,
      .device_open = device_open,
      .device_close = device_close,
      .heaps = heaps,
      .memory_status = memory_status,
      .buffer_create = buffer_create,
      .buffer_destroy = buffer_destroy,
      .program_query = fake_query,
      .program_create = fake_create,
      .program_status = program_status,
      .program_destroy = program_destroy,
      .queue_create = queue_create,
      .queue_submit = queue_submit,
      .queue_query = queue_query,
      .queue_wait = queue_wait,
      .queue_error = queue_error,
      .queue_destroy = queue_destroy,
      .get_interface = get_interface,
      .shutdown = shutdown,
  };
  return &plugin;
}

pn_status FakePlugin::entry(const pn_host*, const pn_plugin** out, pn_error*) {
  *out = table();
  return PN_OK;
}

void FakePlugin::reset() {
  Lock lock(mutex_);
  state_ = std::make_unique<State>();
}

void FakePlugin::set(const std::function<void(Knobs&)>& change) {
  Lock lock(mutex_);
  change(state_->knobs);
}

void FakePlugin::complete(uint64_t steps) {
  Lock lock(mutex_);
  state_->allowed += steps;
}

FakePlugin::Counters FakePlugin::counters() const {
  Lock lock(mutex_);
  return state_->counters;
}

pn_status fake_error(pn_error* error, pn_status code, const std::string& message) {
  if (error != nullptr) {
    pn_error found{};
    found.code = code;
    std::strncpy(found.message, message.c_str(), sizeof(found.message) - 1);
    pn_write(error, &found, sizeof(found));
  }
  return code;
}

std::byte* fake_at(FakePlugin::State& state, const pn_slice& slice) {
  auto at = state.buffers.find(slice.buffer.id);
  if (at == state.buffers.end() || slice.offset + slice.bytes + 256 > at->second.bytes.size()) {
    state.counters.broken.push_back("a slice lies outside its buffer");
    static std::vector<std::byte> nowhere(1 << 20);
    return nowhere.data();
  }
  auto base = reinterpret_cast<uintptr_t>(at->second.bytes.data());
  return reinterpret_cast<std::byte*>((base + 255) / 256 * 256) + slice.offset;
}

}  // namespace pn::test
