/* SPDX-License-Identifier: MIT
 *
 * pantheon.hostmem/1: memory already there: a mapped file, another plugin's buffer
 */
#ifndef PANTHEON_HOSTMEM_H
#define PANTHEON_HOSTMEM_H

#include <pantheon/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pn_import {
  uint32_t struct_size;
  int32_t  fd;             /* -1 none. A remote plugin needs one and maps the range itself */
  uint64_t fd_offset;
  void    *address;        /* mapped by the host; outlives the buffer */
  uint64_t bytes;
  uint32_t access;         /* 1 read, 2 write */
  uint32_t use;            /* PN_HEAP_BINDS, PN_HEAP_RESULTS, or 0: copies only */
} pn_import; PN_PIN(pn_import, 40);
typedef struct pn_hostmem_api {
  uint32_t struct_size;
  uint32_t alignment;      /* of address and bytes */
  /* [control] The range stays mapped until buffer_destroy. Refusal (PN_UNSUPPORTED,
   * PN_OUT_OF_MEMORY) is ordinary: the loader copies instead. Cost: registers pages; seconds for
   * many GiB. */
  pn_status (*import)(pn_device, const pn_import *, pn_buffer *out, pn_error *);
} pn_hostmem_api; PN_PIN(pn_hostmem_api, 16);

#ifdef __cplusplus
}
#endif
#endif
