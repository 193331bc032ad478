// SPDX-License-Identifier: Apache-2.0
//
// A submit may be refused because the queue is full: not looking loses the step.
// expect: (unused-result|nodiscard)
#include "hal/host/hal.h"

bool caller(const pn::hal::Queue& queue, const pn_submit& submit) {
#ifdef PN_ALLOWED
  return queue.submit(submit).value_or(false);
#else
  queue.submit(submit);
  return true;
#endif
}
