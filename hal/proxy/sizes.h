// SPDX-License-Identifier: Apache-2.0
//
// How many bytes stand behind the bare pointers of pantheon.layout/1, for sending them along.
#pragma once

#include <pantheon/layout.h>

#include <cstdint>

namespace pn::proxy {

// Of the whole tensor as a file has it; 0: its type is not known here.
uint64_t source_bytes(const pn_weight& weight);

// Floats that decoding tiles [first, first + count) writes.
uint64_t decoded_floats(const pn_weight& weight, uint64_t tile_count, uint64_t first,
                        uint64_t count);

}  // namespace pn::proxy
