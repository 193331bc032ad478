// SPDX-License-Identifier: Apache-2.0
//
// The validation layer: a plugin's table with a judge in front of it, when PANTHEON_HAL_VALIDATE=1.
//
// Owns nothing between calls but the books of one plugin: which handles live, what is in flight,
// what was answered. Knows no policy: it logs (PN_LOG_HOST_BUG, PN_LOG_PLUGIN_BUG) and passes on.
// The one idea: a C table carries no context, so there are a few sets of functions, and each plugin
// that is judged gets one. Without the variable the table is the plugin's own and nothing is paid.
//
// A call with a handle that is not alive, or with a null where the plugin would read, is not passed
// on: it is PN_INVALID. Everything else is, so what is judged is what would have happened.
#pragma once

#include <pantheon/hal.h>

#include <memory>

#include "hal/host/result.h"

namespace pn::hal {

class Validator;

bool validation_wanted();  // by the environment, now

// Judges `inner` until it is destroyed; its table must not be called afterwards.
class Validation {
 public:
  // busy when too many plugins are judged at once.
  static Result<std::unique_ptr<Validation>> begin(const pn_plugin& inner, const pn_host* host);
  ~Validation();
  Validation(const Validation&) = delete;
  Validation& operator=(const Validation&) = delete;
  const pn_plugin& table() const { return table_; }

 private:
  Validation() = default;
  std::unique_ptr<Validator> judge_;
  pn_plugin table_{};
  size_t slot_ = 0;
};

}  // namespace pn::hal
