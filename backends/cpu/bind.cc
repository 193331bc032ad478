// SPDX-License-Identifier: Apache-2.0
//
// Gives a compiled program its addresses: bound slices, and the records it keeps itself.
#include <algorithm>
#include <cstdio>
#include <new>

#include "backends/cpu/device.h"
#include "backends/cpu/error.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/memory.h"
#include "backends/cpu/program.h"

namespace pn::cpu {
namespace {

bool is_tiled(uint32_t role) {
  return role == PN_ROLE_MATRIX || role == PN_ROLE_TABLE || role == PN_ROLE_TIED ||
         role == PN_ROLE_EXPERTS;
}

void open_weight(const pn_weight& info, Weight* w) {
  w->info = info;
  uint64_t parts = 1;
  if (is_tiled(info.role)) {
    parts = static_cast<uint64_t>(info.shape[2] * info.shape[3]);
    w->part_bytes = static_cast<uint64_t>(tile_count(info.shape[1])) *
                    tile_bytes(info.source_type, info.shape[0]);
  } else {
    w->part_bytes =
        4 * static_cast<uint64_t>(info.shape[0] * info.shape[1] * info.shape[2] * info.shape[3]);
  }
  w->parts.assign(parts, nullptr);
}

class Binder {
 public:
  Binder(Program* program, pn_error* err) : p_(*program), err_(err) {}

  pn_status take(const pn_binding& binding) {
    switch (binding.kind) {
      case PN_BIND_WEIGHT:
        return weight(binding);
      case PN_BIND_SLOT:
        return slot(binding);
      case PN_BIND_CACHE:
        return cache(binding);
      case PN_BIND_SCRATCH:
        return scratch(binding);
      case PN_BIND_IDS:
        return ids(binding);
      default:
        return fail(err_, PN_INVALID, "binding kind %u is unknown", binding.kind);
    }
  }

  pn_status missing() const {
    for (size_t i = 0; i < p_.weights.size(); ++i)
      for (size_t part = 0; part < p_.weights[i].parts.size(); ++part)
        if (p_.weights[i].parts[part] == nullptr)
          return fail(err_, PN_INVALID, "weight %zu (role %u, layer %u): part %zu is not bound", i,
                      p_.weights[i].info.role, p_.weights[i].info.layer, part);
    for (size_t i = 0; i < p_.plan.slots.size(); ++i)
      if (p_.plan.slots[i].kind != PN_SLOT_INTERNAL && p_.bound[i] == nullptr)
        return fail(err_, PN_INVALID, "slot %zu is not bound", i);
    for (size_t i = 0; i < p_.code.caches.size(); ++i)
      if (p_.code.caches[i].base == nullptr)
        return fail(err_, PN_INVALID, "cache %zu is not bound", i);
    if (p_.scratch == nullptr) return fail(err_, PN_INVALID, "scratch is not bound");
    if ((p_.code.embeds || p_.code.emits) && p_.ids == nullptr)
      return fail(err_, PN_INVALID, "ids are not bound");
    return PN_OK;
  }

 private:
  pn_status weight(const pn_binding& b) {
    if (b.index >= p_.weights.size())
      return fail(err_, PN_INVALID, "binding of weight %u of %zu", b.index, p_.weights.size());
    Weight& w = p_.weights[b.index];
    const auto parts = static_cast<uint32_t>(w.parts.size());
    const uint32_t count = b.part_count == 0 ? parts - std::min(parts, b.first_part) : b.part_count;
    if (count == 0 || b.first_part >= parts || count > parts - b.first_part)
      return fail(err_, PN_INVALID, "weight %u: parts %u + %u of %u", b.index, b.first_part, count,
                  parts);
    char what[32];
    snprintf(what, sizeof(what), "weight %u", b.index);
    const SliceNeed need = {what, w.part_bytes * count, PN_HEAP_BINDS, false,
                            is_tiled(w.info.role) ? 64u : 4u};
    const std::byte* at = slice_address(b.slice, need, err_);
    if (at == nullptr) return PN_INVALID;
    for (uint32_t i = 0; i < count; ++i) w.parts[b.first_part + i] = at + i * w.part_bytes;
    return PN_OK;
  }

  pn_status slot(const pn_binding& b) {
    if (b.index >= p_.plan.slots.size() || p_.plan.slots[b.index].kind == PN_SLOT_INTERNAL)
      return fail(err_, PN_INVALID, "binding of slot %u, which is no input or output", b.index);
    const pn_slot& info = p_.plan.slots[b.index];
    const uint32_t bytes = info.type == PN_TYPE_F32 ? 4 : 2;
    char what[32];
    snprintf(what, sizeof(what), "slot %u", b.index);
    const SliceNeed need = {what, uint64_t{p_.plan.slot_rows(b.index)} * info.width * bytes, 0,
                            info.kind == PN_SLOT_OUTPUT, bytes};
    p_.bound[b.index] = slice_address(b.slice, need, err_);
    return p_.bound[b.index] == nullptr ? PN_INVALID : PN_OK;
  }

