/* SPDX-License-Identifier: MIT
 *
 * Dies, their heaps, and how much memory is free.
 */
#ifndef PANTHEON_DEVICE_H
#define PANTHEON_DEVICE_H

#include <pantheon/core.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_STATE_READY  0u
#define PN_STATE_IN_USE 1u /* opened exclusively by another process; reason names it */
#define PN_STATE_LOST   2u
#define PN_STATE_ABSENT 3u /* seen on the bus, but no driver */
#define PN_NONE 0xffffffffu
typedef struct pn_device_info {
  uint32_t struct_size;
  uint32_t state;
  char     uid[64];          /* stable over restarts: a UUID, or a bus address */
  char     name[64];
  char     reason[128];      /* why state is not READY */
  uint8_t  card_uid[16];     /* equal for the dies of one card */
  uint32_t die_index;
  uint32_t dies_on_card;
  uint32_t host_link_group;  /* dies that share one uplink to the host */
  uint32_t reset_domain;     /* dies that a reset takes down together */
  uint32_t pci_domain;       /* PN_NONE when not on PCI */
  uint32_t pci_bdf;
  int32_t  numa_node;        /* -1 unknown */
  uint32_t lost_settle_ms;   /* bound from a fault until every queue in scope says so */
  uint64_t layout_target;    /* chip facts that decide bytes (tile grid, live cores); see layout */
  uint64_t context_bytes;    /* device memory gone once opened, before any buffer */
} pn_device_info; PN_PIN(pn_device_info, 328);

#define PN_HEAP_DEVICE       0u /* the die's own memory */
#define PN_HEAP_HOST_PINNED  1u /* host memory for copies and results */
#define PN_HEAP_HOST_MAPPED  2u /* host memory that kernels also read in place: residence */

#define PN_HEAP_HOST_VISIBLE  1u /* buffer_create gives a host address */
#define PN_HEAP_HOST_CACHED   2u /* fast to read there; without it write in order and read little */
#define PN_HEAP_BINDS         4u /* programs can read it in place: weights, masks, biases */
#define PN_HEAP_RESULTS       8u /* rows of a run can go there; at least one heap has this */
typedef struct pn_heap_info { /* its place in the list is the heap's number */
  uint32_t struct_size;
  uint32_t kind;
  uint32_t flags;
  uint32_t alignment;        /* of slices in a buffer, bytes */
  uint32_t copy_alignment;   /* of offsets and sizes in PN_CMD_COPY, bytes */
  uint32_t reserved;
  uint64_t granule;          /* a buffer takes whole granules of the heap, bytes */
  uint64_t bytes_max;        /* one buffer */
  uint64_t total;
  uint64_t read_bytes_per_s; /* by kernels; 0 unknown */
  uint64_t write_bytes_per_s;/* by copies from the host */
} pn_heap_info; PN_PIN(pn_heap_info, 64);

typedef struct pn_memory_status {
  uint32_t struct_size;
  uint32_t quality;          /* 0 unknown, 1 estimate, 2 exact */
  uint64_t total;
  uint64_t free_now;
  uint64_t used_by_us;
  uint64_t used_by_others;
  uint64_t reclaim_pending;  /* destroyed by us, not yet given back by the driver */
  uint64_t sampled_at_ns;    /* the host's now_ns */
} pn_memory_status; PN_PIN(pn_memory_status, 56);

#ifdef __cplusplus
}
#endif
#endif
