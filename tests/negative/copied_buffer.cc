// SPDX-License-Identifier: Apache-2.0
//
// Two owners would destroy one buffer twice. expect: (use of deleted function|implicitly-deleted)
#include <utility>

#include "hal/host/hal.h"

pn::hal::Buffer caller(pn::hal::Buffer& buffer) {
#ifdef PN_ALLOWED
  return std::move(buffer);
#else
  return buffer;
#endif
}
