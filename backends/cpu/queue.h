// SPDX-License-Identifier: Apache-2.0
//
// Queues: rings of submits, and the executor that works them off in order.
//
// Owns ring slots, progress and the order of work. Knows steps only through program.h. The one
// idea: a submit is checked, resolved to addresses and copied into a preallocated slot on the
// host's thread; from then on nothing can be wrong with it but a page that the host never gave, and
// the leader runs it without allocating.
#pragma once

#include <pantheon/submit.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "backends/cpu/step.h"
#include "backends/cpu/threads.h"

namespace pn::cpu {

struct Die;
struct Program;
class Executor;

inline constexpr uint64_t kSubmitBytesMax = uint64_t{2} << 20;  // all arrays of a submit, resolved
inline constexpr uint32_t kQueueDepthMax = 256;
inline constexpr uint32_t kQueuesPerDie = 32;

// A command with its handles looked up.
struct Work {
  uint32_t kind = 0;
  Program* program = nullptr;
  Step step;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t bytes = 0;
};

struct Submit {
  uint64_t value = 0;
  uint32_t wait_count = 0;
  uint32_t work_count = 0;
  const pn_point* waits = nullptr;
  Work* works = nullptr;
  std::byte* arena = nullptr;  // kSubmitBytesMax
};

struct Queue {
  ~Queue();
  Die* die = nullptr;
  pn_queue handle = {};
  uint32_t kind = PN_QUEUE_RUN;
  uint32_t depth = 0;
  std::unique_ptr<Submit[]> ring;  // (depth)
  std::byte* arenas = nullptr;     // (depth) of kSubmitBytesMax, touched as used
  Executor* executor = nullptr;
  std::atomic<bool> closing{false};
  Signal done;          // bumped at each completion and failure
  pn_error error = {};  // set before state leaves OK

  alignas(64) std::atomic<uint64_t> submitted{0};  // last value taken
  std::atomic<uint64_t> head{0};                   // submits taken; host's side
  alignas(64) std::atomic<uint64_t> tail{0};       // submits worked off; leader's side
  std::atomic<uint64_t> completed{0};
  std::atomic<uint32_t> state{PN_QUEUE_OK};
};

// The leader thread of a die and its team; serves all queues of one kind.
class Executor {
 public:
  // Null when the system refuses a thread.
  static std::unique_ptr<Executor> start(const Die& die, uint32_t threads, bool pin,
                                         uint32_t first_name);
  ~Executor();
  bool attach(Queue* queue);  // false when kQueuesPerDie are attached
  void detach(Queue* queue);  // waits for a submit that runs
  void kick() { work_.bump(); }
  Team& team() { return team_; }

 private:
  enum class Served { nothing, ran, blocked };
  static void* leader_main(void* self);
  void lead();
  Served serve(Queue* queue);
  void fail_queue(Queue* queue, const pn_error& error);
  pn_status execute(const Submit& submit, pn_error* err);
  void copy(const Work& work);

  Team team_;
  Signal work_;
  Signal retired_;  // bumped when a closing queue has been let go of
  std::atomic<bool> stopping_{false};
  std::atomic<Queue*> queues_[kQueuesPerDie] = {};
  pthread_t leader_ = {};
  bool led_ = false;
  uint32_t name_ = 0;
};

pn_status queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                       pn_error* err);
pn_status queue_submit(pn_queue queue, const pn_submit* submit, pn_error* err);
pn_status queue_query(uint32_t count, const pn_queue* queues, pn_progress* out, pn_error* err);
pn_status queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err);
pn_status queue_error(pn_queue queue, pn_error* err);
void queue_destroy(pn_queue queue);

}  // namespace pn::cpu
