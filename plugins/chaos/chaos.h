// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos, shared by its files: its objects, its clock, its script at work.
//
// Owns the one State behind the C table. Knows no model: weights are accepted and not read. The one
// idea: nothing happens by itself. There is no thread; whatever is due by the clock happens inside
// the next call, in the order of its time, so a run on the virtual clock is the same each time.
//
// Everything is under State::mutex, but for calls that hang: they hang outside of it.
#pragma once

#include <pantheon/hal.h>
#include <pantheon/hostmem.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/chaos/control.h"
#include "plugins/chaos/options.h"

namespace chaos {

constexpr uint64_t kGranule = 4096;
constexpr uint32_t kDeviceHeap = 0;
constexpr uint32_t kHostHeap = 1;

struct Buffer {
  uint32_t die = 0;
  uint32_t heap = 0;
  std::byte* host = nullptr;
  uint64_t bytes = 0;
  uint64_t taken = 0;  // whole granules; 0: imported
};

struct Lane {
  std::vector<uint32_t> table;  // pages of cache 0, PN_NONE where none is
  int64_t first_draw = -1;      // position of the first id that was drawn
};

struct Program {
  uint32_t die = 0;
  uint64_t queue = 0;  // a program stays on one queue
  uint32_t lanes = 0, ids_depth = 0, vocab = 0, hidden = 0;
  uint32_t page_tokens = 0;  // 0: no paged cache
  uint64_t page_bytes = 0;
  pn_slice ids{}, pages{};
  std::vector<pn_shape> shapes;
  uint64_t ready_at = 0;
  bool broken = false;  // its build fails
  std::vector<Lane> lane;
  std::vector<pn_entry> last;  // entries of the last RUN, for rows that were held
  uint64_t bytes = 0;
};

struct Step {
  std::vector<int32_t> tokens;
  std::vector<pn_lane> lanes;
  std::vector<pn_pages> pages;
  std::vector<pn_entry> entries;
  std::vector<pn_row> rows;
};

struct Command {
  pn_command head{};
  Step step;
};

struct Work {  // a submit that has not settled
  uint64_t value = 0;
  uint64_t submitted_at = 0;
  uint64_t takes_ns = 0;
  uint64_t due = 0;  // 0: its waits are not complete yet
  bool runs = false;
  bool wait_failed = false;
  std::vector<pn_point> waits;
  std::vector<Command> commands;
};

struct Queue {
  uint64_t id = 0;
  uint32_t die = 0;
  uint32_t kind = 0;
  uint32_t depth = 0;
  uint32_t state = PN_QUEUE_OK;
  uint64_t completed = 0;
  uint64_t submitted = 0;
  uint64_t done_at = 0;  // of completed
  std::deque<Work> work;
  bool stuck = false;  // the step that never completes is next
  pn_error error{};
};

struct Freed {
  uint64_t until;
  uint64_t bytes;
};

struct Die {
  uint32_t index = 0;
  uint64_t handle = 0;  // 0 closed
  uint64_t used[2] = {0, 0};
  std::vector<Freed> freed;
  bool lost = false;
  bool lost_on_time = false;  // lose_ns has had its effect
  uint64_t lost_at = 0;
  pn_error loss{};
  uint64_t runs = 0, submits = 0, allocations = 0, programs = 0;
  std::map<std::string, uint64_t> calls;
};

struct State {
  const pn_host* host = nullptr;
  Options options;
  std::mutex mutex;
  std::condition_variable released;
  bool release = false;
  bool down = false;
  uint64_t began_ns = 0;    // real clock
  uint64_t virtual_ns = 1;  // 0 would read as "not due yet"
  uint64_t next_id = 1;
  uint64_t random = 1;
  uint64_t allowed = 0;
  chaos_counts counts{};
  std::vector<Die> dies;
  std::map<uint64_t, Buffer> buffers;
  std::map<uint64_t, Program> programs;
  std::map<uint64_t, Queue> queues;
  std::vector<chaos_event> events;

  DieOptions& of(const Die& die) { return options.dies[die.index]; }
  uint64_t now() const;  // since the entry
  uint64_t draw();       // the next of the seeded numbers
  void log(uint32_t level, const std::string& text) const;
};

State& state();

// Every slot begins here. Hangs when the script says so, then takes the lock and settles what is
// due. die: PN_NONE when the call names none.
class Call {
 public:
  Call(const char* function, uint64_t handle, uint32_t kind);
  Call(const char* function, uint32_t count, const pn_queue* queues);
  explicit Call(const char* function);  // traps of die 0 count for it
  ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Die* die() const { return die_; }  // nullptr: no such handle
  bool lost() const { return die_ != nullptr && die_->lost; }
  // PN_INVALID for an unknown handle, PN_DEVICE_LOST for a lost die, PN_OK.
  pn_status check(pn_error* err) const;
  void hang();  // until released
  // Lets others in for a while, then settles.
  void pause(uint64_t ns);

 private:
  void enter(Die* die);
  const char* function_;
  std::unique_lock<std::mutex> lock_;
  Die* die_ = nullptr;
};
constexpr uint32_t kOfDevice = 0, kOfBuffer = 1, kOfProgram = 2, kOfQueue = 3, kOfIndex = 4;

// plugin.cc
pn_error make_error(pn_status code, const std::string& message);
pn_status fail(pn_error* err, pn_status code, const std::string& message);
pn_status fail(pn_error* err, const pn_error& error);
// A rule that the host broke: counted, logged as such, PN_INVALID.
pn_status host_broke(pn_error* err, const std::string& message);
void copy_text(char* to, size_t room, const std::string& text);

// memory.cc
pn_status heaps(pn_device, uint32_t*, pn_heap_info*, pn_error*);
pn_status memory_status(pn_device, pn_memory_status*, pn_error*);
pn_status buffer_create(pn_device, uint32_t, uint64_t, pn_buffer*, void**, pn_error*);
void buffer_destroy(pn_buffer);
pn_status import_range(pn_device, const pn_import*, pn_buffer*, pn_error*);
std::byte* at(const pn_slice& slice);  // nullptr when it is not inside a live buffer
bool take(Die& die, uint32_t heap, uint64_t bytes);
void give(Die& die, uint32_t heap, uint64_t bytes);
uint64_t free_bytes(Die& die);
uint64_t external_bytes(const Die& die);
void poison(const Die& die, uint32_t heap);

// program.cc
pn_status program_query(pn_device, const pn_plan*, pn_report*, pn_error*);
pn_status program_create(pn_device, const pn_plan*, uint32_t, const pn_binding*, pn_program*,
                         pn_error*);
pn_status program_status(pn_program, pn_program_status*, pn_error*);
void program_destroy(pn_program);

// queue.cc
pn_status queue_create(pn_device, uint32_t, uint32_t, pn_queue*, pn_error*);
pn_status queue_submit(pn_queue, const pn_submit*, pn_error*);
pn_status queue_query(uint32_t, const pn_queue*, pn_progress*, pn_error*);
pn_status queue_wait(pn_point, uint64_t, pn_error*);
pn_status queue_error(pn_queue, pn_error*);
void queue_destroy(pn_queue);

// settle.cc: what the clock brings about. The lock is held.
void settle();
uint64_t next_due();  // UINT64_MAX: nothing is under way
void lose(Die& die);
void drop(Queue& queue, uint32_t outcome);
void forget_queue(const Queue& queue);  // who waits for it fails

// step.cc: what a submit does. False: *error says why the queue fails.
bool execute(Queue& queue, Work& work, pn_error* error);

// interfaces.cc
const void* get_interface(const char* id);
const void* control_table();  // control.cc

}  // namespace chaos
