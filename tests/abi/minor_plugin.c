/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_null as a plugin of an imagined minor: three dies, and 1.1's appended facts filled.
 *
 * Owns what is new in 1.1; the rest is the null plugin's, compiled with its entry renamed. See
 * imagine.py. Each BREAKS_ macro commits one mistake that the matrix has to notice.
 */
#include <string.h>

#include "plugins/null/null.h"

#undef pantheon_plugin_entry_1
__attribute__((visibility("default"))) pn_status pantheon_plugin_entry_1(const pn_host* host,
                                                                         const pn_plugin** out,
                                                                         pn_error* err);
pn_status null_entry(const pn_host* host, const pn_plugin** out, pn_error* err);

static pn_plugin table;
static const pn_plugin* base;

static pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  uint32_t room = *count, one = 1;
  *count = 3;
  for (uint32_t i = 0; infos != NULL && i < room && i < 3; ++i) {
    pn_device_info info = {.struct_size = sizeof info};
    pn_status status = base->devices(&one, &info, err);
    if (status != PN_OK) return status;
    info.uid[5] = (char)('0' + i);
#if PN_ABI_MINOR >= 1
    info.link_bytes_per_s = 1000 + i;
#endif
#ifdef BREAKS_STRIDE
    pn_write(&infos[i], &info, sizeof info); /* sizeof is this side's, not the caller's */
#else
    pn_write(PN_AT(pn_device_info, infos, i), &info, sizeof info);
#endif
  }
  return infos != NULL && room < 3 && room > 0 ? PN_INCOMPLETE : PN_OK;
}

static pn_status memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  pn_memory_status status = {.struct_size = sizeof status};
  pn_status said = base->memory_status(device, &status, err);
  if (said != PN_OK) return said;
#if PN_ABI_MINOR >= 1
  status.largest_free = 4096;
#endif
#ifdef BREAKS_SIZE
  *out = status; /* struct_size becomes this side's */
#else
  pn_write(out, &status, sizeof status);
#endif
  return PN_OK;
}

#ifdef BREAKS_TAIL
static pn_status submit(pn_queue queue, const pn_submit* given, pn_error* err) {
  pn_submit known; /* what is past it is ignored */
  memcpy(&known, given, sizeof known);
  known.struct_size = sizeof known;
  return base->queue_submit(queue, &known, err);
}
#endif

#if PN_ABI_MINOR >= 1
static pn_status device_hint(pn_device device, uint64_t hint, pn_error* err) {
  (void)device;
  return hint == 7 ? PN_OK : null_fail(err, PN_INVALID, "device_hint: 7 is the only hint");
}
#endif

pn_status pantheon_plugin_entry_1(const pn_host* host, const pn_plugin** out, pn_error* err) {
  pn_status status = null_entry(host, &base, err);
  if (status != PN_OK) return status;
  table = *base;
  table.devices = devices;
  table.memory_status = memory_status;
#ifdef BREAKS_TAIL
  table.queue_submit = submit;
#endif
#if PN_ABI_MINOR >= 1
  table.device_hint = device_hint;
#endif
  *out = &table;
  return PN_OK;
}
