/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_null: submits. Copies are real, runs draw id 0, and all is complete before return.
 *
 * A real plugin copies the step's arrays into a ring and returns; a worker, a graph or a resident
 * core does the rest, and queue_query reads one word.
 */
#include <string.h>

#include "null.h"

/* First released sizes: an older host's structs are at least so long (R5). */
#define SUBMIT_BYTES_0_2 48u
#define STEP_BYTES_0_2 64u

pn_status null_queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                            pn_error* err) {
  if (null_find(device.id, KIND_DEVICE) == NULL) {
    return null_fail(err, PN_INVALID, "queue_create: no such device");
  }
  if (kind > PN_QUEUE_TRANSFER || depth < 8) {
    return null_fail(err, PN_INVALID, "queue_create: kind %u (0 or 1), depth %u (at least 8)", kind,
                     depth);
  }
  struct object* object = null_claim(KIND_QUEUE);
  if (object == NULL) return null_fail(err, PN_OUT_OF_MEMORY, "queue_create: table is full");
  object->as.queue.depth = depth;
  out->id = null_publish(object);
  return PN_OK;
}

/* A row's answer: the result, then what else it asked for, in the contract's order. */
static pn_status write_row(const struct program* program, const pn_step* step, const pn_row* row,
                           pn_error* err) {
  uint64_t bytes = (uint64_t)row->top * sizeof(pn_candidate);
  const int result = (row->flags & PN_ROW_SAMPLE) || row->top > 0;
  if (result) bytes += sizeof(pn_result);
  if (row->flags & PN_ROW_LOGITS) bytes += (uint64_t)program->vocab * sizeof(float);
  if (row->flags & PN_ROW_HIDDEN) bytes += (uint64_t)program->hidden_width * sizeof(float);
  char* to = null_at(row->target);
  if (to == NULL || row->target.bytes < bytes) {
    return null_fail(err, PN_INVALID, "row target: %llu bytes needed, %llu given",
                     (unsigned long long)bytes, (unsigned long long)row->target.bytes);
  }
  memset(to, 0, bytes); /* id 0, logit 0, hidden 0 */
  if (result) {
    ((pn_result*)(void*)to)->top = row->top;
    to += sizeof(pn_result);
  }
  for (uint32_t i = 0; i < row->top; ++i) ((pn_candidate*)(void*)to)[i].id = (int32_t)i;
  if (!(row->flags & PN_ROW_SAMPLE) || row->id_slot == PN_NONE) return PN_OK;
  int32_t* ids = null_at(program->ids);
  if (ids == NULL || row->entry >= step->entry_count || row->id_slot >= program->ids_depth) {
    return null_fail(err, PN_INVALID, "row: entry %u of %u, id_slot %u of %u", row->entry,
                     step->entry_count, row->id_slot, program->ids_depth);
  }
  uint32_t lane = step->entries[row->entry].lane;
  if (lane >= program->lanes) {
    return null_fail(err, PN_INVALID, "entry %u: lane %u of %u", row->entry, lane, program->lanes);
  }
  ids[(uint64_t)lane * program->ids_depth + row->id_slot] = 0;
  return PN_OK;
}

