/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_null: the named interfaces. Each is optional: leave out what your device has not, and the
 * host answers for it.
 */
#include <pantheon/graph.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/reset.h>
#include <pantheon/sampler.h>
#include <pantheon/telemetry.h>
#include <pantheon/topology.h>
#include <string.h>

#include "null.h"

/* ---- pantheon.layout/1: the source's own bytes, a tile a row --------------------------------- */

#define LAYOUT_SOURCE 0u

/* Bytes of a row of `width` elements in GGUF's block formats; 0: not known here. */
static uint64_t row_bytes(uint32_t type, int64_t width) {
  static const struct {
    uint32_t type, block_elements, block_bytes;
  } blocks[] = {{0, 1, 4},      {1, 1, 2},      {2, 32, 18},   {3, 32, 20},    {6, 32, 22},
                {7, 32, 24},    {8, 32, 34},    {10, 256, 84}, {11, 256, 110}, {12, 256, 144},
                {13, 256, 176}, {14, 256, 210}, {26, 1, 4},    {30, 1, 2}};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; ++i) {
    if (blocks[i].type != type || width % blocks[i].block_elements != 0) continue;
    return (uint64_t)width / blocks[i].block_elements * blocks[i].block_bytes;
  }
  return 0;
}

static pn_status describe_source(const pn_weight* weight, pn_layout_choice* out, pn_error* err) {
  uint64_t bytes = row_bytes(weight->source_type, weight->shape[0]);
  if (bytes == 0) {
    return null_fail(err, PN_UNSUPPORTED, "layout: type %u with rows of %lld elements is unknown",
                     weight->source_type, (long long)weight->shape[0]);
  }
  pn_layout_choice choice = {.struct_size = sizeof choice,
                             .loss = PN_LOSS_NONE,
                             .layout = LAYOUT_SOURCE,
                             .name = "pantheon.source/1",
                             .tile_bytes = bytes,
                             .alignment = 64,
                             .flags = 1,
                             .speed = 1.0};
  choice.tile_count =
      (uint64_t)weight->shape[1] * (uint64_t)weight->shape[2] * (uint64_t)weight->shape[3];
  memcpy(choice.fingerprint, &weight->source_type, sizeof weight->source_type);
  *out = choice;
  return PN_OK;
}

static pn_status layout_rank(const pn_weight* weight, uint64_t target, uint32_t* count,
                             pn_layout_choice* choices, pn_error* err) {
  pn_layout_choice choice;
  uint32_t room = *count;
  (void)target;
  pn_status status = describe_source(weight, &choice, err);
  if (status != PN_OK) return status;
  *count = 1;
  if (room == 0 || choices == NULL) return PN_OK;
  pn_write(choices, &choice, sizeof choice);
  return PN_OK;
}

static pn_status layout_convert(const pn_weight* weight, uint64_t target, uint64_t layout,
                                const void* source, void* out, uint64_t first, uint64_t count,
                                pn_error* err) {
  pn_layout_choice choice;
  (void)target;
  pn_status status = describe_source(weight, &choice, err);
  if (status != PN_OK) return status;
  if (layout != LAYOUT_SOURCE || first > choice.tile_count || count > choice.tile_count - first) {
    return null_fail(err, PN_INVALID, "layout.convert: layout %llu, tiles past the end",
                     (unsigned long long)layout);
  }
  memcpy(out, (const char*)source + first * choice.tile_bytes, count * choice.tile_bytes);
  return PN_OK;
}

static pn_status layout_decode(const pn_weight* weight, uint64_t target, uint64_t layout,
                               const void* in, float* out, uint64_t first, uint64_t count,
                               pn_error* err) {
  (void)target;
  (void)first; /* in starts at tile first already */
  if (layout != LAYOUT_SOURCE || weight->source_type != PN_TYPE_F32) {
    return null_fail(err, PN_UNSUPPORTED, "layout.decode: F32 only, found type %u",
                     weight->source_type);
  }
  memcpy(out, in, count * (uint64_t)weight->shape[0] * sizeof(float));
  return PN_OK;
}

static pn_status layout_targets(uint32_t* count, pn_pair* pairs, pn_error* err) {
  uint32_t room = *count;
  (void)err;
  *count = 1;
  if (room == 0 || pairs == NULL) return PN_OK;
  pairs[0] = (pn_pair){"null", "0"};
  return PN_OK;
}

static const pn_layout_api layout = {sizeof layout, 0, layout_rank, layout_convert, layout_decode,
                                     layout_targets};

/* ---- pantheon.hostmem/1 --------------------------------------------------------------------- */

static pn_status hostmem_import(pn_device device, const pn_import* range, pn_buffer* out,
                                pn_error* err) {
  if (null_find(device.id, KIND_DEVICE) == NULL || range->address == NULL || range->bytes == 0) {
    return null_fail(err, PN_INVALID, "import: no such device, or an empty range");
  }
  struct object* object = null_claim(KIND_BUFFER);
  if (object == NULL) return null_fail(err, PN_OUT_OF_MEMORY, "import: object table is full");
  object->as.buffer = (struct buffer){.host = range->address, .bytes = range->bytes};
  out->id = null_publish(object);
  return PN_OK;
}
static const pn_hostmem_api hostmem = {sizeof hostmem, 1, hostmem_import};

