// SPDX-License-Identifier: Apache-2.0
//
// The judge on queues: submits with their steps, progress, failures; see validate_state.h.
#include <algorithm>

#include "hal/host/validate_state.h"

namespace pn::hal {

namespace {

std::string number(uint64_t n) { return std::to_string(n); }

// "" or what is wrong with the arrays of a step.
std::string wrong_arrays(const pn_step& step) {
  auto missing = [](const void* list, uint32_t count) { return list == nullptr && count != 0; };
  if (missing(step.tokens, step.token_count)) return "tokens is NULL";
  if (missing(step.lanes, step.lane_count)) return "lanes is NULL";
  if (missing(step.pages, step.page_count)) return "pages is NULL";
  if (missing(step.entries, step.entry_count)) return "entries is NULL";
  if (missing(step.rows, step.row_count)) return "rows is NULL";
  for (uint32_t i = 0; i < step.lane_count; ++i) {
    const uint32_t size = PN_AT_CONST(pn_lane, step.lanes, i)->struct_size;
    if (size != step.lanes->struct_size || size < sizeof(pn_lane) || size % 8 != 0) {
      return "lanes[" + number(i) + "].struct_size is " + number(size);
    }
  }
  return "";
}

std::string wrong_edits(const pn_step& step, uint32_t lanes) {
  for (uint32_t i = 0; i < step.lane_count; ++i) {
    const pn_lane& lane = *PN_AT_CONST(pn_lane, step.lanes, i);
    if (lane.lane >= lanes) return "setup of lane " + number(lane.lane);
    if (lane.reserved != 0 || (lane.flags & ~PN_LANE_RESET) != 0)
      return "a reserved bit of pn_lane";
    if (uint64_t{lane.history_token} + lane.history_count > step.token_count) {
      return "the history of lane " + number(lane.lane) + " ends past the tokens";
    }
  }
  for (uint32_t i = 0; i < step.page_count; ++i) {
    if (step.pages[i].lane >= lanes) return "pages of lane " + number(step.pages[i].lane);
    if (step.pages[i].reserved != 0) return "a reserved word of pn_pages";
  }
  return "";
}

std::string wrong_entries(const pn_step& step, uint32_t lanes) {
  std::vector<bool> seen(lanes);
  for (uint32_t i = 0; i < step.entry_count; ++i) {
    const pn_entry& entry = step.entries[i];
    if (entry.lane >= lanes) return "entry of lane " + number(entry.lane);
    if (seen[entry.lane]) return "two entries of lane " + number(entry.lane);
    seen[entry.lane] = true;
    if ((entry.flags & ~PN_ENTRY_FEED) != 0) return "an unknown flag of pn_entry";
    const bool fed = (entry.flags & PN_ENTRY_FEED) != 0;
    if (entry.count == 0 || (!fed && uint64_t{entry.token} + entry.count > step.token_count)) {
      return "entry " + number(i) + ": tokens past the end";
    }
  }
  return "";
}

}  // namespace

void Validator::check_step(const Judged& program, const pn_command& command, const pn_step& step) {
  const std::string begin = "queue_submit: step " + number(command.step) + ": ";
  if (step.struct_size < sizeof(pn_step) || step.struct_size % 8 != 0) {
    return host_bug(begin + "struct_size is " + number(step.struct_size));
  }
  std::string wrong = wrong_arrays(step);
  if (wrong.empty()) wrong = wrong_edits(step, program.lanes);
  if (wrong.empty()) wrong = wrong_entries(step, program.lanes);
  if (!wrong.empty()) return host_bug(begin + wrong);
  for (uint32_t i = 0; i < step.row_count; ++i) {
    const pn_row& row = step.rows[i];
    const bool run = command.kind == PN_CMD_RUN;
    if (run && (row.entry >= step.entry_count || row.token >= step.entries[row.entry].count)) {
      host_bug(begin + "row " + number(i) + " is at token " + number(row.token) + " of entry " +
               number(row.entry));
    }
    if (row.reserved != 0) host_bug(begin + "a reserved word of pn_row is not 0");
    check_slice("queue_submit", "row target", row.target);
    if (row.mask_form != PN_MASK_NONE) check_slice("queue_submit", "row mask", row.mask);
  }
}

void Validator::check_command(const pn_command& command, const pn_submit& submit,
                              InFlight* flight) {
  if (command.flags != 0 || command.reserved != 0) {
    host_bug("queue_submit: a reserved word of pn_command is not 0");
  }
  if (command.kind == PN_CMD_COPY) {
    check_slice("queue_submit", "COPY source", command.source);
    check_slice("queue_submit", "COPY target", command.target);
    if (command.source.bytes != command.target.bytes) host_bug("queue_submit: COPY of two lengths");
    flight->buffers.push_back(command.source.buffer.id);
    flight->buffers.push_back(command.target.buffer.id);
    return;
  }
  if (command.kind != PN_CMD_RUN && command.kind != PN_CMD_SAMPLE) {
    return host_bug("queue_submit: there is no command of kind " + number(command.kind));
  }
  const Judged* program = find("queue_submit", Kind::program, command.program.id);
  if (program == nullptr) return;
  if (program->state != PN_PROGRAM_READY) {
    host_bug("queue_submit: program " + number(command.program.id) + " was not seen READY");
  }
  if (command.step >= submit.step_count || command.shape >= program->shapes) {
    return host_bug("queue_submit: step " + number(command.step) + " of " +
                    number(submit.step_count) + ", shape " + number(command.shape) + " of " +
                    number(program->shapes));
  }
  flight->programs.push_back(command.program.id);
  const pn_step& step = *PN_AT_CONST(pn_step, submit.steps, command.step);
  check_step(*program, command, step);
  if (step.rows == nullptr) return;
  for (uint32_t i = 0; i < step.row_count; ++i) {
    flight->buffers.push_back(step.rows[i].target.buffer.id);
  }
}

void Validator::check_submit(Judged& queue, const pn_submit& submit) {
  if (submit.value <= queue.submitted) {
    host_bug("queue_submit: value " + number(submit.value) + " after " + number(queue.submitted));
  }
  for (uint32_t i = 0; i < submit.wait_count; ++i) {
    const pn_point& wait = submit.waits[i];
    const Judged* other = find("queue_submit", Kind::queue, wait.queue.id);
    if (other == nullptr || other->submitted >= wait.value) continue;
    host_bug("queue_submit: waits for value " + number(wait.value) + " of queue " +
             number(wait.queue.id) + ", which was submitted up to " + number(other->submitted));
  }
}

pn_status Validator::queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                                  pn_error* err) {
  constexpr const char* kCall = "queue_create";
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (out == nullptr) return refuse(kCall, "out is NULL", err);
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
    if (kind > PN_QUEUE_TRANSFER || depth < 8) {
      host_bug("queue_create: kind " + number(kind) + " (0 or 1), depth " + number(depth) +
               " (at least 8)");
    }
  }
  pn_status status = PN_OK;
  {
    Inside inside(*this, kCall, "control", Kind::device, device.id);
    status = answered(kCall, inner_.queue_create(device, kind, depth, out, err), err, before);
  }
  sticky(kCall, device.id, status, err);
  if (status != PN_OK) return status;
  Lock lock(mutex_);
  born(kCall, Kind::queue, out->id, device.id, {});
  return status;
}

