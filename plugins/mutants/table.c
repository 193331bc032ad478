/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_mutants: wrong functions of dies, memory, programs and interfaces, put before the real
 * ones. Growth rules, lists, errors, accounts, layouts.
 */
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutants.h"

/* ---- dies and memory ------------------------------------------------------------------------- */

static pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  if (mutant("null_count_taken") && count == NULL) return PN_OK;
  return real->devices(count, infos, err);
}

static pn_status heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err) {
  uint32_t room = count == NULL ? 0 : *count, stride = infos == NULL ? 0 : infos->struct_size;
  pn_heap_info mine[8];
  if (mutant("stride_by_sizeof") && infos != NULL && room != 0 && stride > sizeof *infos) {
    for (uint32_t i = 0; i < 8; ++i) mine[i].struct_size = sizeof mine[i];
    *count = 8;
    pn_status status = real->heaps(device, count, mine, err);
    for (uint32_t i = 0; i < *count && i < room; ++i) {
      mine[i].struct_size = stride;
      memcpy((char*)infos + i * sizeof mine[i], &mine[i], sizeof mine[i]);
    }
    return status;
  }
  pn_status status = real->heaps(device, count, infos, err);
  if (mutant("count_idiom_broken") && status == PN_INCOMPLETE) return PN_OK;
  if (mutant("count_of_room") && status == PN_INCOMPLETE) *count = room;
  return status;
}

static pn_status memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  static uint64_t most;
  uint32_t size = out == NULL ? 0 : out->struct_size;
  unsigned char tail[256];
  if (mutant("out_tail_left") && size > sizeof *out && size - sizeof *out <= sizeof tail)
    memcpy(tail, out + 1, size - sizeof *out);
  pn_status status = real->memory_status(device, out, err);
  if (mutant("loss_forgotten") && status == PN_DEVICE_LOST) return PN_OK;
  if (status != PN_OK) return status;
  if (mutant("out_tail_left") && size > sizeof *out && size - sizeof *out <= sizeof tail)
    memcpy(out + 1, tail, size - sizeof *out);
  if (mutant("struct_size_rewritten")) out->struct_size = sizeof *out;
  if (mutant("used_never_falls") && size >= sizeof *out) {
    if (out->used_by_us > most) most = out->used_by_us;
    out->used_by_us = most;
  }
  return status;
}

static pn_status buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                               void** host, pn_error* err) {
  if (mutant("prints")) {
    static const char text[] = "backend_mutants: a buffer\n";
    (void)!write(2, text, sizeof text - 1);
  }
  if (mutant("rounding_mode_changed")) fesetround(FE_TOWARDZERO);
  if (mutant("unknown_heap_taken") && heap > 7) heap = 0;
  pn_status status = real->buffer_create(device, heap, bytes, out, host, err);
  if (status == PN_OK) return status;
  if (mutant("error_null_differs") && err == NULL) return PN_FAILED;
  if (mutant("error_text_empty") && err != NULL) memset(err->message, 0, sizeof err->message);
  if (mutant("error_code_differs") && err != NULL) err->code = PN_FAILED;
  if (mutant("out_of_memory_failed") && bytes > 1u << 30) return PN_FAILED;
  if (mutant("refused_buffer_kept") && bytes > 4096) {
    pn_buffer kept;
    void* at = NULL;
    real->buffer_create(device, heap, 4096, &kept, &at, NULL);
  }
  return status;
}

/* ---- programs -------------------------------------------------------------------------------- */

static pn_status program_query(pn_device device, const pn_plan* plan, pn_report* report,
                               pn_error* err) {
  static uint64_t asked;
  pn_plan cut;
  if (plan != NULL && plan->struct_size != sizeof cut) {
    int taken = plan->struct_size > sizeof cut && mutant("struct_tail_ignored");
    if (mutant("longer_struct_refused") && plan->struct_size > sizeof cut)
      return pn_loop_fail(err, PN_UNSUPPORTED, "pn_plan is longer than this plugin knows");
    if (taken) {
      memcpy(&cut, plan, sizeof cut);
      cut.struct_size = sizeof cut;
      plan = &cut;
    }
  }
  pn_status status = real->program_query(device, plan, report, err);
  if (status != PN_OK) return status;
  if (mutant("query_varies")) report->scratch_bytes += 64 * ++asked;
  if (mutant("scratch_too_small") && report->scratch_bytes > 4096) report->scratch_bytes -= 4096;
  if (mutant("host_bytes_halved")) report->program_host_bytes /= 2;
  if (mutant("reason_empty"))
    for (uint32_t i = 0; report->spans != NULL && i < report->span_count; ++i)
      memset(PN_AT(pn_span, report->spans, i)->reason, 0, sizeof report->spans->reason);
  return status;
}

