// SPDX-License-Identifier: Apache-2.0
//
// A host of an imagined minor: loads a plugin and prints what it sees, a fact a line; matrix.py
// compares. Built from the loader's own sources against the headers of imagine.py.
//
//   minor_host PLUGIN      exit status 1 when it is refused, with the reason
#include <cstdio>
#include <cstring>

#include "hal/host/plugin.h"

namespace {

using pn::hal::Plugin;

int refuse(const pn::Error& error) {
  std::printf("refused=%s\n", error.message.c_str());
  return 1;
}

void print_devices(const Plugin& plugin) {
  auto infos = plugin.devices();
  if (!infos) return;
  for (const pn_device_info& info : *infos) {
    std::printf("die=%s", info.uid);
#if PN_ABI_MINOR >= 1
    std::printf(" link=%llu", static_cast<unsigned long long>(info.link_bytes_per_s));
#endif
    std::printf("\n");
  }
}

pn_error blank() {
  pn_error err{};
  err.struct_size = sizeof err;
  return err;
}

void print_status(const pn_plugin& table, pn_device device) {
  // Guard bytes behind the struct: a plugin of any minor writes what the caller has, and no more.
  struct {
    pn_memory_status status;
    unsigned char guard[32];
  } room;
  std::memset(&room, 0x5a, sizeof room);
  room.status.struct_size = sizeof room.status;
  pn_error err = blank();
  const pn_status said = table.memory_status(device, &room.status, &err);
  bool intact = true;
  for (unsigned char byte : room.guard) intact = intact && byte == 0x5a;
  std::printf("memory=%d guard=%d size=%d\n", said, intact,
              room.status.struct_size == sizeof room.status);
#if PN_ABI_MINOR >= 1
  std::printf("largest=%llu\n", static_cast<unsigned long long>(room.status.largest_free));
  err = blank();
  if (table.device_hint == nullptr)
    std::printf("hint=absent\n");
  else
    std::printf("hint=%d\n", table.device_hint(device, 7, &err));
#endif
}

void print_submit(const pn_plugin& table, pn_device device) {
  pn_queue queue{};
  pn_error err = blank();
  if (table.queue_create(device, PN_QUEUE_RUN, 8, &queue, &err) != PN_OK) return;
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.value = 1;
  std::printf("submit=%d\n", table.queue_submit(queue, &submit, &err));
#if PN_ABI_MINOR >= 1
  submit.value = 2;
  submit.priority = 5;
  err = blank();
  std::printf("priority=%d\n", table.queue_submit(queue, &submit, &err));
#endif
  table.queue_destroy(queue);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  pn::hal::LoadRequest request;
  request.plugin = argv[1];
  auto plugin = Plugin::load(request);
  if (!plugin) return refuse(plugin.error());
  const pn_plugin& table = (*plugin)->table();
  std::printf("minor=%u\n", table.abi_minor);
  print_devices(**plugin);
  pn_device device{};
  pn_error err = blank();
  if (table.device_open(0, &device, &err) != PN_OK) return 1;
  print_status(table, device);
  print_submit(table, device);
  table.device_close(device);
  return 0;
}
