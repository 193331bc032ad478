/* SPDX-License-Identifier: MIT
 *
 * pantheon.graph/1: how a shape of a program is launched, and why
 */
#ifndef PANTHEON_GRAPH_H
#define PANTHEON_GRAPH_H

#include <pantheon/program.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_LAUNCH_EACH     0u /* one by one */
#define PN_LAUNCH_CAPTURED 1u /* a recorded graph; steps reach it as data at a fixed address */
#define PN_LAUNCH_RESIDENT 2u /* kernels stay on the die and take descriptors */
typedef struct pn_launch_info {
  uint32_t struct_size;
  uint32_t mode;
  uint32_t nodes;
  uint32_t host_calls;     /* a run */
  uint64_t device_bytes;   /* counted in program_bytes */
  char     reason[104];    /* why not a better mode */
} pn_launch_info; PN_PIN(pn_launch_info, 128);
typedef struct pn_graph_api {
  uint32_t struct_size, reserved;
  /* [control] Of a READY program. Fails: PN_INVALID for a shape that the plan has not. */
  pn_status (*describe)(pn_program, uint32_t shape, pn_launch_info *, pn_error *);
} pn_graph_api; PN_PIN(pn_graph_api, 16);

#ifdef __cplusplus
}
#endif
#endif
