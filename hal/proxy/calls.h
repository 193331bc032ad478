// SPDX-License-Identifier: Apache-2.0
//
// What the server and a backend host say to each other: call numbers, how long a call may take, the
// handles' form, and the board that the backend host keeps for whoever only looks.
//
// Owns no code. Both programs are built from this file and check kProtocol before anything else.
#pragma once

#include <pantheon/device.h>

#include <atomic>
#include <cstdint>

namespace pn::proxy {

inline constexpr uint32_t kProtocol = 1;

enum class Call : uint32_t {
  hello,
  devices,
  device_open,
  device_close,
  heaps,
  buffer_create,
  buffer_destroy,
  program_query,
  program_create,
  program_status,
  program_destroy,
  queue_create,
  queue_destroy,
  layout_rank,
  layout_sizes,
  layout_convert,
  layout_decode,
  layout_targets,
  hostmem_import,
  sampler_describe,
  graph_describe,
  topology_edges,
  peer_connect,
  telemetry_health,
  telemetry_readings,
  telemetry_occupants,
  reset_describe,
  reset_reset,
  reset_self_check,
  load_file,
  load_close,
  load_place,
  shutdown,
  count,
};

// Milliseconds until a call that has not returned counts as hung. [load] starts drivers; [control]
// is the driver's allocation; [poll] does not block at all.
inline constexpr uint32_t kLoadMs = 120'000;
inline constexpr uint32_t kControlMs = 60'000;
inline constexpr uint32_t kPollMs = 15'000;
// The heartbeat, and how long it may be missed: a stopped machine is no hang.
inline constexpr uint32_t kBeatMs = 200;
inline constexpr uint32_t kSilenceMs = 15'000;

// Which interfaces the plugin has, as bits of the hello's answer.
enum Interface : uint64_t {
  kLayout = 1,
  kHostmem = 2,
  kSampler = 4,
  kGraph = 8,
  kTopology = 16,
  kPeer = 32,
  kTelemetry = 64,
  kReset = 128,
};

// Handles are the proxy's own: the generation of the backend host above, a number below. So one
// of a process that died is told from one of the process that took its place.
inline uint64_t make_id(uint32_t generation, uint32_t number) {
  return (uint64_t{generation} << 32) | number;
}
inline uint32_t generation_of(uint64_t id) { return static_cast<uint32_t>(id >> 32); }

inline constexpr uint32_t kBoardDevices = 64;

// Written by the backend host every kBeatMs and after calls that change memory. A slot is read
// again when its sequence was odd or has moved.
struct BoardSlot {
  alignas(64) std::atomic<uint32_t> sequence;
  int32_t status;  // of memory_status
  pn_memory_status memory;
  pn_error error;
};
struct Board {
  alignas(64) std::atomic<uint64_t> beat;
  BoardSlot slots[kBoardDevices];
};

}  // namespace pn::proxy
