// SPDX-License-Identifier: Apache-2.0
//
// Dies: what this machine offers, and one opened.
//
// Owns a die's facts, its threads and its accounting. Knows no programs. The one idea: a die is a
// NUMA node (or a part of one that the profile asks for), so that placement over several dies works
// the same here as on accelerators.
#pragma once

#include <pantheon/device.h>

#include <memory>

#include "backends/cpu/machine.h"
#include "backends/cpu/memory.h"
#include "backends/cpu/options.h"

namespace pn::cpu {

class Executor;
struct Program;

// What the options and the machine make of a die, before it is opened.
struct DieSpec {
  NumaNode node;
  uint64_t cap_bytes = 0;  // of the DEVICE heap; 0 none
  uint32_t threads = 1;
};

struct Die {
  Die() = default;
  ~Die();
  uint32_t index = 0;
  NumaNode node;
  uint64_t cap_bytes = 0;
  uint32_t threads = 1;
  pn_device handle = {};
  HeapUse use;
  std::unique_ptr<Executor> runs;       // RUN queues
  std::unique_ptr<Executor> transfers;  // TRANSFER queues; made with the first of them
};

std::vector<DieSpec> plan_dies(const Machine& machine, const Options& options);

pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err);
pn_status device_open(uint32_t index, pn_device* out, pn_error* err);
void device_close(pn_device device);
Die* find_die(pn_device device, pn_error* err);

}  // namespace pn::cpu
