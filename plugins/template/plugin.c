/* SPDX-License-Identifier: MIT
 *
 * backend_template: who it is, its die, its memory, its table of kernels.
 *
 * The die is pretended: its memory is the host's and its kernels are plain C. Replace what stands
 * between the lines "yours from here" and "to here" in each file, one function at a time; what
 * stays keeps working meanwhile.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include <errno.h>
#include <pantheon/note.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "die.h"

#ifndef NO_ENTRY /* a build that puts something before the table brings its own note and entry */
/* PN_TEST_PLUGIN_NOTE: used only when named. PN_PLUGIN_NOTE, with the PCI ids of your cards, once
 * it computes on them. */
PN_TEST_PLUGIN_NOTE("template", "", "0.1.0", "Unknown", "");
#endif

static uint64_t die_bytes = (uint64_t)4 << 30; /* the option `bytes` */

static pn_status option(const char* key, const char* value, pn_error* err) {
  char* end = NULL;
  if (strcmp(key, "bytes") != 0)
    return pn_loop_fail(err, PN_INVALID, "option %s is unknown: the template plugin has bytes",
                        key);
  errno = 0;
  die_bytes = strtoull(value, &end, 10);
  if (errno != 0 || end == value || *end != 0 || die_bytes < 4096 || value[0] == '-')
    return pn_loop_fail(err, PN_INVALID,
                        "option bytes: expected a number of at least 4096, found %s", value);
  return PN_OK;
}

/* ---- dies: yours from here ------------------------------------------------------------------- */

static uint32_t device_count(void) { return 1; }

static void device_info(uint32_t index, pn_device_info* out) {
  (void)index;
  out->state = PN_STATE_READY; /* PN_STATE_ABSENT and a reason when the driver is not there */
  snprintf(out->uid, sizeof out->uid, "template-0");
  snprintf(out->name, sizeof out->name, "template die (plain C on the host)");
  out->dies_on_card = 1;
  out->pci_domain = PN_NONE;
  out->numa_node = -1;
  out->lost_settle_ms = 1000;
}

/* Open your driver here, with dlopen, never by linking. */
static pn_status device_open(uint32_t index, void** out, pn_error* err) {
  struct die* die = calloc(1, sizeof *die);
  (void)index;
  if (die == NULL) return pn_loop_fail(err, PN_OUT_OF_MEMORY, "device_open: no host memory");
  *out = die;
  return PN_OK;
}

static void device_close(void* die) { free(die); }

static const char* last_error(void* die) { return ((struct die*)die)->error; }

/* ---- memory ---------------------------------------------------------------------------------- */

/* Heap 0 is what programs read; heap 1 takes results and what is copied. */
static uint32_t heaps(void* die, pn_heap_info list[PN_LOOP_HEAPS_MAX]) {
  (void)die;
  for (uint32_t i = 0; i < 2; ++i) {
    list[i].kind = i == 0 ? PN_HEAP_DEVICE : PN_HEAP_HOST_PINNED;
    list[i].flags = PN_HEAP_HOST_VISIBLE | PN_HEAP_HOST_CACHED | PN_HEAP_BINDS;
    if (i == 1) list[i].flags |= PN_HEAP_RESULTS;
    list[i].alignment = 64;
    list[i].copy_alignment = 1;
    list[i].granule = 4096;
    list[i].bytes_max = list[i].total = die_bytes / 4096 * 4096;
  }
  return 2;
}

static void* take(void* die, uint32_t heap, uint64_t bytes, void** host) {
  void* at =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  (void)die;
  (void)heap;
  if (at == MAP_FAILED) return NULL;
  *host = at; /* NULL for memory that the host cannot see */
  return at;
}

static void give_back(void* die, uint32_t heap, void* at, uint64_t bytes) {
  (void)die;
  (void)heap;
  munmap(at, bytes);
}

/* Kernels here are done when they return. */
static pn_status sync_die(void* die) {
  (void)die;
  return PN_OK;
}

/* ---- to here; the table ---------------------------------------------------------------------- */

static const uint32_t types[] = {0, 1, 2, 8, 12, 13, 14, 30}; /* all that pn_loop_decode knows */

const pn_loop_backend template_backend = {
    .struct_size = sizeof(pn_loop_backend),
    .numerics =
        PN_NUMERICS_BATCH_INVARIANT | PN_NUMERICS_REPRODUCIBLE | PN_NUMERICS_CHUNK_INVARIANT,
    .name = "template",
    .types = types,
    .type_count = sizeof types / sizeof types[0],
    .token_multiple = 1,
    .bytes_per_ns = 0.5,
    .macs_per_ns = 1,
    .call_ns = 100,
    .option = option,
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .heaps = heaps,
    .alloc = take,
    .release = give_back,
    .sync = sync_die,
    .last_error = last_error,
    .copy = die_copy,
    .embed = die_embed,
    .norm = die_norm,
    .matmul = die_matmul,
    .rope = die_rope,
    .append = die_append,
    .attention = die_attention,
    .glu = die_glu,
    .binary = die_binary,
    .gather = die_gather,
    .columns = die_columns,
    .choose = die_choose,
};

#ifndef NO_ENTRY
PN_LOOP_PLUGIN(template_backend);
#endif
