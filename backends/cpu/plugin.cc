// SPDX-License-Identifier: Apache-2.0
//
// The plugin's identity, its one exported symbol and its table.
//
// Knows the names of everything and the insides of nothing.
#include <pantheon/note.h>
#include <pantheon/plugin.h>

#include <cstring>

#include "backends/cpu/emit.h"
#include "backends/cpu/error.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/state.h"
#include "backends/cpu/telemetry.h"
#include "backends/cpu/topology.h"

PN_PLUGIN_NOTE("cpu", "", PN_VERSION, "Pantheon", "");

namespace pn::cpu {
namespace {

const void* get_interface(const char* id) {
  if (id == nullptr) return nullptr;
  if (strcmp(id, "pantheon.layout/1") == 0) return layout_api();
  if (strcmp(id, "pantheon.hostmem/1") == 0) return hostmem_api();
  if (strcmp(id, "pantheon.sampler/1") == 0) return sampler_api();
  if (strcmp(id, "pantheon.telemetry/1") == 0) return telemetry_api();
  if (strcmp(id, "pantheon.topology/1") == 0) return topology_api();
  if (strcmp(id, "pantheon.peer/1") == 0) return peer_api();
  return nullptr;
}

void shutdown(uint64_t) { stop_state(); }

constexpr pn_plugin kTable = {
    .struct_size = sizeof(pn_plugin),
    .abi_minor = PN_ABI_MINOR,
    .min_host_minor = PN_ABI_MINOR,
    .reserved = 0,
    .devices = devices,
    .device_open = device_open,
    .device_close = device_close,
    .heaps = heaps,
    .memory_status = memory_status,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .program_query = program_query,
    .program_create = program_create,
    .program_status = program_status,
    .program_destroy = program_destroy,
    .queue_create = queue_create,
    .queue_submit = queue_submit,
    .queue_query = queue_query,
    .queue_wait = queue_wait,
    .queue_error = queue_error,
    .queue_destroy = queue_destroy,
    .get_interface = get_interface,
    .shutdown = shutdown,
};

}  // namespace
}  // namespace pn::cpu

extern "C" __attribute__((visibility("default"))) pn_status pantheon_plugin_entry_1(
    const pn_host* host, const pn_plugin** out, pn_error* err) {
  using namespace pn::cpu;
  return guarded(err, [&]() -> pn_status {
    if (host == nullptr || out == nullptr) return fail(err, PN_INVALID, "entry: NULL argument");
    pn_host known = {};
    if (!pn_read(&known, sizeof(known), host, sizeof(known)))
      return fail(err, PN_UNSUPPORTED, "pn_host of %u bytes says something this plugin cannot read",
                  host->struct_size);
    // While the major is 0, host and plugin must agree on the minor.
    if (known.abi_minor != PN_ABI_MINOR)
      return fail(err, PN_UNSUPPORTED, "the host speaks HAL 0.%u, this cpu plugin 0.%u",
                  known.abi_minor, unsigned{PN_ABI_MINOR});
    if (state() != nullptr) return fail(err, PN_INVALID, "the cpu plugin is loaded already");
    const pn_status status = start_state(known, err);
    if (status == PN_OK) *out = &kTable;
    return status;
  });
}
