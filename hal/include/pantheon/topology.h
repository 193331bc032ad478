/* SPDX-License-Identifier: MIT
 *
 * pantheon.topology/1, pantheon.peer/1: directed edges between dies of this plugin
 * Card facts are in pn_device_info; edges between plugins the host works out from bus addresses.
 */
#ifndef PANTHEON_TOPOLOGY_H
#define PANTHEON_TOPOLOGY_H

#include <pantheon/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_EDGE_COPY     1u /* COPY works between their buffers, once connected */
#define PN_EDGE_VIA_HOST 2u /* the driver stages it: it costs the host link twice */
#define PN_EDGE_BINDS    4u /* kernels of from may read bound slices of to */
typedef struct pn_edge {
  uint32_t struct_size;
  uint32_t flags;
  uint32_t from;           /* the die whose queue does it; indices into devices() */
  uint32_t to;
  uint64_t bytes_per_s;    /* 0 unknown */
  uint64_t latency_ns;
  char     link[16];       /* on-card, nvlink, pcie, ethernet */
} pn_edge; PN_PIN(pn_edge, 48);
typedef struct pn_topology_api {
  uint32_t struct_size, reserved;
  /* [load] Fixed for the life of the process. */
  pn_status (*edges)(uint32_t *count, pn_edge *, pn_error *);
} pn_topology_api; PN_PIN(pn_topology_api, 16);
typedef struct pn_peer_api {
  uint32_t struct_size, reserved;
  /* [control] device_bytes: what the mapping takes of each die. Undone by closing either device.
   * Fails: PN_UNSUPPORTED when the driver refuses the pair. */
  pn_status (*connect)(pn_device from, pn_device to, uint64_t *device_bytes, pn_error *);
} pn_peer_api; PN_PIN(pn_peer_api, 16);

#ifdef __cplusplus
}
#endif
#endif
