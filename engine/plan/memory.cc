// SPDX-License-Identifier: Apache-2.0
//
// The comparison, and the search for a context and slots that would fit. Owns the message; asks no
// device: the caller brings the figures of one moment.
#include "engine/plan/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/pool.h"

namespace pn::engine {
namespace {

// Bytes that may still be taken; UINT64_MAX when the die cannot say.
uint64_t room_of(const pn_memory_status& status, uint64_t budget) {
  uint64_t room = status.quality == 0 ? UINT64_MAX : status.free_now;
  if (budget != 0) room = std::min(room, budget - std::min(budget, status.used_by_us));
  return room;
}

// Largest context, in whole pages, that leaves this many slots within the pages.
uint64_t context_for(uint64_t pages, uint32_t slots, const MemoryQuestion& q) {
  return std::min<uint64_t>(q.context, pages / slots * q.page_tokens);
}

std::string what_fits(const MemoryNeed& need, uint64_t room, const MemoryQuestion& q) {
  uint64_t fixed = need.total() - need.cache();
  uint64_t pages = room > fixed && need.page_bytes != 0 ? (room - fixed) / need.page_bytes : 0;
  if (pages == 0) {
    return fmt::format(
        "without any context it takes {}: free memory on the die, raise its budget, "
        "or use a smaller file",
        bytes_text(fixed));
  }
  std::string text;
  uint64_t same_slots = context_for(pages, q.slots, q);
  if (same_slots != 0) {
    text = fmt::format("context {} with {} slot{} would fit", same_slots, q.slots,
                       q.slots == 1 ? "" : "s");
  }
  uint64_t lane_pages = (q.context + q.page_tokens - 1) / q.page_tokens;
  uint64_t slots = std::min<uint64_t>(pages / lane_pages, q.slots);
  if (q.slots > 1 && slots >= 1) {
    text += fmt::format("{}context {} with {} slot{}{}", text.empty() ? "" : ", or ", q.context,
                        slots, slots == 1 ? "" : "s", text.empty() ? " would fit" : "");
  } else if (q.slots > 1) {
    text += fmt::format("{}context {} with 1 slot{}", text.empty() ? "" : ", or ",
                        context_for(pages, 1, q), text.empty() ? " would fit" : "");
  }
  return text;
}

}  // namespace

Result<void> check_memory(const MemoryNeed& need, const pn_memory_status& status,
                          const MemoryQuestion& q) {
  uint64_t room = room_of(status, q.budget);
  if (need.total() <= room) return {};
  return fail(
      Code::out_of_memory,
      fmt::format("{} needs {} on {} ({} weights, {} cache for {} x {} tokens, {} work space), "
                  "{} may be taken: {}",
                  q.model, bytes_text(need.total()), q.die, bytes_text(need.weights),
                  bytes_text(need.cache()), q.slots, q.context,
                  bytes_text(need.scratch + need.program + need.other), bytes_text(room),
                  what_fits(need, room, q)),
      "context");
}

}  // namespace pn::engine
