/* SPDX-License-Identifier: MIT
 *
 * pantheon.reset/1
 */
#ifndef PANTHEON_RESET_H
#define PANTHEON_RESET_H

#include <pantheon/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pn_reset_info {
  uint32_t struct_size;
  uint32_t allowed;        /* 0: reason says what is missing */
  uint64_t expected_ms;
  char     reason[112];
} pn_reset_info; PN_PIN(pn_reset_info, 128);
typedef struct pn_reset_api {
  uint32_t struct_size, reserved;
  /* [control] Whether a reset of the domain is allowed to this user, and how long it takes. */
  pn_status (*describe)(uint32_t reset_domain, pn_reset_info *, pn_error *);
  /* [control] Blocks up to timeout_ns; every device of the domain is closed before. Fails:
   * PN_FAILED, and the domain stays lost. */
  pn_status (*reset)(uint32_t reset_domain, uint64_t timeout_ns, pn_error *);
  /* [control] Known inputs against stored answers, after open and after a suspect result. Fails:
   * PN_FAILED names the unit that answered wrong. Cost: under a second. */
  pn_status (*self_check)(pn_device, pn_error *);
} pn_reset_api; PN_PIN(pn_reset_api, 32);

#ifdef __cplusplus
}
#endif
#endif
