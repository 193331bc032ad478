// SPDX-License-Identifier: Apache-2.0
//
// pantheon.layout/1 of this plugin: which bytes a weight is kept in.
//
// Owns the layouts' numbers and names. The bytes themselves are kernels/matmul.h's.
#pragma once

#include <pantheon/layout.h>

namespace pn::cpu {

// The tiled layout of a source type; 0 when the type is not one of ours.
uint64_t tiled_layout(uint32_t type);
const char* type_name(uint32_t type);  // "q4_K"; "type 99" is not named: nullptr
int64_t block_columns(uint32_t type);  // columns a row must be a multiple of

const pn_layout_api* layout_api();

}  // namespace pn::cpu
