// SPDX-License-Identifier: Apache-2.0
//
// Handles are numbers of distinct types.
// expect: (could not convert|no matching|cannot convert|no viable)
#include <pantheon/hal.h>

void caller(const pn_plugin& table, pn_program program, pn_buffer buffer) {
#ifdef PN_ALLOWED
  table.program_destroy(program);
  table.buffer_destroy(buffer);
#else
  table.program_destroy(buffer);
#endif
}
