/* SPDX-License-Identifier: Apache-2.0
 *
 * The template's backend as the plugin of a test that was written for the CPU plugin: options that
 * only that one has are left out, and results may lie in any heap, as there.
 */
#include <pantheon/oploop.h>
#include <string.h>

extern const pn_loop_backend template_backend;
static pn_loop_backend mine;

static uint32_t heaps(void* die, pn_heap_info list[PN_LOOP_HEAPS_MAX]) {
  uint32_t count = template_backend.heaps(die, list);
  for (uint32_t i = 0; i < count; ++i) list[i].flags |= PN_HEAP_RESULTS;
  return count;
}

pn_status pantheon_plugin_entry_1(const pn_host* host, const pn_plugin** out, pn_error* err) {
  static pn_pair kept[8];
  pn_host own = *host;
  static pn_host lives;
  own.config = kept;
  own.config_count = 0;
  for (uint32_t i = 0; i < host->config_count && own.config_count < 8; ++i)
    if (strcmp(host->config[i].key, "bytes") == 0 ||
        strcmp(host->config[i].key, "check_fault") == 0)
      kept[own.config_count++] = host->config[i];
  lives = own;
  mine = template_backend;
  mine.heaps = heaps;
  return pn_loop_entry(&mine, &lives, out, err);
}
