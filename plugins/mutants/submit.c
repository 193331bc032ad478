/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_mutants: queue_submit with a copy of what came, changed; and refusals that are taken.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutants.h"

/* ---- a copy that may be changed ---------------------------------------------------------------
 */

struct copy {
  pn_submit submit;
  pn_command* commands;
  pn_step* steps;
};

static void* copied(const void* from, uint64_t bytes) {
  void* to = calloc(1, bytes + 8);
  if (to != NULL && bytes != 0 && from != NULL) memcpy(to, from, bytes);
  return to;
}

static void copy_step(pn_step* to, const pn_step* from) {
  *to = *from;
  to->struct_size = sizeof *to;
  to->tokens = copied(from->tokens, from->token_count * sizeof(int32_t));
  to->pages = copied(from->pages, from->page_count * sizeof(pn_pages));
  to->entries = copied(from->entries, from->entry_count * sizeof(pn_entry));
  to->rows = copied(from->rows, from->row_count * sizeof(pn_row));
  pn_lane* lanes = copied(NULL, from->lane_count * sizeof(pn_lane));
  for (uint32_t i = 0; lanes != NULL && i < from->lane_count; ++i) {
    memcpy(&lanes[i], PN_AT_CONST(pn_lane, from->lanes, i), sizeof lanes[i]);
    lanes[i].struct_size = sizeof lanes[i];
  }
  to->lanes = lanes;
}

static void make_copy(struct copy* c, const pn_submit* from) {
  c->submit = *from;
  c->submit.struct_size = sizeof c->submit;
  c->commands = copied(from->commands, from->command_count * sizeof(pn_command));
  c->steps = copied(NULL, from->step_count * sizeof(pn_step));
  c->submit.commands = c->commands;
  c->submit.steps = c->steps;
  c->submit.waits = copied(from->waits, from->wait_count * sizeof(pn_point));
  for (uint32_t i = 0; i < from->step_count; ++i)
    copy_step(&c->steps[i], PN_AT_CONST(pn_step, from->steps, i));
}

#define FREE(p) free((void*)(uintptr_t)(p))
static void free_copy(struct copy* c) {
  for (uint32_t i = 0; i < c->submit.step_count; ++i) {
    FREE(c->steps[i].tokens);
    FREE(c->steps[i].pages);
    FREE(c->steps[i].entries);
    FREE(c->steps[i].rows);
    FREE(c->steps[i].lanes);
  }
  FREE(c->submit.waits);
  free(c->commands);
  free(c->steps);
}

#define EDIT(T, list, i) (((T*)(uintptr_t)(list))[i])

/* ---- what is changed in it ------------------------------------------------------------------- */

/* Page edits for a page that another lane has already are left out. */
static void own_pages_only(pn_step* s) {
  static uint32_t owner[1u << 12];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < s->page_count; ++i) {
    pn_pages* p = &EDIT(pn_pages, s->pages, i);
    uint32_t* who = &owner[p->page & 0xfff];
    if (*who != 0 && *who != p->lane + 1) continue;
    *who = p->lane + 1;
    EDIT(pn_pages, s->pages, kept++) = *p;
  }
  s->page_count = kept;
}

static void change_step(pn_step* s) {
  for (uint32_t i = 0; i < s->lane_count; ++i) {
    pn_lane* lane = &EDIT(pn_lane, s->lanes, i);
    if (mutant("flags_ignored")) lane->flags &= PN_LANE_RESET;
    if (mutant("reserved_ignored")) lane->reserved = 0;
    if (mutant("reset_ignored")) lane->flags &= ~PN_LANE_RESET;
    if (mutant("history_dropped")) lane->history_count = 0;
  }
  for (uint32_t i = 0; i < s->entry_count; ++i)
    if (mutant("flags_ignored")) EDIT(pn_entry, s->entries, i).flags &= PN_ENTRY_FEED;
  for (uint32_t i = 0; i < s->page_count; ++i)
    if (mutant("reserved_ignored")) EDIT(pn_pages, s->pages, i).reserved = 0;
  for (uint32_t i = 0; i < s->row_count; ++i) {
    pn_row* row = &EDIT(pn_row, s->rows, i);
    if (mutant("flags_ignored"))
      row->flags &= PN_ROW_SAMPLE | PN_ROW_HOLD | PN_ROW_LOGITS | PN_ROW_HIDDEN;
    if (mutant("reserved_ignored")) row->reserved = 0;
  }
  if (mutant("page_single_owner")) own_pages_only(s);
}

static void change(struct copy* c) {
  uint32_t n = c->submit.command_count, kept = 0;
  for (uint32_t i = 0; i < c->submit.step_count; ++i) change_step(&c->steps[i]);
  for (uint32_t i = 0; i < n; ++i) {
    if (mutant("flags_ignored")) c->commands[i].flags = 0;
    if (mutant("reserved_ignored")) c->commands[i].reserved = 0;
    if (mutant("unknown_command_skipped") &&
        (c->commands[i].kind < PN_CMD_COPY || c->commands[i].kind > PN_CMD_SAMPLE))
      continue;
    c->commands[kept++] = c->commands[i];
  }
  c->submit.command_count = n = kept;
  for (uint32_t i = 0; mutant("commands_reversed") && i < n / 2; ++i) {
    pn_command one = c->commands[i];
    c->commands[i] = c->commands[n - 1 - i];
    c->commands[n - 1 - i] = one;
  }
  if (mutant("waits_ignored")) c->submit.wait_count = 0;
}

