// SPDX-License-Identifier: Apache-2.0
//
// Copies between a plugin's own host buffers and the shared memory that the server sees.
//
// Owns nothing. Knows which slices of a submit are read and which are written. The one idea: only
// slices that a submit names are copied, in before it runs and out when it is complete; a slice
// that an earlier submit is still to write is left to the plugin.
#pragma once

#include <vector>

#include "hal/proxy/objects.h"

namespace pn::proxy {

struct MirrorSlice {  // the buffer lives as long as a queued submit names it
  std::shared_ptr<HostBuffer> buffer;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct MirrorWork {
  std::vector<MirrorSlice> in, out;
};

// Of a submit that still has the server's handles.
MirrorWork mirrored_slices(const Objects& objects, const pn_submit& submit);
void copy_in(const MirrorSlice& slice);
void copy_out(const MirrorSlice& slice);
bool overlap(const MirrorSlice& a, const MirrorSlice& b);

}  // namespace pn::proxy
