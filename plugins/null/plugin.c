/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_null: who it is, its entry, its one die, its table of objects.
 *
 * The plugin to clone: every function of the contract is here, does the least that is right, and
 * computes nothing. Its die takes any plan; every submit is complete when queue_submit returns;
 * every row draws id 0. What the engine spends on a step is what is left.
 */
#include <errno.h>
#include <pantheon/note.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "null.h"

/* The oldest host that is served: its own minor while the major is 0. */
#ifndef NULL_OLDEST_HOST
#define NULL_OLDEST_HOST PN_ABI_MINOR
#endif
PN_NOTE_ALL("hal", "null", "", NULL_OLDEST_HOST, PN_ABI_MINOR, PN_VERSION, "Pantheon", "", "named");

const pn_host* null_host;
_Atomic uint64_t null_used[2];
uint64_t null_total = (uint64_t)16 << 30;

static struct object objects[NULL_OBJECTS_MAX];
static pthread_mutex_t claims = PTHREAD_MUTEX_INITIALIZER;

pn_status null_fail(pn_error* err, pn_status status, const char* format, ...) {
  va_list args;
  if (err == NULL) return status;
  err->code = status;
  err->scope = PN_SCOPE_CALL;
  err->recovery = PN_RECOVER_NONE;
  err->native_code = 0;
  va_start(args, format);
  vsnprintf(err->message, sizeof err->message, format, args);
  va_end(args);
  return status;
}

/* ---- objects -------------------------------------------------------------------------------- */

struct object* null_claim(uint32_t kind) {
  struct object* free_slot = NULL;
  pthread_mutex_lock(&claims);
  for (uint32_t i = 0; i < NULL_OBJECTS_MAX && free_slot == NULL; ++i) {
    if (objects[i].kind == KIND_NONE) free_slot = &objects[i];
  }
  if (free_slot != NULL) {
    free_slot->kind = kind;
    ++free_slot->generation;
    memset(&free_slot->as, 0, sizeof free_slot->as);
  }
  pthread_mutex_unlock(&claims);
  return free_slot;
}

uint64_t null_publish(struct object* object) {
  uint64_t index = (uint64_t)(object - objects);
  uint64_t id = ((uint64_t)object->generation << 32) | (index + 1);
  atomic_store_explicit(&object->id, id, memory_order_release);
  return id;
}

void null_release(struct object* object) {
  pthread_mutex_lock(&claims);
  atomic_store_explicit(&object->id, 0, memory_order_release);
  object->kind = KIND_NONE;
  pthread_mutex_unlock(&claims);
}

struct object* null_find(uint64_t id, uint32_t kind) {
  uint64_t index = (id & 0xffffffffu) - 1;
  if (index >= NULL_OBJECTS_MAX) return NULL;
  struct object* object = &objects[index];
  if (atomic_load_explicit(&object->id, memory_order_acquire) != id) return NULL;
  return object->kind == kind ? object : NULL;
}

void* null_at(pn_slice slice) {
  struct object* object = null_find(slice.buffer.id, KIND_BUFFER);
  if (object == NULL) return NULL;
  struct buffer* b = &object->as.buffer;
  if (slice.offset > b->bytes || slice.bytes > b->bytes - slice.offset) return NULL;
  return (char*)b->host + slice.offset;
}

/* ---- dies ----------------------------------------------------------------------------------- */

static pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  uint32_t room;
  if (count == NULL) return null_fail(err, PN_INVALID, "devices: count is NULL");
  room = *count;
  *count = 1;
  if (infos == NULL || room == 0) return PN_OK;
  pn_device_info info = {.struct_size = sizeof info,
                         .state = PN_STATE_READY,
                         .uid = "null-0",
                         .name = "null die (computes nothing)",
                         .dies_on_card = 1,
                         .pci_domain = PN_NONE,
                         .numa_node = -1,
                         .lost_settle_ms = 1};
  pn_write(infos, &info, sizeof info);
  return PN_OK;
}

static pn_status device_open(uint32_t index, pn_device* out, pn_error* err) {
  struct object* object;
  if (index != 0) return null_fail(err, PN_INVALID, "device_open: no die %u, there is one", index);
  object = null_claim(KIND_DEVICE);
  if (object == NULL) return null_fail(err, PN_OUT_OF_MEMORY, "device_open: object table is full");
  out->id = null_publish(object);
  return PN_OK;
}

static void device_close(pn_device device) {
  struct object* object = null_find(device.id, KIND_DEVICE);
  if (object != NULL) null_release(object);
}

static void shutdown_plugin(uint64_t deadline_ns) { (void)deadline_ns; /* no threads to join */ }

/* ---- entry ---------------------------------------------------------------------------------- */

/* Options arrive as text. One that is not known is an error: it would be ignored otherwise. */
static pn_status read_options(const pn_host* host, pn_error* err) {
  for (uint32_t i = 0; i < host->config_count; ++i) {
    const pn_pair* option = &host->config[i];
    char* end = NULL;
    if (strcmp(option->key, "bytes") != 0) {
      return null_fail(err, PN_INVALID, "option %s is unknown: the null plugin has bytes only",
                       option->key);
    }
    errno = 0;
    null_total = strtoull(option->value, &end, 10);
    if (errno != 0 || end == option->value || *end != 0 || null_total < NULL_PAGE_BYTES) {
      return null_fail(err, PN_INVALID, "option bytes: expected a number of at least %u, found %s",
                       NULL_PAGE_BYTES, option->value);
    }
  }
  return PN_OK;
}

static pn_plugin table = {
    .struct_size = sizeof(pn_plugin),
    .abi_minor = PN_ABI_MINOR,
    .min_host_minor = NULL_OLDEST_HOST,
    .devices = devices,
    .device_open = device_open,
    .device_close = device_close,
    .heaps = null_heaps,
    .memory_status = null_memory_status,
    .buffer_create = null_buffer_create,
    .buffer_destroy = null_buffer_destroy,
    .program_query = null_program_query,
    .program_create = null_program_create,
    .program_status = null_program_status,
    .program_destroy = null_program_destroy,
    .queue_create = null_queue_create,
    .queue_submit = null_queue_submit,
    .queue_query = null_queue_query,
    .queue_wait = null_queue_wait,
    .queue_error = null_queue_error,
    .queue_destroy = null_queue_destroy,
    .get_interface = null_get_interface,
    .shutdown = shutdown_plugin,
};

pn_status pantheon_plugin_entry_1(const pn_host* host, const pn_plugin** out, pn_error* err) {
  if (host == NULL || out == NULL) return null_fail(err, PN_INVALID, "entry: NULL argument");
  uint32_t own = PN_ABI_MINOR, oldest = NULL_OLDEST_HOST;
  uint32_t spoken = host->abi_minor < own ? host->abi_minor : own;
  if (host->abi_minor < oldest || (PN_ABI_MAJOR == 0 && host->abi_minor != own)) {
    return null_fail(err, PN_UNSUPPORTED, "speaks HAL %d.%d, the host speaks %d.%u", PN_ABI_MAJOR,
                     PN_ABI_MINOR, PN_ABI_MAJOR, host->abi_minor);
  }
  table.abi_minor = spoken;
  null_host = host;
  pn_status status = read_options(host, err);
  if (status == PN_OK) *out = &table;
  return status;
}