/* Waits on the host's thread, and forgets how the other queue ended. */
static void wait_here(struct copy* c) {
  for (uint32_t i = 0; i < c->submit.wait_count; ++i)
    real->queue_wait(c->submit.waits[i], 60000000000u, NULL);
  c->submit.wait_count = 0;
}

/* ---- submitting ------------------------------------------------------------------------------ */

pn_status pretend_done(pn_queue queue, const pn_submit* submit) {
  const pn_submit empty = {.struct_size = sizeof empty, .value = submit->value};
  return real->queue_submit(queue, &empty, NULL);
}

/* Waits for room, and forgets what it was for; from then on everything is forgotten. */
static int dropping;
static pn_status drop(pn_queue queue, const pn_submit* submit) {
  dropping = 1;
  real->queue_wait((pn_point){queue, last_submitted(queue)}, 60000000000u, NULL);
  return pretend_done(queue, submit);
}

/* A refusal whose text begins so is taken instead. */
static int takes(const pn_error* why) {
  if (mutant("values_may_fall") && strstr(why->message, "is not above the queue's last")) return 1;
  if (mutant("copy_bounds_unchecked") && strncmp(why->message, "COPY", 4) == 0) return 1;
  return mutant("step_bounds_unchecked") &&
         (strncmp(why->message, "entry", 5) == 0 || strncmp(why->message, "row", 3) == 0);
}

static int resized(const pn_submit* s) {
  if (s->struct_size > sizeof *s) return mutant("submit_tail_ignored");
  return s->struct_size < sizeof *s && mutant("submit_size_ignored");
}

/* borrows_arrays: the lists of a step are read again when the host asks how far it is. */
static struct {
  pn_queue queue;
  pn_submit submit;
  pn_command command;
  pn_step step; /* its lists are the host's */
} borrowed;

static void borrow(pn_queue queue, const pn_submit* submit) {
  borrowed.queue = queue;
  borrowed.submit = *submit;
  borrowed.command = submit->commands[0];
  borrowed.step = submit->steps[0];
  borrowed.submit.commands = &borrowed.command;
  borrowed.submit.steps = &borrowed.step;
  borrowed.submit.wait_count = 0; /* the queue's order does it */
}

static void read_late(void) {
  pn_queue queue = borrowed.queue;
  borrowed.queue.id = 0;
  if (queue.id == 0) return;
  if (real->queue_submit(queue, &borrowed.submit, NULL) != PN_OK)
    pretend_done(queue, &borrowed.submit);
}

/* Those that need a copy; with any other, what came goes on as it is. */
static int changes_submits(void) {
  static const char* const names[] = {
      "flags_ignored",         "reserved_ignored",      "reset_ignored",
      "history_dropped",       "page_single_owner",     "unknown_command_skipped",
      "commands_reversed",     "waits_ignored",         "values_may_fall",
      "copy_bounds_unchecked", "step_bounds_unchecked", "submit_tail_ignored",
      "submit_size_ignored",   "borrows_arrays",        "failed_wait_passes",
      "full_queue_drops",      "failed_queue_goes_on",  "submit_blocks"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    if (mutant(names[i])) return 1;
  return 0;
}

static pn_status queue_submit(pn_queue queue, const pn_submit* submit, pn_error* err) {
  if (submit == NULL && mutant("null_submit_taken")) return PN_OK;
  if (submit == NULL) return real->queue_submit(queue, submit, err);
  if (!changes_submits() || (submit->struct_size != sizeof *submit && !resized(submit))) {
    pn_status passed = real->queue_submit(queue, submit, err);
    if (passed == PN_OK) note_submitted(queue, submit->value);
    return passed;
  }
  struct copy c;
  pn_error why = {.struct_size = sizeof why};
  uint64_t value = submit->value;
  make_copy(&c, submit);
  change(&c);
  if (dropping) c.submit.command_count = 0;
  if (mutant("failed_wait_passes")) wait_here(&c);
  pn_status status;
  if (mutant("borrows_arrays") && submit->step_count == 1 && submit->command_count == 1) {
    borrow(queue, submit);
    status = PN_OK;
  } else {
    status = real->queue_submit(queue, &c.submit, &why);
  }
  free_copy(&c);
  if (status < 0 && takes(&why)) {
    pretend_done(queue, submit);
    status = PN_OK;
  }
  if (mutant("full_queue_drops") && status == PN_NOT_READY) status = drop(queue, submit);
  if (mutant("failed_queue_goes_on") && status == PN_FAILED) status = PN_OK;
  if (mutant("submit_blocks") && status == PN_OK) {
    real->queue_wait((pn_point){queue, value}, 60000000000u, NULL);
    usleep(100000);
  }
  if (status == PN_OK) note_submitted(queue, value);
  if (status != PN_OK && err != NULL && why.code != 0) pn_write(err, &why, sizeof why);
  return status;
}

static pn_status queue_query(uint32_t count, const pn_queue* queues, pn_progress* out,
                             pn_error* err) {
  read_late();
  return real->queue_query(count, queues, out, err);
}

static pn_status queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err) {
  read_late();
  return real->queue_wait(point, timeout_ns, err);
}

void mutate_submit(pn_plugin* table) {
  table->queue_submit = queue_submit;
  if (!mutant("borrows_arrays")) return;
  table->queue_query = queue_query;
  table->queue_wait = queue_wait;
}
