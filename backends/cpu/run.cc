// SPDX-License-Identifier: Apache-2.0
//
// Runs a step on the leader's side: edits, admission of entries, and the team's walk over the ops.
//
// Nothing here allocates. What the host can still have wrong at this point is a page it never gave:
// that fails the queue before any op runs.
#include <algorithm>
#include <cstring>

#include "backends/cpu/emit.h"
#include "backends/cpu/error.h"
#include "backends/cpu/queue.h"
#include "backends/cpu/state.h"

namespace pn::cpu {

void Program::submitted(const Work&, pn_queue queue) { queue_id = queue.id; }

void Program::edit(const Step& step) {
  for (uint32_t i = 0; i < step.lane_count; ++i) {
    const pn_lane& from = step.lanes[i];
    Lane& lane = lanes[from.lane];
    if ((from.flags & PN_LANE_RESET) != 0) {
      lane.known = 0;
      for (size_t c = 0; c < tables.size(); ++c) {
        if (tables[c] == nullptr) continue;
        const uint64_t row = plan.caches[c].units_per_lane;
        std::fill_n(tables[c] + from.lane * row, row, PN_NONE);
      }
    }
    lane.setup = from;
    lane.bias = step.biases[i];
    if (from.history_count == 0) continue;
    int32_t* at = history + uint64_t{from.lane} * plan.context;
    if (lane.known < from.history_position)
      std::fill(at + lane.known, at + from.history_position, -1);
    memcpy(at + from.history_position, step.tokens + from.history_token,
           from.history_count * sizeof(int32_t));
    lane.known = from.history_position + from.history_count;
  }
  for (uint32_t i = 0; i < step.page_count; ++i) {
    const pn_pages& from = step.pages[i];
    uint32_t* row = tables[from.cache] +
                    uint64_t{from.lane} * plan.caches[from.cache].units_per_lane + from.index;
    for (uint32_t k = 0; k < from.count; ++k) row[k] = from.page + k;
  }
}

pn_status Program::check_pages(const pn_entry& entry, pn_error* err) const {
  for (size_t c = 0; c < tables.size(); ++c) {
    if (tables[c] == nullptr) continue;
    const pn_cache& info = plan.caches[c];
    const uint32_t window = code.caches[c].window;
    const uint32_t oldest =
        window == 0 || entry.position + 1 <= window ? 0 : entry.position + 1 - window;
    const uint32_t last = (entry.position + entry.count - 1) / info.unit_tokens;
    for (uint32_t page = oldest / info.unit_tokens; page <= last; ++page) {
      if (page < info.units_per_lane &&
          tables[c][uint64_t{entry.lane} * info.units_per_lane + page] != PN_NONE)
        continue;
      return fail(
          err, PN_INVALID,
          "lane %u at position %u needs entry %u of its table of cache %zu, which was never "
          "given a page",
          entry.lane, entry.position, page, c);
    }
  }
  return PN_OK;
}

pn_status Program::admit(const Step& step, pn_error* err) {
  uint32_t next = 0;
  for (uint32_t e = 0; e < step.entry_count; ++e) {
    const pn_entry& entry = step.entries[e];
    const pn_status status = check_pages(entry, err);
    if (status != PN_OK) return status;
    spoiled[e] = 0;
    Lane& lane = lanes[entry.lane];
    int32_t* past = history + uint64_t{entry.lane} * plan.context;
    if (lane.known < entry.position) std::fill(past + lane.known, past + entry.position, -1);
    const bool feed = (entry.flags & PN_ENTRY_FEED) != 0;
    const int32_t* from = feed ? ids + uint64_t{entry.lane} * plan.ids_depth + entry.token
                               : step.tokens + entry.token;
    for (uint32_t i = 0; i < entry.count; ++i) {
      int32_t id = from[i];
      past[entry.position + i] = id;
      if (code.embeds && static_cast<uint32_t>(id) >= code.table_rows) {
        // Only a fed id can be that: it spoils its own lane and nothing else.
        spoiled[e] = 1;
        id = 0;
      }
      if (feed && id < 0) spoiled[e] = 1;
      tokens[next++] = {e, entry.lane, entry.position + i, id};
    }
    lane.known = entry.position + entry.count;
  }
  return PN_OK;
}

pn_status Program::run(Team& team, const Step& step, pn_error* err) {
  edit(step);
  if (step.entry_count == 0) return PN_OK;
  const pn_status status = admit(step, err);
  if (status != PN_OK) return status;
  held_count = 0;
  Run run{*this, step, team, *matmul, *vectors};
  run.threads = team.size();
  run.rows = step.row_count;
  run.one_each = true;
  for (uint32_t e = 0; e < step.entry_count; ++e) {
    run.tokens += step.entries[e].count;
    run.one_each = run.one_each && step.entries[e].count == 1;
  }
  run.token = tokens;
  run.scratch = scratch;
  run.claims = claims;
  for (uint32_t i = 0; i < code.claims; ++i) claims[i].store(0, std::memory_order_relaxed);
  run.work = scratch + code.work_offset;
  team.run(
      [](void* argument, uint32_t thread) {
        const Run& shared = *static_cast<const Run*>(argument);
        for (const auto& op : shared.program.code.ops) op->run(shared, thread);
      },
      &run);
  settle(step);
  return PN_OK;
}

// Rows in order: two that write one id slot leave the later one's id, whichever thread drew it.
void Program::keep_id(const pn_row& row, uint32_t lane, const std::byte* target) {
  if ((row.flags & PN_ROW_SAMPLE) == 0 || row.id_slot == PN_NONE) return;
  pn_result result = {};
  memcpy(&result, target, sizeof(result));
  ids[uint64_t{lane} * plan.ids_depth + row.id_slot] = result.id;
}

void Program::settle(const Step& step) {
  for (uint32_t r = 0; r < step.row_count; ++r) {
    const pn_row& row = step.rows[r];
    if ((row.flags & PN_ROW_HOLD) == 0) {
      keep_id(row, step.entries[row.entry].lane, step.targets[r]);
      continue;
    }
    const pn_entry& entry = step.entries[row.entry];
    held[held_count] = {row.entry, row.token, entry.lane, entry.position + row.token,
                        spoiled[row.entry] != 0};
    memcpy(held_logits + uint64_t{held_count} * code.vocab, slots[code.logits].row(r),
           code.vocab * sizeof(float));
    ++held_count;  // no more than held_max: checked at submit
  }
}

pn_status Program::sample(Team&, const Step& step, pn_error* err) {
  for (uint32_t r = 0; r < step.row_count; ++r) {
    const pn_row& row = step.rows[r];
    uint32_t h = 0;
    while (h < held_count && (held[h].entry != row.entry || held[h].token != row.token)) ++h;
    if (h == held_count)
      return fail(err, PN_INVALID, "token %u of entry %u is not held by the last run", row.token,
                  row.entry);
    RowJob job{*this, row};
    job.target = step.targets[r];
    job.mask = step.masks[r];
    job.lane = held[h].lane;
    job.position = held[h].position;
    job.spoiled = held[h].spoiled;
    job.logits = held_logits + uint64_t{h} * code.vocab;
    job.stats = scan_all(*vectors, job.logits, static_cast<int32_t>(code.vocab));
    job.scratch = sample_scratch(scratch + code.sampler_offset, code.vocab);
    serve_row(job);
    keep_id(row, job.lane, job.target);
  }
  return PN_OK;
}

}  // namespace pn::cpu
