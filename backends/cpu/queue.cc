// SPDX-License-Identifier: Apache-2.0
//
// The queue functions of the ABI, up to the ring. See queue.h; executor.cc is the other side.
#include "backends/cpu/queue.h"

#include <sys/mman.h>

#include <cstring>

#include "backends/cpu/error.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

unsigned long long number(uint64_t value) { return value; }

Queue* find_queue(pn_queue handle, pn_error* err) {
  Queue* queue = state()->queues.find(handle.id);
  if (queue == nullptr) fail(err, PN_INVALID, "queue %#llx is not alive", number(handle.id));
  return queue;
}

Executor* executor_for(Die& die, uint32_t kind, pn_error* err) {
  if (kind == PN_QUEUE_RUN) return die.runs.get();
  State& all = *state();
  std::lock_guard<std::mutex> lock(all.open_mutex);
  if (die.transfers == nullptr) {
    die.transfers = Executor::start(die, 1, false, all.thread_names);
    if (die.transfers != nullptr) ++all.thread_names;
  }
  if (die.transfers == nullptr)
    fail(err, PN_OUT_OF_MEMORY, "the system refused the transfer thread of cpu die %u", die.index);
  return die.transfers.get();
}

pn_status check_waits(const pn_submit& submit, pn_error* err) {
  for (uint32_t i = 0; i < submit.wait_count; ++i) {
    const Queue* other = find_queue(submit.waits[i].queue, err);
    if (other == nullptr) return PN_INVALID;
    if (submit.waits[i].value > other->submitted.load(std::memory_order_acquire))
      return fail(err, PN_INVALID, "wait %u: value %llu has not been submitted to queue %#llx", i,
                  number(submit.waits[i].value), number(other->handle.id));
  }
  return PN_OK;
}

pn_status resolve_copy(const pn_command& command, Work* work, pn_error* err) {
  if (command.source.bytes != command.target.bytes)
    return fail(err, PN_INVALID, "copy of %llu bytes to %llu bytes", number(command.source.bytes),
                number(command.target.bytes));
  SliceNeed need = {"copy source"};
  work->source = slice_address(command.source, need, err);
  if (work->source == nullptr) return PN_INVALID;
  need.what = "copy target";
  need.writes = true;
  work->target = slice_address(command.target, need, err);
  if (work->target == nullptr) return PN_INVALID;
  work->bytes = command.source.bytes;
  return PN_OK;
}

pn_status resolve_run(const Queue& queue, const pn_submit& submit, const pn_command& command,
                      Arena* arena, Work* work, pn_error* err) {
  Program* program = state()->programs.find(command.program.id);
  if (program == nullptr)
    return fail(err, PN_INVALID, "program %#llx is not alive", number(command.program.id));
  if (queue.kind != PN_QUEUE_RUN)
    return fail(err, PN_INVALID, "a transfer queue takes copies only");
  if (program->die != queue.die)
    return fail(err, PN_INVALID, "the program was made for cpu die %u, the queue is of die %u",
                program->die->index, queue.die->index);
  if (program->queue_id != 0 && program->queue_id != queue.handle.id)
    return fail(err, PN_INVALID, "a program stays on one queue; this one ran on queue %#llx",
                number(program->queue_id));
  if (command.step >= submit.step_count)
    return fail(err, PN_INVALID, "step %u of a submit that has %u", command.step,
                submit.step_count);
  work->program = program;
  return resolve_step(*program, command.shape, PN_AT_CONST(pn_step, submit.steps, command.step),
                      command.kind == PN_CMD_SAMPLE, arena, &work->step, err);
}

