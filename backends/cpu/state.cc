// SPDX-License-Identifier: Apache-2.0
//
// Makes and empties the plugin's state. See state.h.
#include "backends/cpu/state.h"

#include <time.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "backends/cpu/error.h"

namespace pn::cpu {
namespace {

State* g_state = nullptr;

}  // namespace

State* state() { return g_state; }

pn_status start_state(const pn_host& host, pn_error* err) {
  auto made = std::make_unique<State>();
  made->host = host;
  const pn_status status = parse_options(host.config, host.config_count, &made->options, err);
  if (status != PN_OK) return status;
  made->machine = read_machine();
  made->specs = plan_dies(made->machine, made->options);
  g_state = made.release();
  return PN_OK;
}

void stop_state() {
  if (g_state == nullptr) return;
  // Queues end first, so that nothing runs; dies last, since buffers count in them.
  std::vector<pn_queue> queues;
  g_state->queues.each([&](const Queue& queue) { queues.push_back(queue.handle); });
  for (pn_queue queue : queues) queue_destroy(queue);
  g_state->programs.clear();
  g_state->buffers.clear();
  g_state->dies.clear();
  delete g_state;
  g_state = nullptr;
}

const MatmulKernels& State::matmul() const {
  return options.numerics == Numerics::reference ? reference_matmul() : matmul_kernels(options.isa);
}

const VectorKernels& State::vectors() const {
  return options.numerics == Numerics::reference ? reference_vectors()
                                                 : vector_kernels(options.isa);
}

uint64_t now_ns() {
  const State* all = state();
  if (all != nullptr && all->host.now_ns != nullptr) return all->host.now_ns(all->host.self);
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void log_line(uint32_t level, const char* format, ...) {
  const State* all = state();
  if (all == nullptr || all->host.log == nullptr) return;
  char text[256];
  va_list args;
  va_start(args, format);
  const int length = vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  if (length > 0)
    all->host.log(all->host.self, level, text,
                  std::min<uint64_t>(static_cast<uint64_t>(length), sizeof(text) - 1));
}

}  // namespace pn::cpu
