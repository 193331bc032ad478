// SPDX-License-Identifier: Apache-2.0
//
// Edges between dies: they share one address space, so each copies and reads from every other.
#include "backends/cpu/topology.h"

#include <algorithm>
#include <cstdio>

#include "backends/cpu/error.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

pn_status edges(uint32_t* count, pn_edge* out, pn_error* err) {
  if (count == nullptr) return fail(err, PN_INVALID, "topology.edges: count is NULL");
  const auto& specs = state()->specs;
  const auto dies = static_cast<uint32_t>(specs.size());
  const uint32_t room = *count, have = dies * (dies - 1);
  *count = have;
  if (room == 0) return PN_OK;
  if (out == nullptr) return fail(err, PN_INVALID, "topology.edges: edges are NULL");
  uint32_t next = 0;
  for (uint32_t from = 0; from < dies; ++from) {
    for (uint32_t to = 0; to < dies; ++to) {
      if (from == to || next >= room) continue;
      pn_edge edge = {};
      edge.struct_size = sizeof(edge);
      edge.flags = PN_EDGE_COPY | PN_EDGE_BINDS;
      edge.from = from;
      edge.to = to;
      const bool near = specs[from].node.id == specs[to].node.id;
      snprintf(edge.link, sizeof(edge.link), "%s", near ? "on-card" : "numa");
      pn_write(PN_AT(pn_edge, out, next++), &edge, sizeof(edge));
    }
  }
  return room < have ? PN_INCOMPLETE : PN_OK;
}

pn_status connect(pn_device from, pn_device to, uint64_t* device_bytes, pn_error* err) {
  if (find_die(from, err) == nullptr || find_die(to, err) == nullptr) return PN_INVALID;
  if (device_bytes != nullptr) *device_bytes = 0;
  return PN_OK;
}

}  // namespace

const pn_topology_api* topology_api() {
  static const pn_topology_api api = {sizeof(pn_topology_api), 0, edges};
  return &api;
}

const pn_peer_api* peer_api() {
  static const pn_peer_api api = {sizeof(pn_peer_api), 0, connect};
  return &api;
}

}  // namespace pn::cpu