pn_status Validator::queue_submit(pn_queue queue, const pn_submit* submit, pn_error* err) {
  constexpr const char* kCall = "queue_submit";
  pn_error before;
  pn_status status = PN_OK;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_submit", submit, sizeof(pn_submit), err, &status)) return status;
  if ((submit->waits == nullptr && submit->wait_count != 0) ||
      (submit->commands == nullptr && submit->command_count != 0) ||
      (submit->steps == nullptr && submit->step_count != 0)) {
    return refuse(kCall, "an array is NULL, its count is not 0", err);
  }
  Inside inside(*this, kCall, "queue", Kind::queue, queue.id);
  InFlight flight;
  flight.value = submit->value;
  uint64_t device = 0;
  {
    Lock lock(mutex_);
    Judged* judged = find(kCall, Kind::queue, queue.id);
    if (judged == nullptr) return PN_INVALID;
    device = judged->device;
    check_submit(*judged, *submit);
    for (uint32_t i = 0; i < submit->command_count; ++i) {
      check_command(submit->commands[i], *submit, &flight);
    }
    for (uint64_t program : flight.programs) {
      uint64_t& on = books(Kind::program)[program].queue;
      if (on != 0 && on != queue.id) {
        host_bug("queue_submit: program " + number(program) + " ran on queue " + number(on) +
                 ": a program stays on one queue");
      }
      on = queue.id;
    }
  }
  status = answered(kCall, inner_.queue_submit(queue, submit, err), err, before, {PN_NOT_READY});
  sticky(kCall, device, status, err);
  if (status != PN_OK) return status;
  Lock lock(mutex_);
  auto found = books(Kind::queue).find(queue.id);
  if (found == books(Kind::queue).end()) return status;
  if (submit->value <= found->second.submitted) {
    plugin_bug("queue_submit: took value " + number(submit->value) + " after " +
               number(found->second.submitted));
  }
  found->second.submitted = std::max(found->second.submitted, submit->value);
  found->second.flight.push_back(std::move(flight));
  return status;
}

