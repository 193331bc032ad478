// SPDX-License-Identifier: Apache-2.0
//
// A plugin inside the test binary: both C tables over plain memory, with scripted tokens.
//
// Owns its heaps, queues and the page tables of its programs. Computes no model: the id of a row is
// a hash of every token that the row can see through its lane's page table, so one wrong page,
// position, fed id or reused prefix changes the text. The one idea: time and failure are knobs, so
// that every race of a scheduler can be set up by hand.
//
// One instance a process, since C tables carry no context. Thread-safe.
#pragma once

#include <pantheon/hal.h>
#include <pantheon/layout.h>
#include <pantheon/sampler.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace pn::test {

class FakePlugin {
 public:
  static FakePlugin& instance();
  static const pn_plugin* table();
  // The entry, for hal::Plugin::from_entry.
  static pn_status entry(const pn_host* host, const pn_plugin** out, pn_error* error);

  void reset();  // forgets everything: objects, knobs, counters

  struct Knobs {
    uint64_t step_ns = 0;  // a step completes this long after it started; 0 at once
    bool by_hand = false;  // steps complete only through complete()
    uint64_t fail_at = 0;  // the step of this number fails its queue; 0 none
    uint64_t lose_at = 0;  // the step of this number loses the die
    bool lost = false;     // the die is gone, also for memory_status
    uint64_t nan_at = 0;   // every row of the step of this number has no id
    uint32_t vocab = 97;
    bool device_visible = true;  // buffers of the device heap have a host address
    bool tied = true;            // layouts for PN_ROLE_TIED
    bool lossy_only = false;     // the only layout of matrices loses too much
    bool convert_hangs = false;  // convert() waits until this is false again
    uint64_t memory_free = 1ull << 32;
    uint64_t step_bytes_max = 0;
    std::string unsupported;  // reason of a span that cannot run; empty: all can
    uint32_t features = 0xffffffffu;
    uint32_t numerics = PN_NUMERICS_BATCH_INVARIANT | PN_NUMERICS_CHUNK_INVARIANT;
    std::function<int32_t(std::span<const int32_t> seen)> script;  // id of a row; empty: a hash
  };
  void set(const std::function<void(Knobs&)>& change);
  void complete(uint64_t steps);  // with by_hand: allows this many more

  struct Counters {
    uint64_t steps = 0;  // submitted
    uint64_t executed = 0;
    uint64_t most_tokens = 0;  // of one step
    uint64_t most_entries = 0;
    uint64_t most_queued = 0;    // steps not executed at any time
    uint64_t prompt_tokens = 0;  // given, not fed
    uint64_t converted = 0;      // bytes out of convert()
    uint64_t copies = 0;
    std::vector<std::string> broken;  // rules of the HAL that the host broke
  };
  Counters counters() const;

  // Bytes that are bound to a weight of the program made last.
  std::vector<std::byte> weight_bytes(uint32_t weight) const;
  // Slices bound to weights of it, in order.
  std::vector<pn_slice> weight_slices() const;

  struct Pending;
  struct State;
  State& state() { return *state_; }
  std::recursive_mutex& mutex() { return mutex_; }

 private:
  FakePlugin();
  ~FakePlugin();
  mutable std::recursive_mutex mutex_;
  std::unique_ptr<State> state_;
};

// What the fake plugin draws after these tokens.
int32_t fake_next(std::span<const int32_t> seen, uint32_t vocab);

}  // namespace pn::test
