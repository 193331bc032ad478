// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: the table of control.h.
#include <algorithm>

#include "plugins/chaos/chaos.h"

namespace chaos {
namespace {

using Lock = std::lock_guard<std::mutex>;

void counts(chaos_counts* out) {
  Lock lock(state().mutex);
  *out = state().counts;
}

void events(uint32_t* count, chaos_event* out) {
  Lock lock(state().mutex);
  const std::vector<chaos_event>& all = state().events;
  const uint32_t room = *count;
  *count = static_cast<uint32_t>(all.size());
  if (out != nullptr) std::copy_n(all.begin(), std::min(room, *count), out);
}

uint64_t now() {
  Lock lock(state().mutex);
  return state().now();
}

void advance(uint64_t ns) {
  Lock lock(state().mutex);
  state().virtual_ns += ns;
  settle();
}

void allow(uint64_t steps) {
  Lock lock(state().mutex);
  state().allowed += steps;
}

void lose_now(uint32_t die) {
  Lock lock(state().mutex);
  if (die < state().dies.size()) lose(state().dies[die]);
  settle();
}

int set(const char* key, const char* value) {
  Lock lock(state().mutex);
  std::string why;
  if (change(key, value, &state().options, &why)) return 1;
  state().log(PN_LOG_ERROR, why);
  return 0;
}

void release() {
  Lock lock(state().mutex);
  state().release = true;
  state().released.notify_all();
}

const chaos_control kControl = {sizeof kControl, 0,     counts,   events, now,
                                advance,         allow, lose_now, set,    release};

}  // namespace

const void* control_table() { return &kControl; }

}  // namespace chaos
