// SPDX-License-Identifier: Apache-2.0
//
// A Result that nobody looks at is a lost error. expect: (unused-result|nodiscard)
#include "hal/host/result.h"

pn::Result<int> read_number();

void caller() {
#ifdef PN_ALLOWED
  auto seen = read_number();
  static_cast<void>(seen);
#else
  read_number();
#endif
}
