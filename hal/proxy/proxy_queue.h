// SPDX-License-Identifier: Apache-2.0
//
// What the server keeps of a queue of an isolated plugin.
//
// Owns the ring and the count of what is outstanding. Used by the queue's one submitting thread,
// but for the ring's progress words, which anybody reads.
#pragma once

#include <memory>
#include <vector>

#include "hal/proxy/link.h"
#include "hal/proxy/ring.h"

namespace pn::proxy {

struct RemoteQueue {
  std::shared_ptr<Link> link;
  Ring ring;
  std::vector<uint64_t> values;  // submitted and not yet seen complete, a circle of `depth`
  size_t first = 0, count = 0;
  uint64_t last = 0;  // value of the last submit

  // True when `depth` submits are outstanding.
  bool full();
  void push(uint64_t value);
};

}  // namespace pn::proxy
