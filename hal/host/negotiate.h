// SPDX-License-Identifier: Apache-2.0
//
// From an entry function to a table that can be called without a look.
//
// Owns the version check at entry, the list of required slots, and the stubs. Knows no files. The
// one idea: a table shorter than ours is completed, never trusted; a required slot that is null is
// refused by name before anything else is called.
#pragma once

#include <pantheon/graph.h>
#include <pantheon/hal.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/reset.h>
#include <pantheon/sampler.h>
#include <pantheon/telemetry.h>
#include <pantheon/topology.h>

#include <string>

#include "hal/host/result.h"

namespace pn::hal {

// Calls the entry. Errors begin with `path` and name both sides' numbers, or the slot.
Result<pn_plugin> negotiate(pn_entry_fn entry, const pn_host* host, const std::string& path);

// Copies what `given` (a struct that starts with struct_size) has, and fills the rest with stubs.
void complete(const void* given, pn_layout_api* out);
void complete(const void* given, pn_hostmem_api* out);
void complete(const void* given, pn_sampler_api* out);
void complete(const void* given, pn_graph_api* out);
void complete(const void* given, pn_topology_api* out);
void complete(const void* given, pn_peer_api* out);
void complete(const void* given, pn_telemetry_api* out);
void complete(const void* given, pn_reset_api* out);

}  // namespace pn::hal
