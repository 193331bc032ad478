// SPDX-License-Identifier: Apache-2.0
//
// The profile's options for this plugin, as values.
//
// Owns their names, forms and defaults; knows nothing of the machine. An unknown key or a value out
// of its form is refused by name together with what would work: an option is never left out.
#pragma once

#include <pantheon/core.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cpu/kernels/matmul.h"

namespace pn::cpu {

enum class Numerics { fast, reference };

struct Options {
  Isa isa = Isa::baseline;
  bool isa_auto = true;
  uint32_t threads = 0;  // of each die; 0: the cores it may use
  Numerics numerics = Numerics::fast;
  bool pin = false;            // each thread to one core
  bool numa = true;            // one die a NUMA node; false: one die over all nodes
  std::vector<uint64_t> dies;  // byte cap of each, 0 none; empty: one a NUMA node
};

inline constexpr uint32_t kThreadsMax = 256;
inline constexpr uint32_t kDiesMax = 64;

pn_status parse_options(const pn_pair* pairs, uint32_t count, Options* out, pn_error* err);

// "512MiB", "2GiB", "4096": bytes; false when it is not that.
bool parse_bytes(const std::string& text, uint64_t* out);

}  // namespace pn::cpu
