// SPDX-License-Identifier: Apache-2.0
//
// Everything the plugin holds while it is loaded, in one place.
//
// Owns the tables of live objects. Knows none of their insides. Made at entry, emptied at shutdown;
// no object has a static destructor that could run after the host has gone.
#pragma once

#include <pantheon/plugin.h>

#include <mutex>

#include "backends/cpu/device.h"
#include "backends/cpu/handles.h"
#include "backends/cpu/kernels/vector.h"
#include "backends/cpu/program.h"
#include "backends/cpu/queue.h"

namespace pn::cpu {

struct State {
  pn_host host = {};  // as of today, absent fields zero
  Options options;
  Machine machine;
  std::vector<DieSpec> specs;  // one a die, in devices() order
  HandleTable<Die, 0xd1, kDiesMax> dies;
  HandleTable<Buffer, 0xb0, 16384> buffers;
  HandleTable<Program, 0x90, 1024> programs;
  HandleTable<Queue, 0x40, 1024> queues;
  std::mutex open_mutex;  // device_open and the making of executors
  uint32_t thread_names = 0;

  const MatmulKernels& matmul() const;
  const VectorKernels& vectors() const;
};

State* state();
pn_status start_state(const pn_host& host, pn_error* err);
void stop_state();
uint64_t now_ns();
// One line to the host's log.
__attribute__((format(printf, 2, 3))) void log_line(uint32_t level, const char* format, ...);

}  // namespace pn::cpu
