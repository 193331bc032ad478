// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: the named interfaces; the option `without` takes any of them away.
#include <pantheon/graph.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/reset.h>
#include <pantheon/sampler.h>
#include <pantheon/telemetry.h>
#include <pantheon/topology.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plugins/chaos/chaos.h"

namespace chaos {
namespace {

// ---- pantheon.layout/1: the source's own bytes, a tile a row ------------------------------------

struct Block {
  uint32_t type, elements, bytes;
};
constexpr Block kBlocks[] = {
    {0, 1, 4},    {1, 1, 2},      {2, 32, 18},    {3, 32, 20},    {6, 32, 22},    {7, 32, 24},
    {8, 32, 34},  {10, 256, 84},  {11, 256, 110}, {12, 256, 144}, {13, 256, 176}, {14, 256, 210},
    {20, 32, 18}, {23, 256, 136}, {26, 1, 4},     {30, 1, 2},     {39, 32, 17}};

pn_status source_layout(const pn_weight* weight, pn_layout_choice* out, pn_error* err) {
  pn_layout_choice choice{};
  choice.struct_size = sizeof choice;
  const auto width = static_cast<uint64_t>(weight->shape[0]);
  for (const Block& block : kBlocks) {
    if (block.type == weight->source_type && width % block.elements == 0) {
      choice.tile_bytes = width / block.elements * block.bytes;
    }
  }
  if (choice.tile_bytes == 0) {
    return fail(err, PN_UNSUPPORTED,
                "layout: type " + std::to_string(weight->source_type) + " with rows of " +
                    std::to_string(width) + " elements is unknown here");
  }
  choice.tile_count = static_cast<uint64_t>(weight->shape[1] * weight->shape[2] * weight->shape[3]);
  choice.alignment = 64;
  choice.flags = 1;
  choice.speed = 1;
  copy_text(choice.name, sizeof choice.name, "pantheon.source/1");
  std::memcpy(choice.fingerprint, &weight->source_type, sizeof weight->source_type);
  *out = choice;
  return PN_OK;
}

pn_status rank(const pn_weight* weight, uint64_t, uint32_t* count, pn_layout_choice* out,
               pn_error* err) {
  pn_layout_choice choice{};
  const pn_status status = source_layout(weight, &choice, err);
  if (status != PN_OK) return status;
  const uint32_t room = *count;
  *count = 1;
  if (room != 0 && out != nullptr) pn_write(out, &choice, sizeof choice);
  return PN_OK;
}

pn_status convert(const pn_weight* weight, uint64_t, uint64_t layout, const void* source, void* out,
                  uint64_t first, uint64_t count, pn_error* err) {
  pn_layout_choice choice{};
  const pn_status status = source_layout(weight, &choice, err);
  if (status != PN_OK) return status;
  if (layout != 0 || first > choice.tile_count || count > choice.tile_count - first) {
    return fail(err, PN_INVALID, "layout.convert: no such layout, or tiles past the end");
  }
  Call call("convert");
  std::memcpy(out, static_cast<const char*>(source) + first * choice.tile_bytes,
              count * choice.tile_bytes);
  return PN_OK;
}

pn_status decode(const pn_weight* weight, uint64_t, uint64_t layout, const void* in, float* out,
                 uint64_t, uint64_t count, pn_error* err) {
  if (layout != 0 || weight->source_type != PN_TYPE_F32) {
    return fail(err, PN_UNSUPPORTED, "layout.decode: F32 only");
  }
  std::memcpy(out, in, count * static_cast<uint64_t>(weight->shape[0]) * sizeof(float));
  return PN_OK;
}

pn_status targets(uint32_t* count, pn_pair* pairs, pn_error*) {
  const uint32_t room = *count;
  *count = 1;
  if (room != 0 && pairs != nullptr) pairs[0] = {"chaos", "0"};
  return PN_OK;
}
const pn_layout_api kLayout = {sizeof kLayout, 0, rank, convert, decode, targets};

// ---- sampler, hostmem, graph --------------------------------------------------------------------

pn_status sampler(pn_device device, pn_sampler_info* out, pn_error* err) {
  Call call("describe", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  const pn_sampler_info info = {sizeof info,
                                PN_SAMPLES_GREEDY | PN_SAMPLES_TEMPERATURE | PN_SAMPLES_PENALTIES |
                                    PN_SAMPLES_BIAS | PN_SAMPLES_MASK_BITS | PN_SAMPLES_MASK_LIST |
                                    PN_SAMPLES_HOLD,
                                256, 1u << 20};
  pn_write(out, &info, sizeof info);
  return PN_OK;
}
const pn_sampler_api kSampler = {sizeof kSampler, 0, sampler};
const pn_hostmem_api kHostmem = {sizeof kHostmem, 1, import_range};

pn_status graph(pn_program program, uint32_t shape, pn_launch_info* out, pn_error* err) {
  Call call("graph", program.id, kOfProgram);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  if (shape >= state().programs.at(program.id).shapes.size()) {
    return host_broke(err, "graph.describe: no such shape");
  }
  pn_launch_info info{};
  info.struct_size = sizeof info;
  info.host_calls = 1;
  copy_text(info.reason, sizeof info.reason, "a script launches nothing");
  pn_write(out, &info, sizeof info);
  return PN_OK;
}
const pn_graph_api kGraph = {sizeof kGraph, 0, graph};

// ---- topology, peer: edges within a card, or between all ----------------------------------------

bool joined(uint32_t from, uint32_t to) {
  const Options& o = state().options;
  if (from == to || o.peers == 0) return false;
  return o.peers == 2 || from / o.dies_per_card == to / o.dies_per_card;
}

pn_status edges(uint32_t* count, pn_edge* out, pn_error*) {
  Call call("edges");
  const uint32_t room = *count;
  const auto dies = static_cast<uint32_t>(state().dies.size());
  *count = 0;
  for (uint32_t from = 0; from < dies; ++from) {
    for (uint32_t to = 0; to < dies; ++to) {
      if (!joined(from, to)) continue;
      if (*count < room && out != nullptr) {
        pn_edge edge{};
        edge.struct_size = sizeof edge;
        edge.flags = PN_EDGE_COPY;
        edge.from = from;
        edge.to = to;
        const bool card =
            from / state().options.dies_per_card == to / state().options.dies_per_card;
        copy_text(edge.link, sizeof edge.link, card ? "on-card" : "pcie");
        pn_write(PN_AT(pn_edge, out, *count), &edge, sizeof edge);
      }
      ++*count;
    }
  }
  return room != 0 && out != nullptr && room < *count ? PN_INCOMPLETE : PN_OK;
}
const pn_topology_api kTopology = {sizeof kTopology, 0, edges};

pn_status connect(pn_device from, pn_device to, uint64_t* device_bytes, pn_error* err) {
  Call call("connect", from.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  *device_bytes = 0;
  for (const Die& die : state().dies) {
    if (die.handle == to.id && joined(call.die()->index, die.index)) return PN_OK;
  }
  return fail(err, PN_UNSUPPORTED, "peer.connect: the script joins no such pair");
}
const pn_peer_api kPeer = {sizeof kPeer, 0, connect};

// ---- telemetry, reset ---------------------------------------------------------------------------

pn_status health(pn_device device, uint32_t* out, char reason[128], pn_error* err) {
  Call call("health", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  const DieOptions& o = state().of(*call.die());
  *out = static_cast<uint32_t>(o.health);
  copy_text(reason, 128, o.health_reason);
  return PN_OK;
}

pn_status readings(pn_device device, uint32_t* count, pn_reading* out, pn_error* err) {
  Call call("readings", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  const uint32_t room = *count;
  *count = 1;
  if (room == 0 || out == nullptr) return PN_OK;
  pn_reading reading{};
  reading.struct_size = sizeof reading;
  copy_text(reading.name, sizeof reading.name, "steps");
  reading.value = static_cast<double>(call.die()->runs);
  pn_write(out, &reading, sizeof reading);
  return PN_OK;
}

pn_status occupants(uint32_t index, uint32_t* count, pn_occupant* out, pn_error* err) {
  Call call("occupants", index, kOfIndex);
  if (call.die() == nullptr) return host_broke(err, "occupants: no such die");
  const uint64_t bytes = external_bytes(*call.die());
  const uint32_t room = *count;
  *count = bytes != 0 ? 1 : 0;
  if (room == 0 || out == nullptr || bytes == 0) return PN_OK;
  pn_occupant occupant{};
  occupant.struct_size = sizeof occupant;
  occupant.pid = 1;
  occupant.bytes = bytes;
  copy_text(occupant.name, sizeof occupant.name, "somebody else");
  pn_write(out, &occupant, sizeof occupant);
  return PN_OK;
}
const pn_telemetry_api kTelemetry = {sizeof kTelemetry, 0, health, readings, occupants};

bool in_domain(const Die& die, uint32_t domain) {
  const Options& o = state().options;
  if (o.resets == 2) return domain == 0;
  return (o.resets == 0 ? die.index : die.index / o.dies_per_card) == domain;
}

pn_status reset_describe(uint32_t domain, pn_reset_info* out, pn_error* err) {
  Call call("reset_describe");
  pn_reset_info info{};
  info.struct_size = sizeof info;
  for (const Die& die : state().dies) {
    if (!in_domain(die, domain)) continue;
    const std::string& denied = state().of(die).reset;
    info.allowed = denied.empty() ? 1 : 0;
    copy_text(info.reason, sizeof info.reason, denied);
    pn_write(out, &info, sizeof info);
    return PN_OK;
  }
  return host_broke(err, "reset.describe: no die is in domain " + std::to_string(domain));
}

pn_status reset(uint32_t domain, uint64_t, pn_error* err) {
  Call call("reset");
  State& s = state();
  for (Die& die : s.dies) {
    if (!in_domain(die, domain)) continue;
    if (!s.of(die).reset.empty()) return fail(err, PN_FAILED, "reset: " + s.of(die).reset);
    if (die.handle != 0) return host_broke(err, "reset: a device of the domain is open");
  }
  for (Die& die : s.dies) {
    const bool cured = die.loss.recovery <= PN_RECOVER_RESET_DOMAIN;
    if (in_domain(die, domain) && cured) die.lost = false;
  }
  return PN_OK;
}

pn_status self_check(pn_device device, pn_error* err) {
  Call call("self_check", device.id, kOfDevice);
  const pn_status status = call.check(err);
  if (status != PN_OK) return status;
  const std::string& wrong = state().of(*call.die()).self_check;
  return wrong.empty() ? PN_OK : fail(err, PN_FAILED, wrong);
}
const pn_reset_api kReset = {sizeof kReset, 0, reset_describe, reset, self_check};

struct Named {
  const char* name;
  const void* table;
};
constexpr Named kNamed[] = {{"layout", &kLayout},       {"hostmem", &kHostmem},
                            {"sampler", &kSampler},     {"graph", &kGraph},
                            {"topology", &kTopology},   {"peer", &kPeer},
                            {"telemetry", &kTelemetry}, {"reset", &kReset}};

}  // namespace

const void* get_interface(const char* id) {
  if (id == nullptr) return nullptr;
  if (std::strcmp(id, CHAOS_CONTROL) == 0) return control_table();
  for (const Named& named : kNamed) {
    if (std::string("pantheon.") + named.name + "/1" != id) continue;
    return state().options.lacks(named.name) ? nullptr : named.table;
  }
  return nullptr;
}

}  // namespace chaos
