// SPDX-License-Identifier: Apache-2.0
//
// The control slots of an isolated plugin: each writes its arguments, asks, and hands out what came
// back. What the plugin says of a wrong argument comes from the plugin.
#include "hal/proxy/proxy.h"
#include "hal/proxy/proxy_lists.h"

#include <algorithm>

namespace pn::proxy {

namespace {

pn_status refuse_unknown(pn_error* err, const char* call, const char* name) {
  return set_error(err, PN_UNSUPPORTED,
                   std::string(call) + ": " + name +
                       " is missing, too short, or says something newer than this pantheon knows");
}

}  // namespace

// ---- dies ---------------------------------------------------------------------------------------

pn_status Proxy::devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  if (count == nullptr) return set_error(err, PN_INVALID, "devices: count is NULL");
  Writer args;
  args.pod(room_of(count, infos));
  Answer answer = ask(0, Call::devices, args, err, kLoadMs);
  return take_list(answer, count, infos);
}

pn_status Proxy::device_open(uint32_t index, pn_device* out, pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "device_open: out is NULL");
  Writer args;
  args.pod(index);
  Answer answer = ask(0, Call::device_open, args, err, kLoadMs);
  if (answer.status != PN_OK) return answer.status;
  out->id = answer.in.pod<uint64_t>();
  std::lock_guard lock(mutex_);
  board_slots_[out->id] = answer.in.pod<uint32_t>();
  return PN_OK;
}

void Proxy::device_close(pn_device device) {
  tell(device.id, Call::device_close);
  std::lock_guard lock(mutex_);
  board_slots_.erase(device.id);
}

pn_status Proxy::heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err) {
  if (count == nullptr) return set_error(err, PN_INVALID, "heaps: count is NULL");
  Writer args;
  args.pod(device.id);
  args.pod(room_of(count, infos));
  Answer answer = ask(device.id, Call::heaps, args, err);
  return take_list(answer, count, infos);
}

// Never a call: the scheduler's thread asks, and what the board says is at most a heartbeat old.
pn_status Proxy::memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "memory_status: out is NULL");
  Answer answer;
  const std::shared_ptr<Link> to = link_of(device.id, &answer);
  uint32_t slot = kBoardDevices;
  {
    std::lock_guard lock(mutex_);
    if (auto at = board_slots_.find(device.id); at != board_slots_.end()) slot = at->second;
  }
  if (to != nullptr && to->lost()) {
    answer.error = to->loss();
    answer.status = answer.error.code;
  } else if (to != nullptr) {
    pn_memory_status memory{};
    if (!to->read_board(slot, &answer.status, &memory, &answer.error))
      return set_error(err, PN_INVALID, "memory_status: no such device");
    if (answer.status == PN_OK) pn_write(out, &memory, sizeof memory);
  }
  if (answer.status != PN_OK && err != nullptr) pn_write(err, &answer.error, sizeof answer.error);
  return answer.status;
}

// ---- buffers ------------------------------------------------------------------------------------

pn_status Proxy::buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                               void** host, pn_error* err) {
  if (out == nullptr || host == nullptr)
    return set_error(err, PN_INVALID, "buffer_create: out or host is NULL");
  Writer args;
  args.pod(device.id);
  args.pod(heap);
  args.pod(bytes);
  Answer answer = ask(device.id, Call::buffer_create, args, err);
  if (answer.status != PN_OK) return answer.status;
  const auto id = answer.in.pod<uint64_t>();
  const auto shared_bytes = answer.in.pod<uint64_t>();
  *host = nullptr;
  if (shared_bytes != 0) {
    auto memory = answer.message.fds.size() == 1
                      ? SharedMemory::map(std::move(answer.message.fds[0]), shared_bytes)
                      : fail(Code::failed, "the backend host sent no memory");
    if (!memory) {
      tell(id, Call::buffer_destroy);
      return set_error(err, PN_OUT_OF_MEMORY, memory.error().message);
    }
    *host = memory->at();
    std::lock_guard lock(mutex_);
    shared_buffers_[id] = std::move(*memory);
  }
  out->id = id;
  return PN_OK;
}

