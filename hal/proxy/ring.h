// SPDX-License-Identifier: Apache-2.0
//
// The step path of one queue, in memory that both processes map: records one way, progress back.
//
// Owns the layout of that memory and who writes which word. Knows records as bytes. One producer
// (the server's submitting thread) and one consumer (the queue's thread in the backend host). The
// one idea: both sides read plain words; a system call is made only to wake somebody who sleeps.
#pragma once

#include <pantheon/hal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hal/proxy/shared.h"

namespace pn::proxy {

inline constexpr uint64_t kRingBytes = 4ull << 20;    // records of one queue
inline constexpr uint64_t kRecordMax = 1ull << 20;    // of one submit: two always fit
inline constexpr uint64_t kStepBytesMax = 768 << 10;  // told as step_bytes_max at most
inline constexpr uint64_t kSpinNs = 20'000;           // before a consumer sleeps

struct RingWords {
  // The producer's.
  alignas(64) std::atomic<uint64_t> tail;  // bytes written since the beginning
  std::atomic<uint32_t> doorbell;
  // The consumer's.
  alignas(64) std::atomic<uint64_t> head;  // bytes given back
  std::atomic<uint32_t> asleep;
  // Progress, the backend host's.
  alignas(64) std::atomic<uint64_t> completed;
  std::atomic<uint32_t> state;  // PN_QUEUE_*
  std::atomic<uint32_t> bell;   // bumped with every change
  std::atomic<uint32_t> waiters;
  alignas(64) pn_error error;  // complete before state leaves PN_QUEUE_OK
};

class Ring {
 public:
  Ring() = default;
  static Result<Ring> create();
  static Result<Ring> map(Fd fd);

  RingWords& words() const { return *reinterpret_cast<RingWords*>(memory_.at()); }
  int fd() const { return memory_.fd(); }

  // Producer. Room for one record, or nullptr while the ring is full; publish() makes it visible.
  std::byte* reserve(uint64_t bytes);
  void publish();

  // Consumer. The next record, waited for at most so long; nullptr when there is none. pop() gives
  // its room back.
  std::byte* next(uint64_t timeout_ns);
  void pop();
  void wake_consumer();  // without a record: to see a stop

  // Progress.
  void advance(uint64_t completed);
  void fail(uint32_t state, const pn_error& error);  // the first one counts
  void await_change(uint32_t seen_bell, uint64_t timeout_ns);

 private:
  struct Head {
    uint64_t bytes;  // of the record with this head, in whole lines; 0: go on at the beginning
    uint64_t unused[7];
  };
  std::byte* data() const;
  std::byte* ready() const;
  SharedMemory memory_;
  uint64_t reserved_ = 0;  // the producer's tail with what it is writing
  uint64_t position_ = 0;  // the consumer's head
};

}  // namespace pn::proxy
