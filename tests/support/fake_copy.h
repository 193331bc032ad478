// SPDX-License-Identifier: Apache-2.0
//
// A model copy on the fake plugin, without a file: for tests of the scheduler alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "engine/schedule/scheduler.h"
#include "tests/support/fake_plugin.h"

namespace pn::test {

struct FakeShape {
  uint32_t lanes = 4;
  uint32_t context = 256;
  uint32_t page_tokens = 16;
  uint32_t pages = 0;    // 0: enough for every lane
  uint32_t tokens = 64;  // of the largest shape
  bool reuse = true;
  bool staged_bias = false;
};

engine::Copy fake_copy(const FakeShape& shape);

// Collects what a sequence gives; a stop id ends it.
class Collector : public engine::Sink {
 public:
  explicit Collector(int32_t stop_id = -1) : stop_id_(stop_id) {}
  bool token(const engine::Drawn& drawn) override;
  void ended(const engine::Ended& end) override;
  bool wait(uint64_t ms = 20000);  // until it ended
  bool wait_tokens(size_t n, uint64_t ms = 20000);
  std::vector<int32_t> ids();
  engine::Ended end();
  bool has_ended();
  int times_ended();
  uint64_t order();  // 1 for the first that ended since the process began, 2 ...

 private:
  int32_t stop_id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> ids_;
  engine::Ended end_;
  int ended_ = 0;
  uint64_t order_ = 0;
};

std::unique_ptr<engine::Job> fake_job(std::vector<int32_t> prompt, uint32_t max_tokens,
                                      std::shared_ptr<engine::Sink> sink);
// What the fake plugin answers to a prompt that runs alone.
std::vector<int32_t> fake_answer(std::vector<int32_t> prompt, uint32_t max_tokens,
                                 int32_t stop_id = -1, uint32_t vocab = 97);

}  // namespace pn::test