void Proxy::buffer_destroy(pn_buffer buffer) {
  tell(buffer.id, Call::buffer_destroy);
  std::lock_guard lock(mutex_);
  shared_buffers_.erase(buffer.id);
}

// ---- programs -----------------------------------------------------------------------------------

pn_status Proxy::program_query(pn_device device, const pn_plan* plan, pn_report* out,
                               pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "program_query: the report is NULL");
  pn_report want{};
  if (!known(out, &want)) return refuse_unknown(err, "program_query", "pn_report");
  Writer args;
  args.pod(device.id);
  if (const char* name = write_plan(args, plan)) return refuse_unknown(err, "program_query", name);
  args.pod(want.spans == nullptr ? 0 : want.span_count);
  args.pod<uint32_t>(want.costs != nullptr ? 1 : 0);
  args.pod<uint32_t>(want.unit_bytes != nullptr ? 1 : 0);
  Answer answer = ask(device.id, Call::program_query, args, err);
  if (answer.status < 0) return answer.status;
  auto report = answer.in.pod<pn_report>();
  const auto spans = answer.in.list<pn_span>();
  const auto costs = answer.in.list<pn_cost>();
  const auto units = answer.in.list<uint64_t>();
  for (uint32_t i = 0; i < spans.size() && i < want.span_count; ++i)
    pn_write(PN_AT(pn_span, want.spans, i), &spans[i], sizeof spans[i]);
  for (uint32_t i = 0; i < costs.size(); ++i)
    pn_write(PN_AT(pn_cost, want.costs, i), &costs[i], sizeof costs[i]);
  std::copy(units.begin(), units.end(), want.unit_bytes);
  report.spans = want.spans;
  report.costs = want.costs;
  report.unit_bytes = want.unit_bytes;
  pn_write(out, &report, sizeof report);
  return answer.status;
}

pn_status Proxy::program_create(pn_device device, const pn_plan* plan, uint32_t count,
                                const pn_binding* bindings, pn_program* out, pn_error* err) {
  if (out == nullptr || (count != 0 && bindings == nullptr))
    return set_error(err, PN_INVALID, "program_create: out or bindings is NULL");
  Writer args;
  args.pod(device.id);
  if (const char* name = write_plan(args, plan)) return refuse_unknown(err, "program_create", name);
  args.list(bindings, count);
  Answer answer = ask(device.id, Call::program_create, args, err);
  if (answer.status == PN_OK) out->id = answer.in.pod<uint64_t>();
  return answer.status;
}

// While another call is under way the last answer counts: whoever polls is not held up.
pn_status Proxy::program_status(pn_program program, pn_program_status* out, pn_error* err) {
  if (out == nullptr) return set_error(err, PN_INVALID, "program_status: out is NULL");
  Writer args;
  args.pod(program.id);
  Answer answer;
  const std::shared_ptr<Link> to = link_of(program.id, &answer);
  if (to != nullptr) answer = to->try_call(Call::program_status, args, kPollMs);
  pn_program_status now{};
  now.struct_size = sizeof now;
  {
    std::lock_guard lock(mutex_);
    if (answer.busy) {
      if (auto at = program_seen_.find(program.id); at != program_seen_.end()) now = at->second;
    } else if (answer.status == PN_OK) {
      now = answer.in.pod<pn_program_status>();
      program_seen_[program.id] = now;
    }
  }
  if (answer.status == PN_OK) pn_write(out, &now, sizeof now);
  if (err != nullptr && (answer.error.code != PN_OK || answer.error.message[0] != 0))
    pn_write(err, &answer.error, sizeof answer.error);
  return answer.status;
}

void Proxy::program_destroy(pn_program program) {
  tell(program.id, Call::program_destroy);
  std::lock_guard lock(mutex_);
  program_seen_.erase(program.id);
}

}  // namespace pn::proxy
