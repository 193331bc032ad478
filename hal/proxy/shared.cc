// SPDX-License-Identifier: Apache-2.0
//
// memfd, mmap and futex, wrapped.
#include "hal/proxy/shared.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace pn::proxy {

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

SharedMemory::~SharedMemory() {
  if (at_ != nullptr) ::munmap(at_, bytes_);
}

void SharedMemory::swap(SharedMemory& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
}

Result<SharedMemory> SharedMemory::create(const char* name, uint64_t bytes) {
  Fd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return fail(Code::out_of_memory, std::string(name) + ": no shared memory of " +
                                         std::to_string(bytes) + " bytes: " + std::strerror(errno));
  }
  return map(std::move(fd), bytes);
}

Result<SharedMemory> SharedMemory::map(Fd fd, uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return fail(Code::out_of_memory, "no room to map " + std::to_string(bytes) +
                                         " bytes of shared memory: " + std::strerror(errno));
  }
  SharedMemory memory;
  memory.fd_ = std::move(fd);
  memory.at_ = static_cast<std::byte*>(at);
  memory.bytes_ = bytes;
  return memory;
}

uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

void futex_wait(std::atomic<uint32_t>* word, uint32_t seen, uint64_t timeout_ns) {
  timespec most{static_cast<time_t>(timeout_ns / 1'000'000'000ull),
                static_cast<long>(timeout_ns % 1'000'000'000ull)};
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace pn::proxy
