// SPDX-License-Identifier: Apache-2.0
//
// File descriptors, memory that two processes map, and words to sleep on.
//
// Owns descriptors and mappings. Knows no message. The one idea: whoever waits sleeps in the kernel
// on a word of the shared memory, so an idle pair of processes burns nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hal/host/result.h"

namespace pn::proxy {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedMemory();

  static Result<SharedMemory> create(const char* name, uint64_t bytes);  // all zero
  static Result<SharedMemory> map(Fd fd, uint64_t bytes);                // somebody else's

  int fd() const { return fd_.get(); }
  std::byte* at() const { return at_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(SharedMemory& other) noexcept;
  Fd fd_;
  std::byte* at_ = nullptr;
  uint64_t bytes_ = 0;
};

uint64_t monotonic_ns();

// Sleeps while *word == seen, at most so long. May return early.
void futex_wait(std::atomic<uint32_t>* word, uint32_t seen, uint64_t timeout_ns);
void futex_wake(std::atomic<uint32_t>* word);

}  // namespace pn::proxy
