/* SPDX-License-Identifier: MIT
 *
 * The two tables that host and plugin exchange, and the one exported symbol.
 */
#ifndef PANTHEON_PLUGIN_H
#define PANTHEON_PLUGIN_H

#include <pantheon/device.h>
#include <pantheon/plan.h>
#include <pantheon/program.h>
#include <pantheon/submit.h>

#ifdef __cplusplus
extern "C" {
#endif


enum { PN_LOG_DEBUG, PN_LOG_INFO, PN_LOG_WARN, PN_LOG_ERROR, PN_LOG_HOST_BUG, PN_LOG_PLUGIN_BUG };
/* What a plugin may ask thread_check about the calling thread, at the top of a function. */
#define PN_THREAD_LOAD    0u
#define PN_THREAD_CONTROL 1u
#define PN_THREAD_QUEUE   2u
#define PN_THREAD_POLL    3u
#define PN_THREAD_ANY     4u
#define PN_THREAD_BLOCK   5u /* queue_wait, reset: not on a serving thread */
typedef struct pn_host { /* lives until the process ends */
  uint32_t struct_size;
  uint32_t abi_minor;
  void *self;
  const char *plugin_path;  /* absolute */
  const char *cache_dir;    /* private to this plugin, may hold compiled programs; NULL none */
  const pn_pair *config; /* the profile's options for this plugin; an unknown key is PN_INVALID */
  uint32_t config_count;
  uint32_t reserved;
  void (*log)(void *self, uint32_t level, const char *text, uint64_t length);   /* [any] */
  uint64_t (*now_ns)(void *self); /* [any] monotonic */
  uint32_t (*thread_check)(void *self, uint32_t tag); /* [any] 1 when allowed */
} pn_host; PN_PIN(pn_host, 72);

typedef struct pn_plugin {
  uint32_t struct_size;
  uint32_t abi_minor;      /* negotiated: min(host's, own) */
  uint32_t min_host_minor; /* oldest host that it can serve */
  uint32_t reserved;

  /* [load] Every die seen, ready or not. A die without a driver is listed with its reason. */
  pn_status (*devices)(uint32_t *count, pn_device_info *infos, pn_error *);
  /* [load] index into devices(). Takes context_bytes of the die. */
  pn_status (*device_open)(uint32_t index, pn_device *out, pn_error *);
  /* [control] All objects of the device must be destroyed. Works on a lost device. */
  void (*device_close)(pn_device);
  /* [load] */
  pn_status (*heaps)(pn_device, uint32_t *count, pn_heap_info *infos, pn_error *);
  /* [poll] PN_DEVICE_LOST is how an idle host learns of a loss. At most 50 us; may be cached. */
  pn_status (*memory_status)(pn_device, pn_memory_status *, pn_error *);

  /* [control] host is set to the address, or NULL, for the buffer's life. Contents undefined.
   * All device memory comes from here or is counted in context_bytes and program_bytes. */
  pn_status (*buffer_create)(pn_device, uint32_t heap, uint64_t bytes, pn_buffer *out, void **host,
                             pn_error *);
  /* [control] No queued command may name it. */
  void (*buffer_destroy)(pn_buffer);

  /* [control] Would this plan run here, as what, at what cost? No side effects; under 10 ms, since
   * placement asks for every candidate. PN_OK even when spans are UNSUPPORTED. */
  pn_status (*program_query)(pn_device, const pn_plan *, pn_report *, pn_error *);
  /* [control] Starts the build and returns. Every weight, bound slot, cache, the scratch and (when
   * the plan has EMBED or EMIT) ids needs a binding; a missing one is PN_INVALID by name. Takes
   * nothing but the report's program bytes. Destroying cancels the build. Weight bytes need be
   * valid from the first RUN on. */
  pn_status (*program_create)(pn_device, const pn_plan *, uint32_t count, const pn_binding *,
                              pn_program *out, pn_error *);
  /* [poll] err tells why a build FAILED. */
  pn_status (*program_status)(pn_program, pn_program_status *, pn_error *);
  /* [control] No queued command may name it. */
  void (*program_destroy)(pn_program);

  /* [control] depth: submits that may be outstanding, at least 8. */
  pn_status (*queue_create)(pn_device, uint32_t kind, uint32_t depth, pn_queue *out, pn_error *);
  /* [queue] Never blocks: PN_NOT_READY when full, with nothing done. What is wrong with a submit
   * may be returned here, or (a remote plugin) fail the queue. Cost: at most 0.1 us an op of the
   * program. */
  pn_status (*queue_submit)(pn_queue, const pn_submit *, pn_error *);
  /* [poll] Any queues of this plugin, all dies in one call. What a completed submit wrote to
   * host-visible memory is visible to the caller after this returns. May do bounded work to bring
   * results in. */
  pn_status (*queue_query)(uint32_t count, const pn_queue *, pn_progress *, pn_error *);
  /* [any] Blocks until complete, failed or timed out (PN_NOT_READY). Never while serving. */
  pn_status (*queue_wait)(pn_point, uint64_t timeout_ns, pn_error *);
  /* [poll] The failure of a FAILED or LOST queue, with scope and recovery. */
  pn_status (*queue_error)(pn_queue, pn_error *);
  /* [control] Outstanding work is dropped or finished before return, within lost_settle_ms. */
  void (*queue_destroy)(pn_queue);

  /* [load] A table as below, or NULL. Third parties use reverse.dns.name/rev. */
  const void *(*get_interface)(const char *id);
  /* [load] Everything destroyed before. Joins the plugin's threads. The library stays mapped. */
  void (*shutdown)(uint64_t deadline_ns);
} pn_plugin; PN_PIN(pn_plugin, 168);

/* The only exported symbol. [load], once a process. *out lives as long as the process. An error
 * leaves nothing behind; a plugin without its driver returns PN_OK and lists no READY die. */
#define PN_PLUGIN_ENTRY_1 "pantheon_plugin_entry_1"
typedef pn_status (*pn_entry_fn)(const pn_host *, const pn_plugin **out, pn_error *);
__attribute__((visibility("default"))) pn_status pantheon_plugin_entry_1(const pn_host *host,
                                                                         const pn_plugin **out,
                                                                         pn_error *err);

#ifdef __cplusplus
}
#endif
#endif
