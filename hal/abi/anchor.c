/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole ABI as exported functions, for abidw and abidiff: structs that are reached only through
 * const void *get_interface() are invisible to them otherwise.
 *
 * Owns one function a struct, nothing that runs. Build with -g, and with -DPN_ABI_MINOR=n for the
 * view of a released minor.
 */
#include <pantheon/graph.h>
#include <pantheon/hal.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/reset.h>
#include <pantheon/sampler.h>
#include <pantheon/telemetry.h>
#include <pantheon/topology.h>

#define PN_ANCHOR(T)                                                      \
  __attribute__((visibility("default"))) uint64_t pn_anchor_##T(const T *p); \
  uint64_t pn_anchor_##T(const T *p) { return p == NULL ? sizeof(T) : 0; }

/* core, device */
PN_ANCHOR(pn_error)
PN_ANCHOR(pn_device)
PN_ANCHOR(pn_buffer)
PN_ANCHOR(pn_program)
PN_ANCHOR(pn_queue)
PN_ANCHOR(pn_slice)
PN_ANCHOR(pn_point)
PN_ANCHOR(pn_pair)
PN_ANCHOR(pn_device_info)
PN_ANCHOR(pn_heap_info)
PN_ANCHOR(pn_memory_status)
/* plan, ops */
PN_ANCHOR(pn_weight)
PN_ANCHOR(pn_slot)
PN_ANCHOR(pn_cache)
PN_ANCHOR(pn_shape)
PN_ANCHOR(pn_op)
PN_ANCHOR(pn_plan)
PN_ANCHOR(pn_op_embed)
PN_ANCHOR(pn_op_norm)
PN_ANCHOR(pn_op_linear)
PN_ANCHOR(pn_op_qkv)
PN_ANCHOR(pn_op_attention)
PN_ANCHOR(pn_op_mlp)
PN_ANCHOR(pn_op_router)
PN_ANCHOR(pn_op_delta_net)
PN_ANCHOR(pn_op_emit)
PN_ANCHOR(pn_op_elementwise)
PN_ANCHOR(pn_op_columns)
PN_ANCHOR(pn_op_heads)
/* program, step, submit */
PN_ANCHOR(pn_span)
PN_ANCHOR(pn_cost)
PN_ANCHOR(pn_report)
PN_ANCHOR(pn_binding)
PN_ANCHOR(pn_program_status)
PN_ANCHOR(pn_entry)
PN_ANCHOR(pn_pages)
PN_ANCHOR(pn_lane)
PN_ANCHOR(pn_row)
PN_ANCHOR(pn_result)
PN_ANCHOR(pn_candidate)
PN_ANCHOR(pn_step)
PN_ANCHOR(pn_command)
PN_ANCHOR(pn_submit)
PN_ANCHOR(pn_progress)
/* tables */
PN_ANCHOR(pn_host)
PN_ANCHOR(pn_plugin)
PN_ANCHOR(pn_launch_info)
PN_ANCHOR(pn_graph_api)
PN_ANCHOR(pn_import)
PN_ANCHOR(pn_hostmem_api)
PN_ANCHOR(pn_layout_choice)
PN_ANCHOR(pn_layout_api)
PN_ANCHOR(pn_reset_info)
PN_ANCHOR(pn_reset_api)
PN_ANCHOR(pn_sampler_info)
PN_ANCHOR(pn_sampler_api)
PN_ANCHOR(pn_reading)
PN_ANCHOR(pn_occupant)
PN_ANCHOR(pn_telemetry_api)
PN_ANCHOR(pn_edge)
PN_ANCHOR(pn_topology_api)
PN_ANCHOR(pn_peer_api)
