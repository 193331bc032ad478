// SPDX-License-Identifier: Apache-2.0
//
// Copies a step into a ring slot and refuses what is wrong with it. See step.h.
#include "backends/cpu/step.h"

#include <cmath>
#include <cstring>

#include "backends/cpu/emit.h"
#include "backends/cpu/error.h"
#include "backends/cpu/memory.h"

namespace pn::cpu {
namespace {

class Resolver {
 public:
  Resolver(const Program& program, Arena* arena, Step* out, pn_error* err)
      : program_(program), plan_(program.plan), arena_(arena), out_(out), err_(err) {}

  pn_status run(uint32_t shape, const pn_step* from) {
    if (from == nullptr) return fail(err_, PN_INVALID, "the step is NULL");
    if (!pn_read(&step_, sizeof(step_), from, sizeof(step_)))
      return fail(err_, PN_UNSUPPORTED, "pn_step says something newer than this plugin knows");
    if (shape >= plan_.shapes.size())
      return fail(err_, PN_INVALID, "shape %u of a plan that has %zu", shape, plan_.shapes.size());
    shape_ = plan_.shapes[shape];
    out_->shape = shape;
    pn_status status = copy();
    if (status == PN_OK) status = lanes();
    if (status == PN_OK) status = pages();
    if (status == PN_OK) status = entries();
    if (status == PN_OK) status = rows(false);
    return status;
  }

  pn_status held(uint32_t, const pn_step* from) {
    if (from == nullptr) return fail(err_, PN_INVALID, "the step is NULL");
    if (!pn_read(&step_, sizeof(step_), from, sizeof(step_)))
      return fail(err_, PN_UNSUPPORTED, "pn_step says something newer than this plugin knows");
    if (step_.token_count + step_.lane_count + step_.page_count + step_.entry_count != 0)
      return fail(err_, PN_INVALID, "a sampling command's step has rows only");
    shape_.rows = UINT32_MAX;
    pn_status status = copy();
    if (status == PN_OK) status = rows(true);
    return status;
  }

 private:
  template <typename T>
  const T* take(const T* from, uint32_t count) {
    auto* to = static_cast<T*>(arena_->take(uint64_t{count} * sizeof(T)));
    if (to != nullptr && count != 0) memcpy(to, from, uint64_t{count} * sizeof(T));
    return to;
  }

  pn_status copy() {
    const pn_step& s = step_;
    const bool lists =
        (s.token_count == 0 || s.tokens != nullptr) && (s.lane_count == 0 || s.lanes != nullptr) &&
        (s.page_count == 0 || s.pages != nullptr) && (s.entry_count == 0 || s.entries != nullptr) &&
        (s.row_count == 0 || s.rows != nullptr);
    if (!lists)
      return fail(err_, PN_INVALID, "a list of the step is NULL though its count is not 0");
    const uint64_t bytes = uint64_t{s.token_count} * 4 + uint64_t{s.lane_count} * sizeof(pn_lane) +
                           uint64_t{s.page_count} * sizeof(pn_pages) +
                           uint64_t{s.entry_count} * sizeof(pn_entry) +
                           uint64_t{s.row_count} * sizeof(pn_row);
    if (bytes > program_.step_bytes_max)
      return fail(err_, PN_INVALID,
                  "a step of %llu bytes; this program takes %llu: send more edits in runs without "
                  "entries",
                  static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(program_.step_bytes_max));
    if (s.entry_count > shape_.entries || s.row_count > shape_.rows)
      return fail(err_, PN_INVALID, "%u entries and %u rows in a shape of %u and %u", s.entry_count,
                  s.row_count, shape_.entries, shape_.rows);
    out_->token_count = s.token_count;
    out_->lane_count = s.lane_count;
    out_->page_count = s.page_count;
    out_->entry_count = s.entry_count;
    out_->row_count = s.row_count;
    out_->tokens = take(s.tokens, s.token_count);
    out_->pages = take(s.pages, s.page_count);
    out_->entries = take(s.entries, s.entry_count);
    out_->rows = take(s.rows, s.row_count);
    lanes_ = static_cast<pn_lane*>(arena_->take(uint64_t{s.lane_count} * sizeof(pn_lane)));
    biases_ = static_cast<const std::byte**>(arena_->take(s.lane_count * sizeof(void*)));
    masks_ = static_cast<const std::byte**>(arena_->take(s.row_count * sizeof(void*)));
    targets_ = static_cast<std::byte**>(arena_->take(s.row_count * sizeof(void*)));
    // Taken in order: when the last fits, all do.
    if (targets_ == nullptr) return fail(err_, PN_INVALID, "the submit's steps are too long");
    out_->lanes = lanes_;
    out_->biases = biases_;
    out_->masks = masks_;
    out_->targets = targets_;
    return PN_OK;
  }

  pn_status lanes() {
    for (uint32_t i = 0; i < step_.lane_count; ++i) {
      pn_lane& lane = lanes_[i];
      if (!pn_read(&lane, sizeof(lane), PN_AT_CONST(pn_lane, step_.lanes, i), sizeof(lane)))
        return fail(err_, PN_UNSUPPORTED, "pn_lane says something newer than this plugin knows");
      const pn_status status = check_lane(lane, i);
      if (status != PN_OK) return status;
    }
    return PN_OK;
  }

