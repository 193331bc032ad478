/* SPDX-License-Identifier: MIT
 *
 * The two tables that host and plugin exchange, and the one exported symbol.
 *
 * Owns pn_host, pn_plugin and the entry. Knows no named interface. The one idea: a plugin is a
 * table of functions with everything said at each of them; what is optional is an interface
 * elsewhere.
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


#define PN_LOG_DEBUG      0u
#define PN_LOG_INFO       1u
#define PN_LOG_WARN       2u
#define PN_LOG_ERROR      3u
#define PN_LOG_HOST_BUG   4u
#define PN_LOG_PLUGIN_BUG 5u
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
  /* [any] One line without newline. The host adds name and time, and limits the rate; a plugin
   * prints nothing itself. */
  void (*log)(void *self, uint32_t level, const char *text, uint64_t length);
  uint64_t (*now_ns)(void *self); /* [any] monotonic */
  uint32_t (*thread_check)(void *self, uint32_t tag); /* [any] 1 when PN_THREAD_* is allowed here */
} pn_host; PN_PIN(pn_host, 72);

/* The plugin's functions. Every slot is required while the major is 0 and callable until shutdown.
 * Each says: thread tag; lifetime of what it gives; how it fails; what it may cost. Where nothing
 * is said, a failure changes nothing, and PN_DEVICE_LOST may come from any function of a device. */
typedef struct pn_plugin {
  uint32_t struct_size;
  uint32_t abi_minor;      /* negotiated: min(host's, own) */
  uint32_t min_host_minor; /* oldest host that it can serve */
  uint32_t reserved;

  /* ---- dies ---- */

  /* [load] Every die seen, ready or not: a die without a driver is listed with its reason. The
   * order is fixed for the life of the process. Fails: PN_FAILED when the bus cannot be read. Cost:
   * may start the driver; seconds. */
  pn_status (*devices)(uint32_t *count, pn_device_info *infos, pn_error *);
  /* [load] index into devices(). Takes context_bytes of the die until device_close. Fails:
   * PN_OUT_OF_MEMORY; PN_UNSUPPORTED when state is not READY, with its reason. Cost: seconds. */
  pn_status (*device_open)(uint32_t index, pn_device *out, pn_error *);
  /* [control] Every object of the device is destroyed before. Cannot fail, even when lost. */
  void (*device_close)(pn_device);
  /* [load] Fixed while the device is open; a heap's number is its place in this list. */
  pn_status (*heaps)(pn_device, uint32_t *count, pn_heap_info *infos, pn_error *);
  /* [poll] PN_DEVICE_LOST is how an idle host learns of a loss. Cost: at most 50 us; may be cached,
   * sampled_at_ns says since when. */
  pn_status (*memory_status)(pn_device, pn_memory_status *, pn_error *);

  /* ---- buffers ---- */

  /* [control] host is set to the address, or NULL, for the buffer's life. Contents undefined.
   * All device memory comes from here or is counted in context_bytes and program_bytes. Fails:
   * PN_OUT_OF_MEMORY with what was asked and what is free; PN_INVALID past bytes_max. Cost: the
   * driver's allocation; never while serving. */
  pn_status (*buffer_create)(pn_device, uint32_t heap, uint64_t bytes, pn_buffer *out, void **host,
                             pn_error *);
  /* [control] No queued command and no program names it any more. Cannot fail. */
  void (*buffer_destroy)(pn_buffer);

  /* ---- programs ---- */

  /* [control] Would this plan run here, as what, at what cost? No side effects. PN_OK even when
   * spans are UNSUPPORTED: they carry the reason. Fails: PN_INVALID for a plan that contradicts
   * itself; PN_INCOMPLETE when span_count was too small. Cost: under 10 ms, since placement asks
   * for every candidate. */
  pn_status (*program_query)(pn_device, const pn_plan *, pn_report *, pn_error *);
  /* [control] Starts the build and returns; the plan and the bindings are read before. Every
   * weight, bound slot, cache, the scratch and (when the plan has EMBED or EMIT) ids needs a
   * binding. Weight bytes need be valid from the first RUN on. Takes nothing but the report's
   * program bytes, until program_destroy. Fails: PN_INVALID names the binding that is missing or
   * too small; PN_UNSUPPORTED as program_query said; PN_OUT_OF_MEMORY. Cost: under 10 ms; the build
   * itself is in the background and may take minutes. */
  pn_status (*program_create)(pn_device, const pn_plan *, uint32_t count, const pn_binding *,
                              pn_program *out, pn_error *);
  /* [poll] err tells why a build FAILED (the status is PN_OK). Cost: a few loads. */
  pn_status (*program_status)(pn_program, pn_program_status *, pn_error *);
  /* [control] No queued command names it. Cancels a build; lanes and their histories are lost with
   * it. Cannot fail. */
  void (*program_destroy)(pn_program);

  /* ---- queues ---- */

  /* [control] depth: submits that may be outstanding, at least 8. At least one RUN and one TRANSFER
   * queue per device. Lives until queue_destroy. Fails: PN_OUT_OF_MEMORY. */
  pn_status (*queue_create)(pn_device, uint32_t kind, uint32_t depth, pn_queue *out, pn_error *);
  /* [queue] Never blocks: PN_NOT_READY when full, with nothing done. All arrays are read before
   * return. What is wrong with a submit may be returned here, or (a remote plugin) fail the queue.
   * Cost: at most 0.1 us an op of the program, no allocation. */
  pn_status (*queue_submit)(pn_queue, const pn_submit *, pn_error *);
  /* [poll] Any queues of this plugin, all dies in one call. What a completed submit wrote to
   * host-visible memory is visible to the caller after this returns. A failed or lost queue is a
   * state in pn_progress, not a failure of this call. Cost: a load a queue; may do bounded work to
   * bring results in. */
  pn_status (*queue_query)(uint32_t count, const pn_queue *, pn_progress *, pn_error *);
  /* [any] Blocks until complete, failed or timed out (PN_NOT_READY). For loading, tests and the
   * end; never on a serving thread (PN_THREAD_BLOCK). */
  pn_status (*queue_wait)(pn_point, uint64_t timeout_ns, pn_error *);
  /* [poll] The failure of a FAILED or LOST queue, with scope and recovery; PN_OK and code 0 when
   * the queue is well. The same answer until the queue is destroyed. */
  pn_status (*queue_error)(pn_queue, pn_error *);
  /* [control] Outstanding work is dropped or finished before return. Cannot fail. Cost: at most
   * lost_settle_ms. */
  void (*queue_destroy)(pn_queue);

  /* ---- the rest ---- */

  /* [load] The table of a named interface, or NULL; it lives as long as the process. Third parties
   * use reverse.dns.name/rev. */
  const void *(*get_interface)(const char *id);
  /* [load] Everything is destroyed before. Joins the plugin's threads until deadline_ns of the
   * host's clock. The library stays mapped; nothing is called after it. */
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
