/* SPDX-License-Identifier: MIT
 *
 * pantheon.layout/1: the bytes of a weight. All [pure]
 * A converted weight is tile_count tiles of exactly tile_bytes, in order, each made from whole
 * source rows; an expert stack has an equal number of tiles an expert, expert after expert. So a
 * range of tiles is a range of bytes: it converts in any thread, uploads by COPY, and splits
 * between heaps.
 */
#ifndef PANTHEON_LAYOUT_H
#define PANTHEON_LAYOUT_H

#include <pantheon/device.h>
#include <pantheon/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_LOSS_NONE    0u
#define PN_LOSS_BOUNDED 1u /* within nmse_bound */
#define PN_LOSS_LOSSY   2u /* only when the profile allows it */
typedef struct pn_layout_choice {
  uint32_t struct_size;
  uint32_t loss;
  uint64_t layout;
  char     name[64];        /* gguf.q4_K/1, tt.tile32.bfp8_b.nmajor/1 */
  uint64_t tile_count;
  uint64_t tile_bytes;
  uint32_t alignment;       /* of the first byte */
  uint32_t flags; /* 1: identical to the source's bytes: bind an imported mapping in place */
  double   nmse_bound;
  double   speed;           /* relative to the first choice; 0 unknown */
  uint8_t  fingerprint[32]; /* equal: the bytes may be copied; a stored file carries it */
} pn_layout_choice; PN_PIN(pn_layout_choice, 152);
typedef struct pn_layout_api {
  uint32_t struct_size, reserved;
  /* [pure] Looks at role, source_type, shape. target: pn_device_info.layout_target, or one of
   * targets(). Best first. A layout does not depend on the heap: where a matrix lives changes no
   * value. Fails: PN_UNSUPPORTED names the type or shape. Cost: microseconds. */
  pn_status (*rank)(const pn_weight *, uint64_t target, uint32_t *count, pn_layout_choice *,
                    pn_error *);
  /* [pure] source: the whole tensor; out: the first byte of tile first. Tiles first .. first+count
   * only are written. Fails: PN_INVALID past tile_count. Cost: about that of a copy; allocates
   * nothing. */
  pn_status (*convert)(const pn_weight *, uint64_t target, uint64_t layout, const void *source,
                       void *out, uint64_t first, uint64_t count, pn_error *);
  /* [pure] in: the first byte of tile first; out: F32, the source rows of those tiles. For tests
   * and for conversion between plugins. */
  pn_status (*decode)(const pn_weight *, uint64_t target, uint64_t layout, const void *in,
                      float *out, uint64_t first, uint64_t count, pn_error *);
  /* [pure] Chips that can be converted for with no card present; pair value is the target in
   * decimal. The texts live as long as the process. */
  pn_status (*targets)(uint32_t *count, pn_pair *, pn_error *);
} pn_layout_api; PN_PIN(pn_layout_api, 40);

#ifdef __cplusplus
}
#endif
#endif
