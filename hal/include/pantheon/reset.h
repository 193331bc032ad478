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
  pn_status (*describe)(uint32_t reset_domain, pn_reset_info *, pn_error *);   /* [control] */
  /* [control] Blocks; every device of the domain is closed. Retires work by asking first. */
  pn_status (*reset)(uint32_t reset_domain, uint64_t timeout_ns, pn_error *);
  /* [control] Known inputs against stored answers, after open and after a suspect result. */
  pn_status (*self_check)(pn_device, pn_error *);
} pn_reset_api; PN_PIN(pn_reset_api, 32);

#ifdef __cplusplus
}
#endif
#endif
