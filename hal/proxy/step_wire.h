// SPDX-License-Identifier: Apache-2.0
//
// A submit as one flat record, and back.
//
// Owns the layout of a record. Knows the ABI's submit, commands and steps; knows no handle's
// meaning. The one idea: pieces lie one after the other in a fixed order, 8 bytes aligned, so
// unpacking only writes pointers, and the record itself is what the plugin reads.
#pragma once

#include <pantheon/hal.h>

#include <cstddef>
#include <cstdint>

namespace pn::proxy {

// Bytes of the record; 0 when a struct says something that this build does not know: *unknown names
// it. Reads every count and no list.
uint64_t record_bytes(const pn_submit& submit, const char** unknown);

// `to` has record_bytes() and is aligned to 64.
void write_record(const pn_submit& submit, std::byte* to);

// The submit at `at`, its pointers set to what follows it in the record.
pn_submit* open_record(std::byte* at);

}  // namespace pn::proxy
