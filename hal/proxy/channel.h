// SPDX-License-Identifier: Apache-2.0
//
// Control messages over a Unix socket: a number, bytes, and file descriptors beside them.
//
// Owns one end of a socketpair. Knows no call. The one idea: every wait has a deadline, so whoever
// is at the other end, alive or not, cannot hold this one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hal/proxy/shared.h"

namespace pn::proxy {

struct Message {
  uint32_t call = 0;
  std::vector<std::byte> body;
  std::vector<Fd> fds;
};

enum class Outcome { ok, closed, late };

class Channel {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr size_t kFdsMax = 32;

  Channel() = default;
  explicit Channel(Fd fd) : fd_(std::move(fd)) {}

  // deadline: on monotonic_ns(); kNever waits as long as it takes.
  Outcome send(uint32_t call, std::span<const std::byte> body, std::span<const int> fds,
               uint64_t deadline);
  Outcome receive(Message* out, uint64_t deadline);
  int fd() const { return fd_.get(); }

 private:
  Outcome wait(short events, uint64_t deadline);
  Outcome send_all(const std::byte* at, size_t bytes, std::span<const int> fds, uint64_t deadline);
  Outcome receive_all(std::byte* at, size_t bytes, std::vector<Fd>* fds, uint64_t deadline);
  Fd fd_;
};

// Two connected ends; both close on exec.
Result<std::pair<Fd, Fd>> socket_pair();

}  // namespace pn::proxy
