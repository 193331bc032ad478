// SPDX-License-Identifier: Apache-2.0
//
// What a case works with: the plugin under test, the reference, and where it says what it found.
//
// Owns both plugins and their first usable dies, opened at first use and kept until the case ends.
// Knows no case. The one idea: a case goes on after a failed expectation, and the first few are
// told; an error that it cannot go on from is returned.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "hal/check/case.h"
#include "hal/check/compare.h"
#include "hal/check/side.h"

namespace pn::check {

class Bench {
 public:
  explicit Bench(const Setup& setup) : setup_(setup) {}

  const Setup& setup() const { return setup_; }
  bool quick() const { return setup_.quick; }
  // A number of its own for each use, from the seed that is printed.
  uint64_t seed(uint64_t use) const { return setup_.seed * 0x9e3779b97f4a7c15ull + use; }

  // The plugin under test, without a die.
  Result<std::shared_ptr<hal::Plugin>> plugin();
  // Its first usable die.
  Result<Side*> subject();
  void close_subject() { subject_.reset(); }
  // The plugin that answers are compared with.
  Result<Side*> reference();

  template <class... A>
  bool expect(bool fine, fmt::format_string<A...> text, A&&... args) {
    if (!fine) fail(fmt::format(text, std::forward<A>(args)...));
    return fine;
  }
  // Compares rows; `where` begins the message.
  bool close(std::span<const float> got, std::span<const float> want, double tolerance,
             const std::string& where);
  void fail(const std::string& text);
  void note(const std::string& text);  // shown beside "passed"
  void unsupported(const std::string& reason) { unsupported_ = reason; }

  Outcome outcome() const;

 private:
  Setup setup_;
  std::shared_ptr<hal::Plugin> plugin_;
  std::unique_ptr<Side> subject_, reference_;
  std::string failures_, notes_, unsupported_;
  uint32_t failed_ = 0;
};

}  // namespace pn::check
