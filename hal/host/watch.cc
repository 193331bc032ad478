// SPDX-License-Identifier: Apache-2.0
//
// See watch.h.
#include "hal/host/watch.h"

#include <unistd.h>

namespace pn::hal {

namespace {

thread_local CallWatch* watch_of_thread = nullptr;

}  // namespace

CallWatch* CallWatch::of_thread() { return watch_of_thread; }
void CallWatch::set_of_thread(CallWatch* watch) { watch_of_thread = watch; }

void CallWatch::enter(const pn_plugin* api, uint32_t patience) {
  if (depth_++ != 0) return;
  api_.store(api, std::memory_order_relaxed);
  patience_.store(patience, std::memory_order_relaxed);
  count_ += 2;
  state_.store(count_ + 1, std::memory_order_release);
}

void CallWatch::leave() {
  if (--depth_ != 0) return;
  uint64_t mine = count_ + 1;
  if (state_.compare_exchange_strong(mine, count_, std::memory_order_acq_rel)) return;
  for (;;) ::pause();  // given up: until the process ends
}

}  // namespace pn::hal
