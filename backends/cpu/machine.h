// SPDX-License-Identifier: Apache-2.0
//
// What Linux says about this machine: cores, NUMA nodes, memory.
//
// Owns the reading of /proc, /sys and the cgroup; knows no die and no plan. Everything is read with
// plain system calls, so the polled part (available_bytes) neither allocates nor blocks.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pn::cpu {

struct NumaNode {
  int32_t id = -1;         // -1: the machine does not say
  std::vector<int> cores;  // one hardware thread of each physical core this process may use
  std::vector<int> cpus;   // all hardware threads of it that this process may use
  uint64_t total_bytes = 0;
};

struct Machine {
  std::string model;            // of the CPU
  std::vector<NumaNode> nodes;  // at least one; nodes without an allowed core are left out
};

Machine read_machine();

// All nodes as one.
NumaNode whole_machine(const Machine& machine);

struct HostMemory {
  uint64_t total = 0;      // of the machine, or the cgroup's limit when that is lower
  uint64_t available = 0;  // without swapping
  uint64_t own_anon = 0;   // anonymous bytes of this process that are resident
};
// About 30 us (two small files of /proc, and the cgroup's two).
HostMemory read_host_memory();

}  // namespace pn::cpu