/* ---- pantheon.sampler/1 --------------------------------------------------------------------- */

static pn_status sampler_describe(pn_device device, pn_sampler_info* out, pn_error* err) {
  if (null_find(device.id, KIND_DEVICE) == NULL) {
    return null_fail(err, PN_INVALID, "sampler: no such device");
  }
  pn_sampler_info info = {.struct_size = sizeof info,
                          .features = PN_SAMPLES_GREEDY | PN_SAMPLES_TEMPERATURE |
                                      PN_SAMPLES_PENALTIES | PN_SAMPLES_BIAS |
                                      PN_SAMPLES_MASK_BITS | PN_SAMPLES_MASK_LIST | PN_SAMPLES_HOLD,
                          .top_max = 256,
                          .history_max = 1u << 20};
  pn_write(out, &info, sizeof info);
  return PN_OK;
}
static const pn_sampler_api sampler = {sizeof sampler, 0, sampler_describe};

/* ---- pantheon.graph/1 ----------------------------------------------------------------------- */

static pn_status graph_describe(pn_program program, uint32_t shape, pn_launch_info* out,
                                pn_error* err) {
  struct object* object = null_find(program.id, KIND_PROGRAM);
  if (object == NULL || shape >= object->as.program.shape_count) {
    return null_fail(err, PN_INVALID, "graph.describe: no such program, or no shape %u", shape);
  }
  pn_launch_info info = {.struct_size = sizeof info, .mode = PN_LAUNCH_RESIDENT, .host_calls = 1};
  pn_write(out, &info, sizeof info);
  return PN_OK;
}
static const pn_graph_api graph = {sizeof graph, 0, graph_describe};

/* ---- pantheon.topology/1: one die, no edges -------------------------------------------------- */

static pn_status topology_edges(uint32_t* count, pn_edge* edges, pn_error* err) {
  (void)edges;
  (void)err;
  *count = 0;
  return PN_OK;
}
static const pn_topology_api topology = {sizeof topology, 0, topology_edges};

static pn_status peer_connect(pn_device from, pn_device to, uint64_t* device_bytes, pn_error* err) {
  (void)from;
  (void)to;
  *device_bytes = 0;
  return null_fail(err, PN_UNSUPPORTED, "peer.connect: there is one die");
}
static const pn_peer_api peer = {sizeof peer, 0, peer_connect};

/* ---- pantheon.telemetry/1, pantheon.reset/1 -------------------------------------------------- */

static pn_status health(pn_device device, uint32_t* state, char reason[128], pn_error* err) {
  if (null_find(device.id, KIND_DEVICE) == NULL) {
    return null_fail(err, PN_INVALID, "telemetry: no such device");
  }
  *state = PN_HEALTH_OK;
  reason[0] = 0;
  return PN_OK;
}
static pn_status readings(pn_device device, uint32_t* count, pn_reading* list, pn_error* err) {
  (void)device;
  (void)list;
  (void)err;
  *count = 0;
  return PN_OK;
}
static pn_status occupants(uint32_t index, uint32_t* count, pn_occupant* list, pn_error* err) {
  (void)index;
  (void)list;
  (void)err;
  *count = 0;
  return PN_OK;
}
static const pn_telemetry_api telemetry = {sizeof telemetry, 0, health, readings, occupants};

static pn_status reset_describe(uint32_t domain, pn_reset_info* out, pn_error* err) {
  pn_reset_info info = {.struct_size = sizeof info, .reason = "nothing to reset"};
  (void)domain;
  (void)err;
  pn_write(out, &info, sizeof info);
  return PN_OK;
}
static pn_status reset_domain(uint32_t domain, uint64_t timeout_ns, pn_error* err) {
  (void)timeout_ns;
  return null_fail(err, PN_UNSUPPORTED, "reset of domain %u: nothing to reset", domain);
}
static pn_status self_check(pn_device device, pn_error* err) {
  if (null_find(device.id, KIND_DEVICE) == NULL) {
    return null_fail(err, PN_INVALID, "self_check: no such device");
  }
  return PN_OK;
}
static const pn_reset_api reset = {sizeof reset, 0, reset_describe, reset_domain, self_check};

/* --------------------------------------------------------------------------------------------- */

const void* null_get_interface(const char* id) {
  static const struct {
    const char* id;
    const void* table;
  } known[] = {
      {"pantheon.layout/1", &layout},       {"pantheon.hostmem/1", &hostmem},
      {"pantheon.sampler/1", &sampler},     {"pantheon.graph/1", &graph},
      {"pantheon.topology/1", &topology},   {"pantheon.peer/1", &peer},
      {"pantheon.telemetry/1", &telemetry}, {"pantheon.reset/1", &reset},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
    if (strcmp(known[i].id, id) == 0) return known[i].table;
  }
  return NULL;
}
