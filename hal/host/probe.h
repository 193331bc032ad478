// SPDX-License-Identifier: Apache-2.0
//
// The first load of a plugin file, in a child process.
//
// Owns the child, its time limit, and the cache of results keyed by build id. Knows no search
// order. The one idea: whatever a constructor or an entry does (crash, hang, exit), it does it to
// the child, and the child's last mark tells how far it came.
#pragma once

#include <cstdint>
#include <string>

#include "hal/host/note.h"
#include "hal/host/result.h"

namespace pn::hal {

// Loads `path` in a forked child, finds the entry, negotiates without options, exits.
Result<void> probe_now(const std::string& path, uint32_t timeout_ms);

// The same, but asks the cache first: passes are kept, crashes and hangs for a day, so that a bad
// file does not cost its timeout at each start. An empty cache_dir probes each time.
Result<void> probe_cached(const std::string& path, const Note& note, const std::string& cache_dir,
                          uint32_t timeout_ms);

}  // namespace pn::hal
