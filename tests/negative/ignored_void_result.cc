// SPDX-License-Identifier: Apache-2.0
//
// Also when there is no value to lose. expect: (unused-result|nodiscard)
#include "hal/host/result.h"

pn::Result<void> store();

pn::Result<void> caller() {
#ifdef PN_ALLOWED
  PN_TRY(store());
#else
  store();
#endif
  return {};
}
