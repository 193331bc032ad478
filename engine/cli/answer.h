// SPDX-License-Identifier: Apache-2.0
//
// An answer as the terminal reads it: deltas cross from the scheduler's thread to the caller's.
//
// Owns one small queue. The scheduler never waits for a slow terminal.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "engine/service/generate.h"

namespace pn::cli {

class Answer final : public engine::Listener {
 public:
  void delta(engine::Delta&& part) override {
    const std::lock_guard lock(mutex_);
    text_ += part.text;
    ready_.notify_one();
  }
  void finished(const engine::Finished& end) override {
    const std::lock_guard lock(mutex_);
    end_ = end;
    ready_.notify_one();
  }

  // Waits up to 50 ms; text that came since the last call, and the end once all text is taken.
  std::pair<std::string, std::optional<engine::Finished>> take() {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, std::chrono::milliseconds(50), [&] { return !text_.empty() || end_; });
    std::string text = std::move(text_);
    text_.clear();
    return {std::move(text), end_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::string text_;
  std::optional<engine::Finished> end_;
};

}  // namespace pn::cli
