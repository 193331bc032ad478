// SPDX-License-Identifier: Apache-2.0
//
// Buffers between threads that convert and a die that only copies can reach.
//
// Owns a few host-visible buffers and a TRANSFER queue. Knows no weights. The one idea: workers
// fill buffers, one thread submits and polls, and a buffer comes back when the queue has passed its
// value.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/plan/die.h"
#include "hal/host/hal.h"
#include "hal/host/result.h"

namespace pn::engine {

class Staging {
 public:
  // piece_bytes: the largest piece, which must fit one buffer.
  static Result<std::unique_ptr<Staging>> create(Die& die, uint64_t piece_bytes);

  struct Piece {
    std::byte* host;
    uint32_t buffer;
  };
  // Workers. acquire() blocks until a buffer is free; false after close().
  bool acquire(Piece& piece);
  void upload(const Piece& piece, uint64_t bytes, const pn_slice& target);
  void close();  // lets everybody out of acquire()

  // The loading thread: submits what was filled, takes back what is complete and adds its bytes to
  // done. True while anything is under way.
  Result<bool> pump(uint64_t& done);

 private:
  struct Upload {
    uint32_t buffer = 0;
    uint64_t bytes = 0;
    uint64_t value = 0;
    pn_slice target{};
  };
  uint32_t copy_alignment_ = 1;
  std::vector<hal::Buffer> buffers_;
  hal::Queue queue_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<uint32_t> free_;  // guarded by mutex_, as is filled_
  std::deque<Upload> filled_;
  bool closed_ = false;
  std::deque<Upload> sent_;  // the loading thread's
  uint64_t value_ = 0;
};

}  // namespace pn::engine