pn_status resolve(const Queue& queue, const pn_submit& submit, Submit* slot, pn_error* err) {
  Arena arena = {slot->arena, slot->arena + kSubmitBytesMax};
  const uint64_t wait_bytes = submit.wait_count * sizeof(pn_point);
  auto* waits = static_cast<pn_point*>(arena.take(wait_bytes));
  slot->works = static_cast<Work*>(arena.take(submit.command_count * sizeof(Work)));
  if (waits == nullptr || slot->works == nullptr)
    return fail(err, PN_INVALID, "a submit of %u commands and %u waits is too long",
                submit.command_count, submit.wait_count);
  if (wait_bytes != 0) memcpy(waits, submit.waits, wait_bytes);
  slot->waits = waits;
  slot->value = submit.value;
  slot->wait_count = submit.wait_count;
  slot->work_count = submit.command_count;
  for (uint32_t i = 0; i < submit.command_count; ++i) {
    const pn_command& command = submit.commands[i];
    Work* work = new (&slot->works[i]) Work;
    work->kind = command.kind;
    if (command.flags != 0 || command.reserved != 0)
      return fail(err, PN_INVALID, "command %u: flags and reserved must be 0", i);
    pn_status status = PN_OK;
    if (command.kind == PN_CMD_COPY)
      status = resolve_copy(command, work, err);
    else if (command.kind == PN_CMD_RUN || command.kind == PN_CMD_SAMPLE)
      status = resolve_run(queue, submit, command, &arena, work, err);
    else
      status = fail(err, PN_INVALID, "command %u: kind %u is unknown", i, command.kind);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

pn_status check_submit(const Queue& queue, const pn_submit& submit, pn_error* err) {
  const bool lists = (submit.wait_count == 0 || submit.waits != nullptr) &&
                     (submit.command_count == 0 || submit.commands != nullptr) &&
                     (submit.step_count == 0 || submit.steps != nullptr);
  if (!lists)
    return fail(err, PN_INVALID, "a list of the submit is NULL though its count is not 0");
  if (submit.value <= queue.submitted.load(std::memory_order_relaxed))
    return fail(err, PN_INVALID, "value %llu is not above the queue's last, %llu",
                number(submit.value), number(queue.submitted.load(std::memory_order_relaxed)));
  if (queue.state.load(std::memory_order_acquire) != PN_QUEUE_OK)
    return fail(err, PN_FAILED, "the queue has failed: %s", queue.error.message);
  return check_waits(submit, err);
}

}  // namespace

Queue::~Queue() {
  if (arenas != nullptr) munmap(arenas, depth * kSubmitBytesMax);
}

pn_status queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                       pn_error* err) {
  return guarded(err, [&]() -> pn_status {
    Die* die = find_die(device, err);
    if (die == nullptr) return PN_INVALID;
    if (out == nullptr) return fail(err, PN_INVALID, "queue_create: out is NULL");
    if (kind != PN_QUEUE_RUN && kind != PN_QUEUE_TRANSFER)
      return fail(err, PN_INVALID, "queue kind %u: 0 (run) and 1 (transfer) are known", kind);
    if (depth == 0 || depth > kQueueDepthMax)
      return fail(err, PN_INVALID, "queue depth %u: 1 to %u are offered", depth, kQueueDepthMax);
    auto queue = std::make_unique<Queue>();
    queue->die = die;
    queue->kind = kind;
    queue->depth = depth < 8 ? 8 : depth;
    queue->ring = std::make_unique<Submit[]>(queue->depth);
    void* arenas = mmap(nullptr, queue->depth * kSubmitBytesMax, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arenas == MAP_FAILED) return fail(err, PN_OUT_OF_MEMORY, "no address space for the ring");
    queue->arenas = static_cast<std::byte*>(arenas);
    for (uint32_t i = 0; i < queue->depth; ++i)
      queue->ring[i].arena = queue->arenas + i * kSubmitBytesMax;
    Executor* executor = executor_for(*die, kind, err);
    if (executor == nullptr) return PN_OUT_OF_MEMORY;
    Queue* raw = queue.get();
    const uint64_t id = state()->queues.add(std::move(queue));
    if (id == 0) return fail(err, PN_OUT_OF_MEMORY, "too many queues are alive");
    raw->handle.id = id;
    raw->executor = executor;
    if (!executor->attach(raw)) {
      state()->queues.remove(id);
      return fail(err, PN_OUT_OF_MEMORY, "cpu die %u has %u queues of this kind already",
                  die->index, kQueuesPerDie);
    }
    out->id = id;
    return PN_OK;
  });
}

