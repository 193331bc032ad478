// SPDX-License-Identifier: Apache-2.0
//
// What a template may cost, and the meter that holds it to that.
//
// Owns Limits (set once, by whoever loads a template) and Runtime (one per render). A model file is
// untrusted input, so every loop turn, produced byte and level of recursion is charged here, before
// the work where the size is known. The idea: no operation is unbounded, so no construct needs its
// own check. Knows nothing of values or syntax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hal/host/result.h"

namespace pn::jinja {

struct Limits {
  size_t max_source_bytes = 1 << 20;    // the largest of 68 surveyed templates has 27 KB
  uint32_t max_nesting = 150;           // levels of syntax: parentheses, blocks, operators
  uint32_t max_depth = 400;             // levels of evaluation; a macro call costs about 8
  uint64_t max_steps = 4'000'000;       // evaluated nodes and touched elements
  uint64_t max_work_bytes = 256 << 20;  // bytes of all strings and lists made during one render
  size_t max_string_bytes = 32 << 20;   // one string
  size_t max_output_bytes = 16 << 20;   // the rendered prompt
  int64_t max_range = 100'000;          // elements of range(), as in Jinja's sandbox
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }

  // The line an error will name; the evaluator keeps it current.
  int line = 1;

  // An error of the template or of what it was given, with the line.
  tl::unexpected<Error> error(std::string message) const {
    return fail(Code::invalid, "template line " + std::to_string(line) + ": " + std::move(message),
                "messages");
  }

  // An error that no other conversation would cure: the template asks for too much.
  tl::unexpected<Error> over(std::string what) const {
    return fail(
        Code::invalid,
        "template line " + std::to_string(line) + ": rendering was stopped: " + std::move(what),
        "chat_template");
  }

  Result<void> steps(uint64_t n = 1) {
    steps_ += n;
    if (n > limits_.max_steps || steps_ > limits_.max_steps) {
      return over("more than " + std::to_string(limits_.max_steps) + " steps");
    }
    return {};
  }

  // Charges bytes about to be made. False once the budget is spent, and from then on.
  bool take_bytes(uint64_t n) {
    if (n > limits_.max_work_bytes || work_bytes_ + n > limits_.max_work_bytes) {
      work_bytes_ = limits_.max_work_bytes;
      return false;
    }
    work_bytes_ += n;
    return true;
  }
  Result<void> bytes(uint64_t n) {
    if (take_bytes(n)) return {};
    return over("more than " + std::to_string(limits_.max_work_bytes) + " bytes of strings made");
  }

  uint32_t depth = 0;
  Result<void> check_depth() const {
    if (depth <= limits_.max_depth) return {};
    return over("recursion deeper than " + std::to_string(limits_.max_depth) + " levels");
  }

  int64_t now = 0;  // seconds since 1970, for strftime_now

 private:
  Limits limits_;
  uint64_t steps_ = 0;
  uint64_t work_bytes_ = 0;
};

// One level of recursion, for as long as it lives.
class Level {
 public:
  explicit Level(Runtime& rt) : rt_(rt) { ++rt_.depth; }
  ~Level() { --rt_.depth; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Runtime& rt_;
};

}  // namespace pn::jinja