// alone: no other query of the queue ended meanwhile, else the later one may have told first.
void Validator::settle(Judged& queue, const pn_progress& found, uint64_t id, bool alone) {
  const std::string begin = "queue_query: queue " + number(id) + ": ";
  ++queue.looks;
  if (!alone) {
    queue.completed = std::max(queue.completed, found.completed);
    queue.state = std::max(queue.state, found.state);
    return;
  }
  if (found.completed < queue.completed) {
    plugin_bug(begin + "completed went back from " + number(queue.completed) + " to " +
               number(found.completed));
  }
  if (found.completed > queue.submitted) {
    plugin_bug(begin + "completed " + number(found.completed) + ", submitted was " +
               number(queue.submitted));
  }
  if (found.state > PN_QUEUE_LOST || found.reserved != 0) {
    plugin_bug(begin + "state " + number(found.state) + ", reserved " + number(found.reserved));
  }
  if (queue.state != PN_QUEUE_OK && found.state < queue.state) {
    plugin_bug(begin + "state " + number(queue.state) + " became " + number(found.state));
  }
  if (queue.state != PN_QUEUE_OK && found.completed > queue.completed) {
    plugin_bug(begin + "completed rose after it had failed");
  }
  queue.completed = std::max(queue.completed, found.completed);
  queue.state = found.state;
  while (!queue.flight.empty() &&
         (queue.flight.front().value <= queue.completed || queue.state != PN_QUEUE_OK)) {
    queue.flight.pop_front();
  }
}

pn_status Validator::queue_query(uint32_t count, const pn_queue* queues, pn_progress* out,
                                 pn_error* err) {
  constexpr const char* kCall = "queue_query";
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (count != 0 && (queues == nullptr || out == nullptr)) {
    return refuse(kCall, "queues or progress is NULL", err);
  }
  std::vector<uint64_t> looks;
  {
    Lock lock(mutex_);
    for (uint32_t i = 0; i < count; ++i) {
      const Judged* judged = find(kCall, Kind::queue, queues[i].id);
      if (judged == nullptr) return PN_INVALID;
      looks.push_back(judged->looks);
    }
  }
  const pn_status status =
      answered(kCall, inner_.queue_query(count, queues, out, err), err, before);
  if (status != PN_OK) return status;
  Lock lock(mutex_);
  for (uint32_t i = 0; i < count; ++i) {
    auto found = books(Kind::queue).find(queues[i].id);
    // A submit under way may have been accepted, and even be complete, before it is written down.
    if (found == books(Kind::queue).end() || found->second.inside != 0) continue;
    settle(found->second, out[i], queues[i].id, found->second.looks == looks[i]);
  }
  return status;
}

pn_status Validator::queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  constexpr const char* kCall = "queue_wait";
  pn_error before;
  check_thread(kCall, PN_THREAD_BLOCK);
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  {
    Lock lock(mutex_);
    const Judged* judged = find(kCall, Kind::queue, point.queue.id);
    if (judged == nullptr) return PN_INVALID;
    if (point.value > judged->submitted) {
      host_bug("queue_wait: value " + number(point.value) + " of queue " + number(point.queue.id) +
               " was not submitted");
    }
  }
  return answered(kCall, inner_.queue_wait(point, timeout_ns, err), err, before, {PN_NOT_READY});
}

pn_status Validator::queue_error(pn_queue queue, pn_error* err) {
  constexpr const char* kCall = "queue_error";
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (err == nullptr) return refuse(kCall, "err is NULL, and it is the answer", err);
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::queue, queue.id) == nullptr) return PN_INVALID;
  }
  const pn_status status = answered(kCall, inner_.queue_error(queue, err), err, before);
  if (status != PN_OK) return status;
  Lock lock(mutex_);
  auto found = books(Kind::queue).find(queue.id);
  if (found == books(Kind::queue).end()) return status;
  Judged& judged = found->second;
  if (judged.state != PN_QUEUE_OK && err->code >= 0) {
    plugin_bug("queue_error: the queue has failed, and its code is " + std::to_string(err->code));
  }
  const pn_error& first = judged.error;
  if (first.code < 0 &&
      (first.code != err->code || first.scope != err->scope || first.recovery != err->recovery)) {
    plugin_bug("queue_error: the answer has changed");
  }
  if (first.code >= 0) judged.error = *err;
  return status;
}

void Validator::queue_destroy(pn_queue queue) {
  constexpr const char* kCall = "queue_destroy";
  uint64_t device = 0;
  {
    Lock lock(mutex_);
    const Judged* judged = find(kCall, Kind::queue, queue.id);
    if (judged == nullptr) return;
    device = judged->device;
    buried(kCall, Kind::queue, queue.id);
    for (auto& [id, program] : books(Kind::program)) {
      if (program.queue == queue.id) program.queue = 0;
    }
  }
  Inside inside(*this, kCall, "control", Kind::device, device);
  inner_.queue_destroy(queue);
}

}  // namespace pn::hal
