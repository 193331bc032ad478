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

#define PN_HEALTH_OK       0u
#define PN_HEALTH_DEGRADED 1u
#define PN_HEALTH_FAILING  2u
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
  /* [poll] reason says why it is not OK. Cost: at most 50 us; may be cached. */
  pn_status (*health)(pn_device, uint32_t *health, char reason[128], pn_error *);
  /* [control] What the die has sensors for; no reading is required. Cost: milliseconds. */
  pn_status (*readings)(pn_device, uint32_t *count, pn_reading *, pn_error *);
  /* [load] Who else holds memory of devices()[index]; works without opening it. */
  pn_status (*occupants)(uint32_t index, uint32_t *count, pn_occupant *, pn_error *);
} pn_telemetry_api; PN_PIN(pn_telemetry_api, 32);

#ifdef __cplusplus
}
#endif
#endif