static pn_status program_create(pn_device device, const pn_plan* plan, uint32_t count,
                                const pn_binding* bindings, pn_program* out, pn_error* err) {
  pn_status status = real->program_create(device, plan, count, bindings, out, err);
  if (mutant("program_takes_memory") && status == PN_OK) {
    pn_buffer hidden;
    void* at = NULL;
    real->buffer_create(device, 0, 1 << 20, &hidden, &at, NULL);
  }
  return status;
}

static pn_status program_status(pn_program program, pn_program_status* out, pn_error* err) {
  pn_status status = real->program_status(program, out, err);
  if (mutant("stale_handle_taken") && status == PN_INVALID && out != NULL) return PN_OK;
  return status;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

static const pn_layout_api* layout_of(void) { return real->get_interface("pantheon.layout/1"); }

static pn_status rank(const pn_weight* weight, uint64_t target, uint32_t* count,
                      pn_layout_choice* choices, pn_error* err) {
  pn_weight other;
  if (mutant("layout_any_type") && weight != NULL && weight->role <= PN_ROLE_EXPERTS) {
    pn_status known = layout_of()->rank(weight, target, count, choices, err);
    if (known != PN_UNSUPPORTED) return known;
    other = *weight;
    other.source_type = PN_TYPE_F16;
    weight = &other;
  }
  pn_status status = layout_of()->rank(weight, target, count, choices, err);
  if (status != PN_OK || choices == NULL) return status;
  if (mutant("fingerprint_constant")) memset(choices->fingerprint, 1, sizeof choices->fingerprint);
  if (mutant("layout_nameless")) memset(choices->name, 0, sizeof choices->name);
  if (mutant("expert_tiles_uneven") && weight->role == PN_ROLE_EXPERTS) choices->tile_count -= 1;
  return status;
}

static pn_status convert(const pn_weight* weight, uint64_t target, uint64_t layout,
                         const void* source, void* out, uint64_t first, uint64_t count,
                         pn_error* err) {
  pn_status status = layout_of()->convert(weight, target, layout, source, out,
                                          mutant("convert_from_start") ? 0 : first, count, err);
  if (mutant("range_past_end_taken") && status == PN_INVALID) return PN_OK;
  return status;
}

static pn_status decode(const pn_weight* weight, uint64_t target, uint64_t layout, const void* in,
                        float* out, uint64_t first, uint64_t count, pn_error* err) {
  pn_status status = layout_of()->decode(weight, target, layout, in, out, first, count, err);
  if (mutant("decode_scaled") && status == PN_OK)
    for (uint64_t i = 0; i < count * (uint64_t)weight->shape[0]; ++i) out[i] *= 1.02f;
  return status;
}

static pn_status targets(uint32_t* count, pn_pair* pairs, pn_error* err) {
  pn_status status = layout_of()->targets(count, pairs, err);
  if (mutant("target_hexadecimal") && status == PN_OK && pairs != NULL) pairs->value = "0xchip";
  return status;
}

static pn_status describe(pn_device device, pn_sampler_info* out, pn_error* err) {
  const pn_sampler_api* sampler = real->get_interface("pantheon.sampler/1");
  pn_status status = sampler->describe(device, out, err);
  if (mutant("sampler_size_rewritten") && status == PN_OK) out->struct_size = 0;
  return status;
}

static const pn_layout_api layout = {sizeof layout, 0, rank, convert, decode, targets};
static const pn_sampler_api sampler = {sizeof sampler, 0, describe};

static const void* get_interface(const char* id) {
  if (id != NULL && strcmp(id, "pantheon.layout/1") == 0) return &layout;
  if (id != NULL && strcmp(id, "pantheon.sampler/1") == 0) return &sampler;
  if (mutant("unknown_interface") && id != NULL && strncmp(id, "pantheon.layout", 15) == 0)
    return &layout;
  return real->get_interface(id);
}

void mutate_table(pn_plugin* table) {
  table->devices = devices;
  table->heaps = heaps;
  table->memory_status = memory_status;
  table->buffer_create = buffer_create;
  table->program_query = program_query;
  table->program_create = program_create;
  table->program_status = program_status;
  table->get_interface = get_interface;
}
