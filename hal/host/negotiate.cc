// SPDX-License-Identifier: Apache-2.0
//
// See negotiate.h.
#include "hal/host/negotiate.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "hal/host/note.h"
#include "hal/host/plugin.h"

namespace pn::hal {

namespace {

constexpr uint32_t kPluginBytes_0_2 = 168;  // frozen first size of pn_plugin

// What a missing optional slot is replaced with: PN_UNSUPPORTED, and the slot's name in the error,
// which is the last argument of every function that can fail.
template <auto Slot>
struct Absent;
template <class T, class... Args, pn_status (*T::*Slot)(Args...)>
struct Absent<Slot> {
  static inline const char* name = "";
  static pn_status call(Args... args) {
    pn_error* err = std::get<sizeof...(Args) - 1>(std::tuple<Args...>(args...));
    if (err != nullptr) {
      err->code = PN_UNSUPPORTED;
      std::snprintf(err->message, sizeof err->message, "this plugin does not offer %s", name);
    }
    return PN_UNSUPPORTED;
  }
};

template <auto Slot, class T>
void fill(T* table, const char* name) {
  Absent<Slot>::name = name;
  if (table->*Slot == nullptr) table->*Slot = &Absent<Slot>::call;
}

template <class T>
void copy_known(const void* given, T* out) {
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof size);
  *out = T{};
  std::memcpy(out, given, std::min<size_t>(size, sizeof(T)));
  out->struct_size = sizeof(T);
}

struct RequiredSlot {
  const char* name;
  size_t offset;
};
#define PN_SLOT(name) \
  { #name, offsetof(pn_plugin, name) }
constexpr RequiredSlot kRequired[] = {
    PN_SLOT(devices),        PN_SLOT(device_open),     PN_SLOT(device_close),
    PN_SLOT(heaps),          PN_SLOT(memory_status),   PN_SLOT(buffer_create),
    PN_SLOT(buffer_destroy), PN_SLOT(program_query),   PN_SLOT(program_create),
    PN_SLOT(program_status), PN_SLOT(program_destroy), PN_SLOT(queue_create),
    PN_SLOT(queue_submit),   PN_SLOT(queue_query),     PN_SLOT(queue_wait),
    PN_SLOT(queue_error),    PN_SLOT(queue_destroy),   PN_SLOT(get_interface),
    PN_SLOT(shutdown)};
#undef PN_SLOT

std::string minor_text(uint32_t minor) {
  return std::to_string(PN_ABI_MAJOR) + "." + std::to_string(minor);
}

// `spoken` is min(ours, the plugin's own). Before 1.0 a minor may change anything.
bool minors_agree(uint32_t spoken, uint32_t oldest_host) {
  const uint32_t ours = PN_ABI_MINOR;
  if (PN_ABI_MAJOR == 0 && spoken != ours) return false;
  return std::max(spoken, oldest_host) <= ours;
}

Result<void> check_table(const pn_plugin& given, const std::string& path) {
  if (given.struct_size < kPluginBytes_0_2 || given.struct_size % 8 != 0) {
    return fail(Code::invalid, path + ": expected a table of at least " +
                                   std::to_string(kPluginBytes_0_2) + " bytes, found " +
                                   std::to_string(given.struct_size) +
                                   ": rebuild it with this pantheon's headers");
  }
  if (!minors_agree(given.abi_minor, given.min_host_minor)) {
    return fail(Code::invalid,
                path + ": speaks HAL " + minor_text(given.abi_minor) + " (hosts from " +
                    minor_text(given.min_host_minor) + "), this pantheon speaks HAL " +
                    minor_text(PN_ABI_MINOR) +
                    (PN_ABI_MAJOR == 0 ? "; while the major is 0 both must agree" : "") +
                    ": install the build of the plugin that matches, or upgrade "
                    "pantheon");
  }
  for (const RequiredSlot& slot : kRequired) {
    void* function = nullptr;
    std::memcpy(&function, reinterpret_cast<const char*>(&given) + slot.offset, sizeof function);
    if (function == nullptr) {
      return fail(Code::invalid, path + ": the required function " + slot.name +
                                     " is null in its table: the plugin is incomplete; ask its "
                                     "author for a build that passes the contract test");
    }
  }
  return {};
}

}  // namespace

Result<pn_plugin> negotiate(pn_entry_fn entry, const pn_host* host, const std::string& path) {
  const pn_plugin* given = nullptr;
  pn_error err{};
  err.struct_size = sizeof err;
  const pn_status st = entry(host, &given, &err);
  if (st != PN_OK) return tl::unexpected<Error>(to_error(path + ": the entry refused", st, err));
  if (given == nullptr) {
    return fail(Code::invalid, path + ": the entry said PN_OK and gave no table: rebuild it");
  }
  PN_TRY(check_table(*given, path));
  pn_plugin table{};
  copy_known(given, &table);
  return table;
}

void complete(const void* given, pn_layout_api* out) {
  copy_known(given, out);
  fill<&pn_layout_api::rank>(out, "layout.rank");
  fill<&pn_layout_api::convert>(out, "layout.convert");
  fill<&pn_layout_api::decode>(out, "layout.decode");
  fill<&pn_layout_api::targets>(out, "layout.targets");
}

void complete(const void* given, pn_hostmem_api* out) {
  copy_known(given, out);
  fill<&pn_hostmem_api::import>(out, "hostmem.import");
}

void complete(const void* given, pn_sampler_api* out) {
  copy_known(given, out);
  fill<&pn_sampler_api::describe>(out, "sampler.describe");
}

void complete(const void* given, pn_graph_api* out) {
  copy_known(given, out);
  fill<&pn_graph_api::describe>(out, "graph.describe");
}

void complete(const void* given, pn_topology_api* out) {
  copy_known(given, out);
  fill<&pn_topology_api::edges>(out, "topology.edges");
}

void complete(const void* given, pn_peer_api* out) {
  copy_known(given, out);
  fill<&pn_peer_api::connect>(out, "peer.connect");
}

void complete(const void* given, pn_telemetry_api* out) {
  copy_known(given, out);
  fill<&pn_telemetry_api::health>(out, "telemetry.health");
  fill<&pn_telemetry_api::readings>(out, "telemetry.readings");
  fill<&pn_telemetry_api::occupants>(out, "telemetry.occupants");
}

void complete(const void* given, pn_reset_api* out) {
  copy_known(given, out);
  fill<&pn_reset_api::describe>(out, "reset.describe");
  fill<&pn_reset_api::reset>(out, "reset.reset");
  fill<&pn_reset_api::self_check>(out, "reset.self_check");
}

}  // namespace pn::hal
