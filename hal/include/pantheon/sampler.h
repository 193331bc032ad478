/* SPDX-License-Identifier: MIT
 *
 * pantheon.sampler/1: what EMIT can do. Without it: logits and hidden only
 */
#ifndef PANTHEON_SAMPLER_H
#define PANTHEON_SAMPLER_H

#include <pantheon/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is asked for and not offered is PN_INVALID, never left out. */
#define PN_SAMPLES_GREEDY      1u
#define PN_SAMPLES_TEMPERATURE 2u /* with seed, top_k, top_p, min_p, as pn_lane defines them */
#define PN_SAMPLES_PENALTIES   4u
#define PN_SAMPLES_BIAS        8u
#define PN_SAMPLES_MASK_BITS  16u
#define PN_SAMPLES_MASK_LIST  32u
#define PN_SAMPLES_HOLD       64u
typedef struct pn_sampler_info {
  uint32_t struct_size;
  uint32_t features;
  uint32_t top_max;        /* candidates a row */
  uint32_t history_max;    /* tokens of penalty history a lane */
} pn_sampler_info; PN_PIN(pn_sampler_info, 16);
typedef struct pn_sampler_api {
  uint32_t struct_size, reserved;
  /* [load] Fixed while the device is open. */
  pn_status (*describe)(pn_device, pn_sampler_info *, pn_error *);
} pn_sampler_api; PN_PIN(pn_sampler_api, 16);

#ifdef __cplusplus
}
#endif
#endif
