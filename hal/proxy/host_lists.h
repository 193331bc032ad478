// SPDX-License-Identifier: Apache-2.0
//
// The two-call lists (R8) at the backend host's end.
#pragma once

#include <algorithm>
#include <vector>

#include "hal/proxy/host_server.h"

namespace pn::proxy {

// ask(&count, items, err) is the plugin's function; {count, items} goes back.
template <class T, class Ask>
void give_list(uint32_t room, Reply& reply, Ask ask) {
  room = std::min(room, 65536u);
  T blank{};
  blank.struct_size = sizeof blank;
  std::vector<T> items(room, blank);
  uint32_t count = room;
  reply.status = ask(&count, room == 0 ? nullptr : items.data(), &reply.error);
  items.resize(std::min(room, count));
  reply.payload.pod(count);
  reply.payload.list(items.data(), items.size());
}

// describe(&out, err) fills one struct.
template <class T, class Ask>
void give_one(Reply& reply, Ask ask) {
  T value{};
  value.struct_size = sizeof value;
  reply.status = ask(&value, &reply.error);
  reply.payload.pod(value);
}

}  // namespace pn::proxy