  pn_status check_lane(const pn_lane& lane, uint32_t i) {
    if (lane.lane >= plan_.lanes)
      return fail(err_, PN_INVALID, "lane edit %u: lane %u of %u", i, lane.lane, plan_.lanes);
    if ((lane.flags & ~PN_LANE_RESET) != 0 || lane.reserved != 0)
      return fail(err_, PN_INVALID, "lane edit %u: flags %#x", i, lane.flags);
    if (lane.adapter != PN_NONE)
      return fail(err_, PN_INVALID, "lane edit %u: adapter %u, but the plan has none (PN_NONE)", i,
                  lane.adapter);
    const bool fine = lane.temperature >= 0 && std::isfinite(lane.temperature) && lane.top_p >= 0 &&
                      lane.min_p >= 0 && lane.repeat_penalty > 0 &&
                      std::isfinite(lane.repeat_penalty) && std::isfinite(lane.presence_penalty) &&
                      std::isfinite(lane.frequency_penalty);
    if (!fine)
      return fail(err_, PN_INVALID,
                  "lane edit %u: temperature %g, top_p %g, min_p %g, repeat_penalty %g: not "
                  "negative, repeat_penalty above 0, all finite",
                  i, double{lane.temperature}, double{lane.top_p}, double{lane.min_p},
                  double{lane.repeat_penalty});
    if (uint64_t{lane.history_token} + lane.history_count > step_.token_count ||
        uint64_t{lane.history_position} + lane.history_count > plan_.context)
      return fail(err_, PN_INVALID,
                  "lane edit %u: history of %u tokens from token %u at position %u; %u tokens came "
                  "and the context is %u",
                  i, lane.history_count, lane.history_token, lane.history_position,
                  step_.token_count, plan_.context);
    biases_[i] = nullptr;
    if (lane.bias_count == 0) return PN_OK;
    const SliceNeed need = {"bias", uint64_t{lane.bias_count} * 8, PN_HEAP_BINDS, false, 4};
    biases_[i] = slice_address(lane.bias, need, err_);
    return biases_[i] == nullptr ? PN_INVALID : PN_OK;
  }

  pn_status pages() {
    for (uint32_t i = 0; i < step_.page_count; ++i) {
      const pn_pages& edit = out_->pages[i];
      if (edit.cache >= program_.code.caches.size() || program_.tables[edit.cache] == nullptr)
        return fail(err_, PN_INVALID, "page edit %u: cache %u is no paged cache of the plan", i,
                    edit.cache);
      const Cache& cache = program_.code.caches[edit.cache];
      if (edit.lane >= plan_.lanes)
        return fail(err_, PN_INVALID, "page edit %u: lane %u of %u", i, edit.lane, plan_.lanes);
      if (uint64_t{edit.index} + edit.count > cache.info.units_per_lane)
        return fail(err_, PN_INVALID, "page edit %u: entries %u + %u of a table of %u", i,
                    edit.index, edit.count, cache.info.units_per_lane);
      if (uint64_t{edit.page} + edit.count > cache.units)
        return fail(err_, PN_INVALID, "page edit %u: pages %u + %u of %llu in cache %u", i,
                    edit.page, edit.count, static_cast<unsigned long long>(cache.units),
                    edit.cache);
      if (edit.reserved != 0) return fail(err_, PN_INVALID, "page edit %u: reserved", i);
    }
    return PN_OK;
  }

  pn_status entries() {
    uint64_t total = 0;
    for (uint32_t i = 0; i < step_.entry_count; ++i) {
      const pn_entry& entry = out_->entries[i];
      if (entry.lane >= plan_.lanes)
        return fail(err_, PN_INVALID, "entry %u: lane %u of %u", i, entry.lane, plan_.lanes);
      for (uint32_t k = 0; k < i; ++k)
        if (out_->entries[k].lane == entry.lane)
          return fail(err_, PN_INVALID, "entries %u and %u both advance lane %u", k, i, entry.lane);
      if ((entry.flags & ~PN_ENTRY_FEED) != 0)
        return fail(err_, PN_INVALID, "entry %u: flags %#x", i, entry.flags);
      if (entry.count == 0 || uint64_t{entry.position} + entry.count > shape_.context)
        return fail(err_, PN_INVALID, "entry %u: %u tokens at position %u in a context of %u", i,
                    entry.count, entry.position, shape_.context);
      total += entry.count;
      const pn_status status = check_tokens(entry, i);
      if (status != PN_OK) return status;
    }
    if (total > shape_.tokens)
      return fail(err_, PN_INVALID, "%llu tokens in a shape of %u",
                  static_cast<unsigned long long>(total), shape_.tokens);
    return PN_OK;
  }

