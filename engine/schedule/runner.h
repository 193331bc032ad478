// SPDX-License-Identifier: Apache-2.0
//
// One model copy at work: its waiting line, its live sequences, its steps in flight.
//
// Owns lanes, pages and the books of what was submitted. Knows no text, no thread and no other
// copy. The one idea: continuous batching by bookkeeping alone. A step is composed from positions
// that the host knows and ids that the device keeps, so the next one is submitted before the
// last one's ids are read; a sequence that ended meanwhile leaves a row behind that nobody reads.
//
// Admission takes every page that prompt and answer can need, so a sequence that started never
// waits for memory and none is ever pushed out; the first in line waits until that many pages are
// free, and nobody overtakes it.
//
// All calls on the scheduler's thread, unless said otherwise. submit() to the plugin and everything
// before it allocate nothing.
#pragma once

#include <pantheon/hal.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/schedule/copy.h"
#include "engine/schedule/pace.h"
#include "engine/schedule/pages.h"
#include "engine/schedule/prefix.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/step.h"

namespace pn::engine {

class Runner {
 public:
  explicit Runner(Copy copy);
  ~Runner();

  void enqueue(std::unique_ptr<Job> job);
  void cancel(uint64_t id);  // unknown ids are ignored
  void cancel_all();
  // Takes in what the queue has completed. Returns whether anything changed.
  bool collect(const pn_progress& progress, uint64_t now_ns);
  // Composes and submits while there is something to run and a step may be queued.
  bool pump(uint64_t now_ns);
  // Ends everything; later jobs end at once with the same error. recovery: of a lost die.
  void fail(Error error, uint32_t recovery = PN_RECOVER_OPERATOR);

  bool busy() const { return flight_count_ != 0; }
  bool empty() const { return flight_count_ == 0 && live_ == 0 && line_.empty(); }
  bool failed() const { return error_.has_value(); }
  // How long the oldest step in flight may be left alone; 0: look again now.
  uint64_t nap_ns(uint64_t now_ns) const;
  const Copy& copy() const { return copy_; }
  uint64_t last_value() const { return value_; }  // submitted to the queue

  // [any thread]
  struct Counts {
    std::atomic<uint32_t> outstanding{0};  // accepted and not ended, the inbox included
    std::atomic<uint32_t> running{0};
    std::atomic<uint64_t> steps{0};
    std::atomic<uint64_t> prompt_tokens{0};  // run, reused ones not counted
    std::atomic<uint64_t> drawn_tokens{0};   // handed to sinks
    std::atomic<uint64_t> dropped_rows{0};   // computed past an end
    std::atomic<bool> lost{false};
  };
  Counts counts;

 private:
  struct FlightRow {
    uint32_t lane;
    uint32_t top;
    uint64_t epoch;
  };
  struct Advance {  // what a submitted step did to a sequence
    uint32_t lane;
    uint32_t tokens;
    uint32_t pages_sent;
    bool draws;
  };
  struct Flight {
    uint64_t value = 0;
    uint64_t submitted_ns = 0;
    uint32_t shape = 0;
    uint32_t tokens = 0;
    bool chunk = false;           // has prompt tokens
    std::vector<FlightRow> rows;  // (<= lanes)
  };

  // runner.cc: life of sequences and flights
  bool admit_first(uint64_t now_ns);
  bool take_pages(Sequence& sequence, const Job& job);
  uint32_t reusable_pages(Sequence& sequence, const Job& job) const;
  void index_pages(Sequence& sequence);
  void end(uint32_t lane, Finish reason, std::optional<Error> error = {});
  void end_unstarted(std::unique_ptr<Job> job, Finish reason, std::optional<Error> error = {});
  void read(const Flight& flight, uint64_t now_ns);
  void deliver(uint32_t lane, const Drawn& drawn, uint64_t now_ns);
  void queue_failed(bool lost);
  void end_live(const Error& error);
  void check_deadline(uint64_t now_ns);

  // batch.cc: what goes into a step
  bool compose(uint64_t now_ns);
  bool chunk_in_flight() const;
  void add_decoder(uint32_t lane, Flight& flight);
  uint32_t add_chunk(uint32_t lane, uint32_t budget, Flight& flight);
  void add_row(uint32_t lane, uint32_t entry, uint32_t token, Flight& flight);
  void add_setup(uint32_t lane);
  void add_bias(const Sequence& sequence, uint32_t lane, pn_lane& setup);
  uint32_t pages_due(const Sequence& sequence, uint32_t count) const;
  void add_pages(uint32_t lane, uint32_t count, bool draws);
  bool submit(Flight& flight, uint64_t now_ns);
  void commit(Flight& flight, uint64_t now_ns);
  Flight& flight_of(uint64_t value) { return flights_[value % kStepDepth]; }
  const Flight& flight_of(uint64_t value) const { return flights_[value % kStepDepth]; }
  uint64_t record_offset(uint64_t value, uint32_t row) const;

  Copy copy_;
  Pages pages_;
  PrefixIndex prefix_;
  Pace pace_;
  StepArrays step_;
  std::deque<std::unique_ptr<Job>> line_;  // first come, first admitted
  std::vector<Sequence> lanes_;
  std::vector<uint32_t> order_;       // live lanes by admission
  std::vector<Advance> advances_;     // of the step being composed
  std::vector<pn_command> commands_;  // copies of biases, then the run
  std::array<Flight, kStepDepth> flights_;
  uint64_t value_ = 0;  // of the last submit
  uint64_t read_ = 0;   // last value whose rows were read
  uint64_t last_done_ns_ = 0;
  uint32_t flight_count_ = 0;
  uint32_t live_ = 0;
  uint64_t next_epoch_ = 1;
  uint32_t context_need_ = 0;  // of the step being composed
  std::optional<Error> error_;
};

}  // namespace pn::engine
