// SPDX-License-Identifier: Apache-2.0
//
// How long a step takes here, learnt while running, and when it is worth looking again.
//
// Owns a running mean a shape. Knows no queue and no clock: times come in as arguments. The one
// idea: sleep until shortly before the step is due, then look often for a little while, then ever
// more rarely; a core that polls is a core that a host plugin cannot compute on.
#pragma once

#include <cstdint>
#include <vector>

namespace pn::engine {

class Pace {
 public:
  // predicted_ns: one a shape, 0 unknown.
  explicit Pace(const std::vector<uint64_t>& predicted_ns);

  // A step of this shape with this many tokens took ns.
  void measured(uint32_t shape, uint32_t tokens, uint64_t ns);
  uint64_t expected_ns(uint32_t shape, uint32_t tokens) const;

  // A step that should take expected ns has been running for elapsed ns: how long to leave it
  // alone. 0: it is due now, stay awake.
  static uint64_t nap_ns(uint64_t expected, uint64_t elapsed);

 private:
  struct Mean {
    uint64_t ns = 0;  // 0: nothing known yet
    uint32_t tokens = 0;
    bool predicted = false;
  };
  std::vector<Mean> means_;
};

}  // namespace pn::engine