pn_status queue_submit(pn_queue handle, const pn_submit* request, pn_error* err) {
  Queue* queue = find_queue(handle, err);
  if (queue == nullptr) return PN_INVALID;
  pn_submit submit = {};
  if (request == nullptr) return fail(err, PN_INVALID, "queue_submit: submit is NULL");
  if (!pn_read(&submit, sizeof(submit), request, 48))
    return fail(err, PN_UNSUPPORTED, "pn_submit says something newer than this plugin knows");
  const pn_status checked = check_submit(*queue, submit, err);
  if (checked != PN_OK) return checked;
  const uint64_t head = queue->head.load(std::memory_order_relaxed);
  if (head - queue->tail.load(std::memory_order_acquire) >= queue->depth) return PN_NOT_READY;
  Submit& slot = queue->ring[head % queue->depth];
  const pn_status status = resolve(*queue, submit, &slot, err);
  if (status != PN_OK) return status;
  for (uint32_t i = 0; i < slot.work_count; ++i)
    if (slot.works[i].program != nullptr) slot.works[i].program->submitted(slot.works[i], handle);
  queue->submitted.store(submit.value, std::memory_order_release);
  queue->head.store(head + 1, std::memory_order_release);
  queue->executor->kick();
  return PN_OK;
}

pn_status queue_query(uint32_t count, const pn_queue* queues, pn_progress* out, pn_error* err) {
  if (count != 0 && (queues == nullptr || out == nullptr))
    return fail(err, PN_INVALID, "queue_query: a list is NULL");
  for (uint32_t i = 0; i < count; ++i) {
    const Queue* queue = find_queue(queues[i], err);
    if (queue == nullptr) return PN_INVALID;
    out[i] = {};
    out[i].state = queue->state.load(std::memory_order_acquire);
    out[i].completed = queue->completed.load(std::memory_order_acquire);
  }
  return PN_OK;
}

pn_status queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  Queue* queue = find_queue(point.queue, err);
  if (queue == nullptr) return PN_INVALID;
  const pn_host& host = state()->host;
  if (host.thread_check != nullptr && host.thread_check(host.self, PN_THREAD_BLOCK) == 0)
    return fail(err, PN_INVALID, "queue_wait was called on a thread that must not block");
  const uint64_t start = now_ns();
  for (;;) {
    const uint32_t seen = queue->done.read();
    if (queue->completed.load(std::memory_order_acquire) >= point.value) return PN_OK;
    if (queue->state.load(std::memory_order_acquire) != PN_QUEUE_OK)
      return fail(err, PN_FAILED, "the queue has failed: %s", queue->error.message);
    const uint64_t passed = now_ns() - start;
    if (passed >= timeout_ns) return PN_NOT_READY;
    queue->done.await(seen, 0, timeout_ns - passed);
  }
}

pn_status queue_error(pn_queue handle, pn_error* err) {
  const Queue* queue = find_queue(handle, err);
  if (queue == nullptr) return PN_INVALID;
  if (queue->state.load(std::memory_order_acquire) == PN_QUEUE_OK)
    return fail(err, PN_OK, "the queue is well");
  if (err != nullptr) pn_write(err, &queue->error, sizeof(queue->error));
  return PN_OK;
}

void queue_destroy(pn_queue handle) {
  Queue* queue = state()->queues.find(handle.id);
  if (queue == nullptr) return;
  queue->executor->detach(queue);
  state()->queues.remove(handle.id);
}

}  // namespace pn::cpu