  pn_status cache(const pn_binding& b) {
    if (b.index >= p_.code.caches.size())
      return fail(err_, PN_INVALID, "binding of cache %u of %zu", b.index, p_.code.caches.size());
    Cache& cache = p_.code.caches[b.index];
    char what[32];
    snprintf(what, sizeof(what), "cache %u", b.index);
    const SliceNeed need = {what, std::max<uint64_t>(1, cache.unit_bytes), 0, true, 64};
    cache.base = slice_address(b.slice, need, err_);
    if (cache.base == nullptr) return PN_INVALID;
    cache.units = b.slice.bytes / std::max<uint64_t>(1, cache.unit_bytes);
    return PN_OK;
  }

  pn_status scratch(const pn_binding& b) {
    const SliceNeed need = {"scratch", p_.code.scratch_bytes, 0, true, 64};
    p_.scratch = slice_address(b.slice, need, err_);
    return p_.scratch == nullptr ? PN_INVALID : PN_OK;
  }

  pn_status ids(const pn_binding& b) {
    const SliceNeed need = {"ids", uint64_t{p_.plan.lanes} * p_.plan.ids_depth * sizeof(int32_t), 0,
                            true, 4};
    p_.ids = reinterpret_cast<int32_t*>(slice_address(b.slice, need, err_));
    return p_.ids == nullptr ? PN_INVALID : PN_OK;
  }

  Program& p_;
  pn_error* err_;
};

// Lays the records out one after the other; with base nullptr it only counts.
class Records {
 public:
  explicit Records(std::byte* base) : base_(base) {}
  template <typename T>
  T* take(uint64_t count) {
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return at;
  }
  uint64_t used() const { return used_; }

 private:
  std::byte* base_;
  uint64_t used_ = 0;
};

// Rows that can be held at once: each lane's, for each id it keeps.
uint32_t held_max(const Plan& plan, const Compiled& code) {
  if (code.vocab == 0) return 0;
  return static_cast<uint32_t>(
      std::min<uint64_t>(plan.rows, uint64_t{plan.lanes} * plan.ids_depth));
}

void lay_out(const Plan& plan, const Compiled& code, Records* records, Program* p) {
  p->lanes = records->take<Lane>(plan.lanes);
  p->history = records->take<int32_t>(uint64_t{plan.lanes} * plan.context);
  p->tables.clear();
  for (const Cache& cache : code.caches)
    p->tables.push_back(
        cache.info.kind != PN_CACHE_PAGED
            ? nullptr
            : records->take<uint32_t>(uint64_t{plan.lanes} * cache.info.units_per_lane));
  p->tokens = records->take<Token>(plan.tokens);
  p->spoiled = records->take<uint8_t>(plan.entries);
  p->claims = records->take<std::atomic<uint32_t>>(code.claims);
  p->held_max = held_max(plan, code);
  p->held = records->take<HeldRow>(p->held_max);
  p->held_logits = records->take<float>(uint64_t{p->held_max} * code.vocab);
}

}  // namespace

Matrix Weight::matrix(uint64_t part) const {
  return {info.source_type, info.shape[1], info.shape[0], parts[part]};
}

pn_status bind(Program* program, uint32_t count, const pn_binding* bindings, pn_error* err) {
  Program& p = *program;
  p.weights.resize(p.plan.weights.size());
  for (size_t i = 0; i < p.weights.size(); ++i) open_weight(p.plan.weights[i], &p.weights[i]);
  p.bound.assign(p.plan.slots.size(), nullptr);
  Binder binder(program, err);
  for (uint32_t i = 0; i < count; ++i) {
    const pn_status status = binder.take(bindings[i]);
    if (status != PN_OK) return status;
  }
  const pn_status status = binder.missing();
  if (status != PN_OK) return status;
  p.slots.resize(p.plan.slots.size());
  for (size_t i = 0; i < p.slots.size(); ++i) {
    const uint64_t offset = p.code.slot_offset[i];
    std::byte* at = offset == UINT64_MAX ? p.bound[i] : p.scratch + offset;
    p.slots[i] = {reinterpret_cast<float*>(at), p.code.slot_stride[i], p.plan.slots[i].width};
  }
  return PN_OK;
}

uint64_t record_bytes(const Plan& plan, const Compiled& code) {
  Program counted;
  Records records(nullptr);
  lay_out(plan, code, &records, &counted);
  return std::max<uint64_t>(64, records.used());
}

void place_records(Program* program) {
  Program& p = *program;
  Records records(p.records);
  lay_out(p.plan, p.code, &records, program);
  for (uint32_t i = 0; i < p.plan.lanes; ++i) {
    Lane* lane = new (&p.lanes[i]) Lane;
    lane->setup.top_p = lane->setup.repeat_penalty = 1;
  }
  for (size_t c = 0; c < p.tables.size(); ++c)
    if (p.tables[c] != nullptr)
      std::fill_n(p.tables[c], uint64_t{p.plan.lanes} * p.plan.caches[c].units_per_lane, PN_NONE);
}

}  // namespace pn::cpu
