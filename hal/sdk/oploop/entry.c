/* SPDX-License-Identifier: MIT
 *
 * The op-loop: entry, dies, errors, loss, shutdown.
 *
 * Owns the table that the host gets. Knows plans and queues only as functions. The one idea: every
 * function of a device begins with loop_device_of, so a lost die answers PN_DEVICE_LOST everywhere
 * and nothing else has to remember it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop.h"

const pn_loop_backend* loop_backend;
const pn_host* loop_host;
uint32_t loop_lost_run;

/* ---- errors ---------------------------------------------------------------------------------- */

void loop_give_error(pn_error* to, const pn_error* from) {
  if (to != NULL) pn_write(to, from, sizeof *from);
}

pn_status pn_loop_fail(pn_error* err, pn_status status, const char* format, ...) {
  pn_error mine = {.struct_size = sizeof mine, .code = status, .scope = PN_SCOPE_CALL};
  va_list args;
  if (err == NULL) return status;
  va_start(args, format);
  vsnprintf(mine.message, sizeof mine.message, format, args);
  va_end(args);
  loop_give_error(err, &mine);
  return status;
}

/* ---- dies ------------------------------------------------------------------------------------ */

static pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  if (count == NULL) return pn_loop_fail(err, PN_INVALID, "devices: count is NULL");
  uint32_t room = *count, have = loop_backend->device_count();
  *count = have;
  if (room == 0 || infos == NULL) return PN_OK;
  for (uint32_t i = 0; i < have && i < room; ++i) {
    pn_device_info info = {0};
    info.struct_size = sizeof info;
    loop_backend->device_info(i, &info);
    pn_write(PN_AT(pn_device_info, infos, i), &info, sizeof info);
  }
  return room < have ? PN_INCOMPLETE : PN_OK;
}

static pn_status device_open(uint32_t index, pn_device* out, pn_error* err) {
  if (out == NULL) return pn_loop_fail(err, PN_INVALID, "device_open: out is NULL");
  uint32_t have = loop_backend->device_count();
  if (index >= have)
    return pn_loop_fail(err, PN_INVALID, "device_open: no die %u, there are %u", index, have);
  pn_device_info info = {0};
  info.struct_size = sizeof info;
  loop_backend->device_info(index, &info);
  if (info.state != PN_STATE_READY)
    return pn_loop_fail(err, PN_UNSUPPORTED, "device_open: die %u is not ready: %s", index,
                        info.reason);
  struct loop_device* d = calloc(1, sizeof *d);
  if (d == NULL) return pn_loop_fail(err, PN_OUT_OF_MEMORY, "device_open: no host memory");
  d->index = index;
  pn_status status = loop_backend->device_open(index, &d->die, err);
  if (status == PN_OK) {
    d->heap_count = loop_backend->heaps(d->die, d->heaps);
    d->id = loop_add(LOOP_DEVICE, d);
    if (d->id != 0) {
      out->id = d->id;
      return PN_OK;
    }
    loop_backend->device_close(d->die);
    status = pn_loop_fail(err, PN_OUT_OF_MEMORY, "device_open: too many objects are alive");
  }
  free(d);
  return status;
}

static void device_close(pn_device device) {
  struct loop_device* d = loop_find(device.id, LOOP_DEVICE);
  if (d == NULL) return;
  loop_remove(d->id);
  loop_backend->device_close(d->die);
  free(d);
}

pn_status loop_told(struct loop_device* d, pn_error* err) {
  loop_give_error(err, &d->loss);
  return PN_DEVICE_LOST;
}

struct loop_device* loop_device_of(pn_device device, const char* call, pn_status* status,
                                   pn_error* err) {
  struct loop_device* d = loop_find(device.id, LOOP_DEVICE);
  if (d == NULL) {
    *status = pn_loop_fail(err, PN_INVALID, "%s: device %#llx is not open", call,
                           (unsigned long long)device.id);
    return NULL;
  }
  *status = PN_OK;
  if (atomic_load_explicit(&d->lost, memory_order_acquire) == 2) {
    *status = loop_told(d, err);
    return NULL;
  }
  return d;
}

