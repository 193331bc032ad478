/* SPDX-License-Identifier: MIT
 *
 * pantheon.telemetry/1
 */
#ifndef PANTHEON_TELEMETRY_H
#define PANTHEON_TELEMETRY_H

#include <pantheon/device.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PN_HEALTH_OK, PN_HEALTH_DEGRADED, PN_HEALTH_FAILING };
typedef struct pn_reading { /* by name: temperature_c, power_w, clock_mhz, ecc_uncorrected ... */
  uint32_t struct_size, reserved;
  char     name[40];
  double   value;          /* NaN unknown */
} pn_reading; PN_PIN(pn_reading, 56);
typedef struct pn_occupant {
  uint32_t struct_size;
  uint32_t pid;
  uint64_t bytes;
  char     name[48];
} pn_occupant; PN_PIN(pn_occupant, 64);
typedef struct pn_telemetry_api {
  uint32_t struct_size, reserved;
  pn_status (*health)(pn_device, uint32_t *health, char reason[128], pn_error *); /* [poll] */
  pn_status (*readings)(pn_device, uint32_t *count, pn_reading *, pn_error *); /* [control] */
  pn_status (*occupants)(uint32_t index, uint32_t *count, pn_occupant *, pn_error *); /* [load] */
} pn_telemetry_api; PN_PIN(pn_telemetry_api, 32);

#ifdef __cplusplus
}
#endif
#endif
