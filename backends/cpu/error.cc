// SPDX-License-Identifier: Apache-2.0
//
// Fills a caller-owned pn_error of any known size. Knows nothing of what failed.
#include "backends/cpu/error.h"

#include <cstdarg>
#include <cstdio>

namespace pn::cpu {
namespace {

uint32_t recovery_of(pn_status code) {
  switch (code) {
    case PN_OUT_OF_MEMORY:
      return PN_RECOVER_RETRY_LATER;
    case PN_DEVICE_LOST:
      return PN_RECOVER_REOPEN_DEVICE;
    case PN_FAILED:
      return PN_RECOVER_OPERATOR;
    default:
      return PN_RECOVER_NONE;
  }
}

}  // namespace

pn_status fail(pn_error* err, pn_status code, const char* format, ...) {
  if (err == nullptr) return code;
  pn_error full = {};
  full.struct_size = sizeof(full);
  full.code = code;
  full.scope = PN_SCOPE_CALL;
  full.recovery = recovery_of(code);
  va_list args;
  va_start(args, format);
  vsnprintf(full.message, sizeof(full.message), format, args);
  va_end(args);
  pn_write(err, &full, sizeof(full));
  return code;
}

}  // namespace pn::cpu