/* lost: 0 well, 1 the message is being written, 2 lost. The first one to notice writes it. */
void loop_lose(struct loop_device* d, const char* call) {
  uint32_t well = 0;
  if (!atomic_compare_exchange_strong(&d->lost, &well, 1)) return;
  const char* why = loop_backend->last_error == NULL ? NULL : loop_backend->last_error(d->die);
  d->loss = (pn_error){.struct_size = sizeof d->loss,
                       .code = PN_DEVICE_LOST,
                       .scope = PN_SCOPE_DEVICE,
                       .recovery = PN_RECOVER_REOPEN_DEVICE};
  snprintf(d->loss.message, sizeof d->loss.message, "%s die %u was lost in %s%s%s",
           loop_backend->name, d->index, call, why == NULL ? "" : ": ", why == NULL ? "" : why);
  atomic_store_explicit(&d->lost, 2, memory_order_release);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static const void* get_interface(const char* id) {
  if (id == NULL) return NULL;
  if (strcmp(id, "pantheon.layout/1") == 0) return &loop_layout;
  if (strcmp(id, "pantheon.sampler/1") == 0) return &loop_sampler;
  return loop_backend->get_interface == NULL ? NULL : loop_backend->get_interface(id);
}

/* The host destroys everything before; what it forgot still has threads, and threads must end. */
static void shutdown_plugin(uint64_t deadline_ns) {
  (void)deadline_ns; /* what is queued is dropped: waiting for it would be longer */
  for (struct loop_queue* q; (q = loop_any(LOOP_QUEUE)) != NULL;)
    loop_queue_destroy((pn_queue){q->id});
  for (struct loop_program* p; (p = loop_any(LOOP_PROGRAM)) != NULL;)
    loop_program_destroy((pn_program){p->id});
  if (loop_backend->shutdown != NULL) loop_backend->shutdown();
}

/* check_fault: lost:N imitates the loss of a die in its N-th submit with a RUN, so that every
 * backend of the op-loop can show what it does then. */
static pn_status read_fault(const char* value, pn_error* err) {
  char* end = NULL;
  unsigned long nth = strncmp(value, "lost:", 5) == 0 ? strtoul(value + 5, &end, 10) : 0;
  if (nth == 0 || nth > UINT32_MAX || *end != 0)
    return pn_loop_fail(err, PN_INVALID, "option check_fault: expected lost:N, found %s", value);
  loop_lost_run = (uint32_t)nth;
  return PN_OK;
}

static pn_status read_options(const pn_host* host, pn_error* err) {
  loop_lost_run = 0;
  for (uint32_t i = 0; i < host->config_count; ++i) {
    const pn_pair* pair = &host->config[i];
    if (strcmp(pair->key, "check_fault") == 0) {
      pn_status read = read_fault(pair->value, err);
      if (read != PN_OK) return read;
      continue;
    }
    pn_status status =
        loop_backend->option == NULL
            ? pn_loop_fail(err, PN_INVALID, "option %s is unknown: the %s plugin has none",
                           pair->key, loop_backend->name)
            : loop_backend->option(pair->key, pair->value, err);
    if (status != PN_OK) return status;
  }
  return PN_OK;
}

static const pn_plugin table = {
    .struct_size = sizeof(pn_plugin),
    .abi_minor = PN_ABI_MINOR,
    .min_host_minor = PN_ABI_MINOR,
    .devices = devices,
    .device_open = device_open,
    .device_close = device_close,
    .heaps = loop_heaps,
    .memory_status = loop_memory_status,
    .buffer_create = loop_buffer_create,
    .buffer_destroy = loop_buffer_destroy,
    .program_query = loop_program_query,
    .program_create = loop_program_create,
    .program_status = loop_program_status,
    .program_destroy = loop_program_destroy,
    .queue_create = loop_queue_create,
    .queue_submit = loop_queue_submit,
    .queue_query = loop_queue_query,
    .queue_wait = loop_queue_wait,
    .queue_error = loop_queue_error,
    .queue_destroy = loop_queue_destroy,
    .get_interface = get_interface,
    .shutdown = shutdown_plugin,
};

static const char* missing(const pn_loop_backend* b) {
  if (b->name == NULL || b->types == NULL) return "name or types";
  if (b->device_count == NULL || b->device_info == NULL || b->device_open == NULL ||
      b->device_close == NULL || b->heaps == NULL)
    return "device_count, device_info, device_open, device_close or heaps";
  if (b->alloc == NULL || b->release == NULL || b->copy == NULL || b->sync == NULL)
    return "alloc, release, copy or sync";
  return NULL;
}

pn_status pn_loop_entry(const pn_loop_backend* backend, const pn_host* host, const pn_plugin** out,
                        pn_error* err) {
  if (host == NULL || out == NULL) return pn_loop_fail(err, PN_INVALID, "entry: NULL argument");
  pn_host known;
  if (!pn_read(&known, sizeof known, host, sizeof known))
    return pn_loop_fail(err, PN_UNSUPPORTED, "pn_host says something newer than this plugin knows");
  if (host->abi_minor != PN_ABI_MINOR)
    return pn_loop_fail(err, PN_UNSUPPORTED, "speaks HAL %d.%d, the host speaks %d.%u",
                        PN_ABI_MAJOR, PN_ABI_MINOR, PN_ABI_MAJOR, host->abi_minor);
  if (backend == NULL || backend->struct_size != sizeof *backend)
    return pn_loop_fail(err, PN_INVALID, "the op-loop and <pantheon/oploop.h> are of two versions");
  const char* lacks = missing(backend);
  if (lacks != NULL) return pn_loop_fail(err, PN_INVALID, "the backend's table lacks %s", lacks);
  loop_start();
  loop_backend = backend;
  loop_host = host;
  pn_status status = read_options(host, err);
  if (status == PN_OK) *out = &table;
  return status;
}