static pn_status run(const pn_command* command, const pn_submit* submit, pn_error* err) {
  struct object* object = null_find(command->program.id, KIND_PROGRAM);
  if (object == NULL) return null_fail(err, PN_INVALID, "RUN: no such program");
  const struct program* program = &object->as.program;
  if (command->step >= submit->step_count || command->shape >= program->shape_count) {
    return null_fail(err, PN_INVALID, "RUN: step %u of %u, shape %u of %u", command->step,
                     submit->step_count, command->shape, program->shape_count);
  }
  pn_step step;
  const pn_step* given = PN_AT_CONST(pn_step, submit->steps, command->step);
  if (!pn_read(&step, sizeof step, given, STEP_BYTES_0_2)) {
    return null_fail(err, PN_UNSUPPORTED, "pn_step says more than HAL %d.%d knows", PN_ABI_MAJOR,
                     PN_ABI_MINOR);
  }
  for (uint32_t i = 0; i < step.row_count; ++i) {
    const pn_row* row = &step.rows[i];
    if (command->kind == PN_CMD_RUN && (row->flags & PN_ROW_HOLD)) continue;
    pn_status status = write_row(program, &step, row, err);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

static pn_status copy(const pn_command* command, pn_error* err) {
  void *from = null_at(command->source), *to = null_at(command->target);
  if (from == NULL || to == NULL || command->source.bytes != command->target.bytes) {
    return null_fail(err, PN_INVALID, "COPY: a slice is in no buffer, or %llu is not %llu bytes",
                     (unsigned long long)command->source.bytes,
                     (unsigned long long)command->target.bytes);
  }
  memmove(to, from, command->source.bytes);
  return PN_OK;
}

pn_status null_queue_submit(pn_queue queue, const pn_submit* given, pn_error* err) {
  pn_submit known, *submit = &known;
  struct object* object = null_find(queue.id, KIND_QUEUE);
  if (object == NULL) return null_fail(err, PN_INVALID, "queue_submit: no such queue");
  if (!pn_read(submit, sizeof *submit, given, SUBMIT_BYTES_0_2)) {
    return null_fail(err, PN_UNSUPPORTED, "pn_submit says more than HAL %d.%d knows", PN_ABI_MAJOR,
                     PN_ABI_MINOR);
  }
  struct queue* q = &object->as.queue;
  uint64_t last = atomic_load_explicit(&q->completed, memory_order_relaxed);
  if (submit->value <= last) {
    return null_fail(err, PN_INVALID, "queue_submit: value %llu after %llu",
                     (unsigned long long)submit->value, (unsigned long long)last);
  }
  for (uint32_t i = 0; i < submit->wait_count; ++i) {
    struct object* other = null_find(submit->waits[i].queue.id, KIND_QUEUE);
    if (other == NULL || atomic_load(&other->as.queue.completed) < submit->waits[i].value) {
      return null_fail(err, PN_INVALID, "wait %u names work that was not submitted", i);
    }
  }
  for (uint32_t i = 0; i < submit->command_count; ++i) {
    const pn_command* command = &submit->commands[i];
    pn_status status;
    switch (command->kind) {
      case PN_CMD_COPY:
        status = copy(command, err);
        break;
      case PN_CMD_RUN:
      case PN_CMD_SAMPLE:
        status = run(command, submit, err);
        break;
      default:
        status = null_fail(err, PN_UNSUPPORTED, "command %u: kind %u is unknown", i, command->kind);
    }
    if (status != PN_OK) return status;
  }
  atomic_store_explicit(&q->completed, submit->value, memory_order_release);
  return PN_OK;
}

pn_status null_queue_query(uint32_t count, const pn_queue* queues, pn_progress* progress,
                           pn_error* err) {
  for (uint32_t i = 0; i < count; ++i) {
    struct object* object = null_find(queues[i].id, KIND_QUEUE);
    if (object == NULL) return null_fail(err, PN_INVALID, "queue_query: no queue at %u", i);
    progress[i].completed = atomic_load_explicit(&object->as.queue.completed, memory_order_acquire);
    progress[i].state = PN_QUEUE_OK;
    progress[i].reserved = 0;
  }
  return PN_OK;
}

pn_status null_queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  struct object* object = null_find(point.queue.id, KIND_QUEUE);
  (void)timeout_ns; /* what was submitted is complete, and nothing else ever will be */
  if (object == NULL) return null_fail(err, PN_INVALID, "queue_wait: no such queue");
  if (null_host->thread_check(null_host->self, PN_THREAD_BLOCK) == 0) {
    return null_fail(err, PN_INVALID, "queue_wait: called on a serving thread");
  }
  return atomic_load(&object->as.queue.completed) >= point.value ? PN_OK : PN_NOT_READY;
}

pn_status null_queue_error(pn_queue queue, pn_error* err) {
  if (null_find(queue.id, KIND_QUEUE) == NULL) {
    return null_fail(err, PN_INVALID, "queue_error: no such queue");
  }
  return null_fail(err, PN_OK, "the queue is well"); /* queues of this plugin never fail */
}

void null_queue_destroy(pn_queue queue) {
  struct object* object = null_find(queue.id, KIND_QUEUE);
  if (object != NULL) null_release(object);
}
