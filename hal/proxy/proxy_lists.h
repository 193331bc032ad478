// SPDX-License-Identifier: Apache-2.0
//
// The two-call lists (R8) at the server's end: what is asked, and what lands in the caller's array.
#pragma once

#include "hal/proxy/link.h"
#include "hal/proxy/wire.h"

namespace pn::proxy {

// How many items the caller has room for, as it is asked.
template <class T>
uint32_t room_of(const uint32_t* count, const T* items) {
  return items == nullptr ? 0 : *count;
}

// Reads {count, items} and passes them on in the caller's struct size.
template <class T>
pn_status take_list(Answer& answer, uint32_t* count, T* items) {
  if (answer.status < 0) return answer.status;
  const uint32_t room = room_of(count, items);
  const auto total = answer.in.pod<uint32_t>();
  const std::vector<T> given = answer.in.list<T>();
  for (uint32_t i = 0; i < given.size() && i < room; ++i)
    pn_write(PN_AT(T, items, i), &given[i], sizeof(T));
  *count = total;
  return answer.status;
}

}  // namespace pn::proxy
