// SPDX-License-Identifier: Apache-2.0
//
// A plugin that runs in a process of its own, as its owner in the server sees it.
//
// Knows nothing of how: hal/proxy does it. The one idea: a process that died takes its handles with
// it and nothing else; the plugin's table stays, and its next generation is one call away.
#pragma once

#include <cstdint>
#include <string>

#include "hal/host/result.h"

namespace pn::hal {

class Isolation {
 public:
  virtual ~Isolation() = default;
  virtual int pid() const = 0;              // of the backend host, dead or alive
  virtual uint32_t generation() const = 0;  // 1 for the first process
  virtual bool alive() const = 0;
  // A process in the place of the one of generation `seen`; nothing when that has been done. Every
  // handle of before stays lost; devices are opened anew. Errors: what start said; device_lost when
  // it was restarted too often (kRestarts within kRestartWindowNs). Blocks for seconds.
  virtual Result<void> restart(uint32_t seen) = 0;
  // Ends it as lost: for a die that does not come back from a step.
  virtual void kill(const std::string& why) = 0;

  static constexpr uint32_t kRestarts = 3;
  static constexpr uint64_t kRestartWindowNs = 60'000'000'000;
};

}  // namespace pn::hal