  pn_status check_tokens(const pn_entry& entry, uint32_t i) {
    const uint64_t end = uint64_t{entry.token} + entry.count;
    if ((entry.flags & PN_ENTRY_FEED) != 0) {
      if (end > plan_.ids_depth || program_.ids == nullptr)
        return fail(err_, PN_INVALID, "entry %u: feeds ids %u + %u of %u", i, entry.token,
                    entry.count, program_.ids == nullptr ? 0 : plan_.ids_depth);
      return PN_OK;
    }
    if (end > step_.token_count)
      return fail(err_, PN_INVALID, "entry %u: tokens %u + %u of %u", i, entry.token, entry.count,
                  step_.token_count);
    if (!program_.code.embeds) return PN_OK;
    for (uint32_t k = entry.token; k < end; ++k)
      if (static_cast<uint32_t>(out_->tokens[k]) >= program_.code.table_rows)
        return fail(err_, PN_INVALID, "entry %u: token %d, the table has %u rows", i,
                    out_->tokens[k], program_.code.table_rows);
    return PN_OK;
  }

  pn_status rows(bool held) {
    uint32_t holds = 0;
    for (uint32_t i = 0; i < step_.row_count; ++i) {
      const pn_row& row = out_->rows[i];
      if ((row.flags & PN_ROW_HOLD) != 0 && ++holds > program_.held_max)
        return fail(err_, PN_INVALID, "row %u: %u rows can be held, lanes times ids_depth", i,
                    program_.held_max);
      if (!held && (row.entry >= step_.entry_count || row.token >= out_->entries[row.entry].count))
        return fail(err_, PN_INVALID, "row %u: token %u of entry %u, of %u entries", i, row.token,
                    row.entry, step_.entry_count);
      const pn_status status = check_row(row, i, held);
      if (status != PN_OK) return status;
    }
    return PN_OK;
  }

  pn_status check_row(const pn_row& row, uint32_t i, bool held) {
    constexpr uint32_t kFlags = PN_ROW_SAMPLE | PN_ROW_HOLD | PN_ROW_LOGITS | PN_ROW_HIDDEN;
    masks_[i] = nullptr;
    targets_[i] = nullptr;
    if ((row.flags & ~kFlags) != 0 || row.reserved != 0)
      return fail(err_, PN_INVALID, "row %u: flags %#x", i, row.flags);
    if ((row.flags & PN_ROW_HOLD) != 0 && (held || (row.flags & PN_ROW_SAMPLE) == 0))
      return fail(err_, PN_INVALID, "row %u: HOLD goes with SAMPLE in a run", i);
    const bool logits = (row.flags & (PN_ROW_SAMPLE | PN_ROW_LOGITS)) != 0 || row.top != 0;
    if (logits && program_.code.vocab == 0)
      return fail(err_, PN_INVALID, "row %u asks for logits, which this plan does not emit", i);
    if ((row.flags & PN_ROW_HIDDEN) != 0 && (program_.code.hidden == 0 || held))
      return fail(err_, PN_INVALID, "row %u asks for a hidden row, which is not emitted here", i);
    if (row.top > kTopMax || row.top > program_.code.vocab)
      return fail(err_, PN_INVALID, "row %u: %u candidates; %u at most", i, row.top, kTopMax);
    if ((row.flags & PN_ROW_SAMPLE) != 0 && row.id_slot != PN_NONE &&
        (row.id_slot >= plan_.ids_depth || program_.ids == nullptr))
      return fail(err_, PN_INVALID, "row %u: id slot %u of %u", i, row.id_slot, plan_.ids_depth);
    if (row.mask_form > PN_MASK_DENY || (row.mask_form == PN_MASK_NONE && row.mask_count != 0))
      return fail(err_, PN_INVALID, "row %u: mask form %u", i, row.mask_form);
    if (row.mask_form != PN_MASK_NONE && row.mask_count != 0) {
      const SliceNeed need = {"mask", uint64_t{row.mask_count} * 4, PN_HEAP_BINDS, false, 4};
      masks_[i] = slice_address(row.mask, need, err_);
      if (masks_[i] == nullptr) return PN_INVALID;
    }
    const uint64_t bytes = row_target_bytes(row, program_.code.vocab, program_.code.hidden);
    if (bytes == 0) return PN_OK;
    const SliceNeed need = {"row target", bytes, PN_HEAP_RESULTS, true, 4};
    targets_[i] = slice_address(row.target, need, err_);
    return targets_[i] == nullptr ? PN_INVALID : PN_OK;
  }

  const Program& program_;
  const Plan& plan_;
  Arena* arena_;
  Step* out_;
  pn_error* err_;
  pn_step step_ = {};
  pn_shape shape_ = {};
  pn_lane* lanes_ = nullptr;
  const std::byte** biases_ = nullptr;
  const std::byte** masks_ = nullptr;
  std::byte** targets_ = nullptr;
};

}  // namespace

pn_status resolve_step(const Program& program, uint32_t shape, const pn_step* from, bool held,
                       Arena* arena, Step* out, pn_error* err) {
  Resolver resolver(program, arena, out, err);
  return held ? resolver.held(shape, from) : resolver.run(shape, from);
}

}  // namespace pn::cpu
