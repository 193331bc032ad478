// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: queues. A submit is checked and copied; when it is executed the clock says.
#include <algorithm>

#include "plugins/chaos/chaos.h"

namespace chaos {
namespace {

constexpr uint64_t kLookNs = 200'000;  // of a wait on the real clock

template <class T>
void copy_list(const T* from, uint32_t count, std::vector<T>* to) {
  to->assign(from, from + count);
}

bool copy_step(const pn_step& given, Step* out) {
  pn_step step{};
  if (!pn_read(&step, sizeof step, &given, sizeof step)) return false;
  copy_list(step.tokens, step.token_count, &out->tokens);
  copy_list(step.pages, step.page_count, &out->pages);
  copy_list(step.entries, step.entry_count, &out->entries);
  copy_list(step.rows, step.row_count, &out->rows);
  for (uint32_t i = 0; i < step.lane_count; ++i) {
    pn_lane lane{};
    if (!pn_read(&lane, sizeof lane, PN_AT_CONST(pn_lane, step.lanes, i), sizeof lane)) {
      return false;
    }
    out->lanes.push_back(lane);
  }
  return true;
}

std::string number(uint64_t n) { return std::to_string(n); }

// "" or what is wrong with the entries and edits of a RUN.
std::string check_step(const Program& program, const pn_shape& shape, const Step& step) {
  std::vector<bool> seen(program.lanes);
  uint64_t tokens = 0;
  for (const pn_entry& entry : step.entries) {
    const bool fed = (entry.flags & PN_ENTRY_FEED) != 0;
    const uint64_t end = uint64_t{entry.token} + entry.count;
    if (entry.lane >= program.lanes) return "entry: no lane " + number(entry.lane);
    if (seen[entry.lane]) return "entry: lane " + number(entry.lane) + " is there twice";
    if (entry.count == 0) return "entry: no token";
    if (end > (fed ? program.ids_depth : step.tokens.size())) return "entry: tokens past the end";
    if (uint64_t{entry.position} + entry.count > shape.context) return "entry: past the context";
    for (uint32_t i = 0; !fed && i < entry.count; ++i) {
      const int32_t id = step.tokens[entry.token + i];
      if (id < 0 || (program.vocab != 0 && static_cast<uint32_t>(id) >= program.vocab)) {
        return "token " + std::to_string(id) + " is none of " + number(program.vocab);
      }
    }
    seen[entry.lane] = true;
    tokens += entry.count;
  }
  if (tokens > shape.tokens || step.entries.size() > shape.entries ||
      step.rows.size() > shape.rows) {
    return number(tokens) + " tokens, " + number(step.entries.size()) + " entries, " +
           number(step.rows.size()) + " rows do not fit the shape";
  }
  for (const pn_lane& lane : step.lanes) {
    if (lane.lane >= program.lanes) return "setup: no lane " + number(lane.lane);
  }
  for (const pn_pages& edit : step.pages) {
    if (edit.lane >= program.lanes) return "pages: no lane " + number(edit.lane);
  }
  return "";
}

std::string check_rows(const Program& program, const Step& step, bool run) {
  for (const pn_row& row : step.rows) {
    const std::vector<pn_entry>& entries = run ? step.entries : program.last;
    if (run && (row.entry >= entries.size() || row.token >= entries[row.entry].count)) {
      return "row: entry " + number(row.entry) + " has no token " + number(row.token);
    }
    uint64_t bytes = uint64_t{row.top} * sizeof(pn_candidate);
    if ((row.flags & PN_ROW_SAMPLE) != 0) bytes += sizeof(pn_result);
    if ((row.flags & PN_ROW_LOGITS) != 0) bytes += uint64_t{program.vocab} * sizeof(float);
    if ((row.flags & PN_ROW_HIDDEN) != 0) bytes += uint64_t{program.hidden} * sizeof(float);
    auto target = state().buffers.find(row.target.buffer.id);
    if (at(row.target) == nullptr || row.target.bytes < bytes) {
      return "row: target of " + number(row.target.bytes) + " bytes, " + number(bytes) + " needed";
    }
    if (target->second.heap != kHostHeap) return "row: target is in no RESULTS heap";
    if (row.id_slot != PN_NONE && row.id_slot >= program.ids_depth) return "row: no such id_slot";
  }
  return "";
}

std::string check_run(Queue& queue, const Command& command) {
  auto found = state().programs.find(command.head.program.id);
  if (found == state().programs.end()) return "RUN: no such program";
  Program& program = found->second;
  if (program.die != queue.die) return "RUN: the program is of another die";
  if (program.queue != 0 && program.queue != queue.id) return "RUN: a program stays on one queue";
  if (program.ready_at > state().now() || program.broken) return "RUN: the program is not READY";
  if (queue.kind != PN_QUEUE_RUN) return "RUN: on a TRANSFER queue";
  program.queue = queue.id;
  const bool run = command.head.kind == PN_CMD_RUN;
  if (run) {
    if (command.head.shape >= program.shapes.size()) return "RUN: no such shape";
    const std::string wrong = check_step(program, program.shapes[command.head.shape], command.step);
    if (!wrong.empty()) return wrong;
  }
  return check_rows(program, command.step, run);
}

std::string check_copy(const Command& command) {
  const pn_slice &from = command.head.source, &to = command.head.target;
  if (at(from) == nullptr || at(to) == nullptr) return "COPY: a slice lies in no buffer";
  if (from.bytes != to.bytes) return "COPY: " + number(from.bytes) + " to " + number(to.bytes);
  if (from.offset % 4 != 0 || to.offset % 4 != 0 || from.bytes % 4 != 0) {
    return "COPY: not a multiple of copy_alignment, 4";
  }
  return "";
}

// Reads the commands, or "" becomes what the host did wrong.
std::string take_commands(Queue& queue, const pn_submit& submit, Work* work) {
  const DieOptions& o = state().of(state().dies[queue.die]);
  for (uint32_t i = 0; i < submit.command_count; ++i) {
    Command command;
    command.head = submit.commands[i];
    const uint32_t kind = command.head.kind;
    if (command.head.flags != 0 || command.head.reserved != 0) return "a reserved word is not 0";
    if (kind == PN_CMD_COPY) {
      work->takes_ns += o.copy_ns;
      const std::string wrong = check_copy(command);
      if (!wrong.empty()) return wrong;
    } else if (kind == PN_CMD_RUN || kind == PN_CMD_SAMPLE) {
      if (command.head.step >= submit.step_count) return "a command names no step";
      if (!copy_step(*PN_AT_CONST(pn_step, submit.steps, command.head.step), &command.step)) {
        return "pn_step says more than this plugin knows";
      }
      const std::string wrong = check_run(queue, command);
      if (!wrong.empty()) return wrong;
      uint64_t tokens = 0;
      for (const pn_entry& entry : command.step.entries) tokens += entry.count;
      if (kind == PN_CMD_RUN) work->takes_ns += o.step_ns + o.token_ns * tokens;
      work->runs = work->runs || kind == PN_CMD_RUN;
    } else {
      return "command of kind " + number(kind) + " is unknown";
    }
    work->commands.push_back(std::move(command));
  }
  return "";
}

pn_status take_waits(const pn_submit& submit, Work* work, pn_error* err) {
  for (uint32_t i = 0; i < submit.wait_count; ++i) {
    auto other = state().queues.find(submit.waits[i].queue.id);
    if (other == state().queues.end() || submit.waits[i].value > other->second.submitted) {
      return host_broke(err, "wait " + number(i) + " names work that was not submitted");
    }
    work->waits.push_back(submit.waits[i]);
  }
  return PN_OK;
}

pn_status progress_of(const Queue& queue, uint64_t value, pn_error* err) {
  if (queue.state != PN_QUEUE_OK && (queue.state == PN_QUEUE_LOST || queue.completed < value)) {
    return fail(err, queue.error);
  }
  return queue.completed >= value ? PN_OK : PN_NOT_READY;
}

}  // namespace

pn_status queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                       pn_error* err) {
  Call call("queue_create", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  if (kind > PN_QUEUE_TRANSFER || depth < 8) {
    return host_broke(err, "queue_create: kind " + number(kind) + " (0 or 1), depth " +
                               number(depth) + " (at least 8)");
  }
  State& s = state();
  Queue queue;
  queue.id = out->id = s.next_id++;
  queue.die = call.die()->index;
  queue.kind = kind;
  queue.depth = depth;
  queue.error = make_error(PN_OK, "the queue is well");
  s.queues[queue.id] = std::move(queue);
  ++s.counts.queues;
  return PN_OK;
}

pn_status queue_submit(pn_queue handle, const pn_submit* given, pn_error* err) {
  Call call("queue_submit", handle.id, kOfQueue);
  pn_status status = call.check(err);
  if (status != PN_OK) return status;
  State& s = state();
  Queue& queue = s.queues.at(handle.id);
  const DieOptions& o = s.of(*call.die());
  if (queue.state != PN_QUEUE_OK) return fail(err, queue.error);
  pn_submit submit{};
  if (!pn_read(&submit, sizeof submit, given, sizeof submit)) {
    return fail(err, PN_UNSUPPORTED, "pn_submit says more than this plugin knows");
  }
  const uint64_t calls = call.die()->calls["queue_submit"];
  // Full it can only seem while something is under way.
  const bool scripted = o.full_every != 0 && calls % o.full_every == 0 && !queue.work.empty();
  if (queue.work.size() >= queue.depth || scripted) {
    return fail(err, PN_NOT_READY, "the queue is full");
  }
  if (submit.value <= queue.submitted) {
    return host_broke(
        err, "queue_submit: value " + number(submit.value) + " after " + number(queue.submitted));
  }
  Work work;
  work.value = submit.value;
  work.submitted_at = s.now();
  status = take_waits(submit, &work, err);
  if (status != PN_OK) return status;
  const std::string wrong = take_commands(queue, submit, &work);
  if (!wrong.empty()) return host_broke(err, "queue_submit: " + wrong);
  const uint64_t number_of = ++call.die()->submits;
  if (o.jitter_ns != 0) work.takes_ns += s.draw() % (o.jitter_ns + 1);
  if (o.late_every != 0 && number_of % o.late_every == 0) work.takes_ns += o.late_ns;
  queue.submitted = submit.value;
  queue.work.push_back(std::move(work));
  ++s.counts.outstanding;
  return PN_OK;
}

pn_status queue_query(uint32_t count, const pn_queue* handles, pn_progress* progress,
                      pn_error* err) {
  Call call("queue_query", count, handles);
  State& s = state();
  if (s.options.virtual_clock != 0 && s.options.tick_ns != 0) {
    s.virtual_ns += s.options.tick_ns;
    settle();
  }
  for (uint32_t i = 0; i < count; ++i) {
    auto found = s.queues.find(handles[i].id);
    if (found == s.queues.end()) return host_broke(err, "queue_query: no queue at " + number(i));
    if (found->second.stuck) {
      call.hang();
      settle();
    }
    progress[i] = {found->second.completed, found->second.state, 0};
  }
  return PN_OK;
}

pn_status queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  Call call("queue_wait", point.queue.id, kOfQueue);
  if (call.die() == nullptr) return host_broke(err, "queue_wait: no such queue");
  State& s = state();
  if (s.host->thread_check(s.host->self, PN_THREAD_BLOCK) == 0) {
    return host_broke(err, "queue_wait: called on a serving thread");
  }
  const uint64_t end = timeout_ns > UINT64_MAX - s.now() ? UINT64_MAX : s.now() + timeout_ns;
  for (;;) {
    auto found = s.queues.find(point.queue.id);
    if (found == s.queues.end()) return fail(err, PN_FAILED, "queue_wait: the queue is gone");
    if (found->second.stuck) call.hang();
    const pn_status status = progress_of(found->second, point.value, err);
    if (status != PN_NOT_READY || s.now() >= end) return status;
    const uint64_t next = std::min(next_due(), end);
    if (s.options.virtual_clock == 0) {
      call.pause(std::clamp<uint64_t>(next - std::min(next, s.now()), 1000, kLookNs));
    } else if (next == UINT64_MAX) {
      return fail(err, PN_NOT_READY, "queue_wait: nothing is under way");
    } else {
      s.virtual_ns = std::max(s.virtual_ns, next);
      settle();
    }
  }
}

pn_status queue_error(pn_queue handle, pn_error* err) {
  Call call("queue_error", handle.id, kOfQueue);
  if (call.die() == nullptr) return host_broke(err, "queue_error: no such queue");
  fail(err, state().queues.at(handle.id).error);
  return PN_OK;
}

void queue_destroy(pn_queue handle) {
  Call call("queue_destroy", handle.id, kOfQueue);
  State& s = state();
  auto found = s.queues.find(handle.id);
  if (found == s.queues.end()) {
    host_broke(nullptr, "queue_destroy: no such queue");
    return;
  }
  drop(found->second, CHAOS_DROPPED);
  forget_queue(found->second);
  for (auto& [id, program] : s.programs) {
    if (program.queue == handle.id) program.queue = 0;
  }
  s.queues.erase(found);
  --s.counts.queues;
}

}  // namespace chaos
