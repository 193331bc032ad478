// SPDX-License-Identifier: Apache-2.0
//
// See ring.h. Records are whole cache lines and never wrap: what does not fit before the end of the
// ring goes to its beginning, and a head without bytes says so.
#include "hal/proxy/ring.h"

#include <sched.h>

#include <cstring>

namespace pn::proxy {

namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kWordsBytes = 4096;
static_assert(sizeof(RingWords) <= kWordsBytes);

uint64_t lines(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

Result<Ring> Ring::create() {
  Ring ring;
  PN_TRY(ring.memory_, SharedMemory::create("pantheon-ring", kWordsBytes + kRingBytes));
  return ring;
}

Result<Ring> Ring::map(Fd fd) {
  Ring ring;
  PN_TRY(ring.memory_, SharedMemory::map(std::move(fd), kWordsBytes + kRingBytes));
  return ring;
}

std::byte* Ring::data() const { return memory_.at() + kWordsBytes; }

std::byte* Ring::reserve(uint64_t bytes) {
  const uint64_t need = lines(sizeof(Head) + bytes);
  uint64_t tail = words().tail.load(std::memory_order_relaxed);
  const uint64_t head = words().head.load(std::memory_order_acquire);
  const uint64_t offset = tail % kRingBytes;
  const bool wraps = offset + need > kRingBytes;
  const uint64_t skipped = wraps ? kRingBytes - offset : 0;
  if (tail + skipped + need - head > kRingBytes) return nullptr;
  if (wraps) {
    std::memset(data() + offset, 0, sizeof(Head));
    tail += skipped;
  }
  std::byte* at = data() + tail % kRingBytes;
  reserved_ = tail + need;
  std::memcpy(at, &need, sizeof need);
  return at + sizeof(Head);
}

void Ring::publish() {
  words().tail.store(reserved_, std::memory_order_seq_cst);
  if (words().asleep.load(std::memory_order_seq_cst) != 0) wake_consumer();
}

void Ring::wake_consumer() {
  words().doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(&words().doorbell);
}

std::byte* Ring::ready() const {
  return words().tail.load(std::memory_order_seq_cst) == position_
             ? nullptr
             : data() + position_ % kRingBytes;
}

std::byte* Ring::next(uint64_t timeout_ns) {
  position_ = words().head.load(std::memory_order_relaxed);
  std::byte* at = ready();
  for (const uint64_t end = monotonic_ns() + kSpinNs; at == nullptr && monotonic_ns() < end;) {
    ::sched_yield();  // the producer may be waiting for this very core
    at = ready();
  }
  if (at == nullptr) {
    const uint32_t seen = words().doorbell.load(std::memory_order_seq_cst);
    words().asleep.store(1, std::memory_order_seq_cst);
    at = ready();
    if (at == nullptr) futex_wait(&words().doorbell, seen, timeout_ns);
    words().asleep.store(0, std::memory_order_seq_cst);
    at = ready();
  }
  if (at == nullptr) return nullptr;
  uint64_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);
  if (bytes == 0) {
    position_ += kRingBytes - position_ % kRingBytes;
    at = data();
    std::memcpy(&bytes, at, sizeof bytes);
  }
  position_ += bytes;
  return at + sizeof(Head);
}

void Ring::pop() { words().head.store(position_, std::memory_order_release); }

void Ring::advance(uint64_t completed) {
  words().completed.store(completed, std::memory_order_release);
  words().bell.fetch_add(1, std::memory_order_seq_cst);
  if (words().waiters.load(std::memory_order_seq_cst) != 0) futex_wake(&words().bell);
}

void Ring::fail(uint32_t state, const pn_error& error) {
  if (words().state.load(std::memory_order_relaxed) != PN_QUEUE_OK) return;
  words().error = error;
  words().state.store(state, std::memory_order_release);
  words().bell.fetch_add(1, std::memory_order_seq_cst);
  if (words().waiters.load(std::memory_order_seq_cst) != 0) futex_wake(&words().bell);
}

void Ring::await_change(uint32_t seen_bell, uint64_t timeout_ns) {
  words().waiters.fetch_add(1, std::memory_order_seq_cst);
  futex_wait(&words().bell, seen_bell, timeout_ns);
  words().waiters.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace pn::proxy
