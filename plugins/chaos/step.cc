// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: what a submit does once it is due. A page of a cache holds the ids that were
// written at its positions, so what a row sees is exactly what the host made visible: one wrong
// page, position or fed id changes every id after it. Copies of pages are copies of that.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "plugins/chaos/chaos.h"

namespace chaos {
namespace {

struct Run {
  Program& program;
  std::byte* pages;  // cache 0, nullptr when the plan has none
  uint64_t page_count;
  int32_t* ids;  // [lanes][ids_depth], nullptr when the plan has none
  bool no_ids;   // nan_step
};

void edit(Run& run, const Step& step) {
  for (const pn_lane& setup : step.lanes) {
    Lane& lane = run.program.lane[setup.lane];
    if ((setup.flags & PN_LANE_RESET) != 0) lane = {};
  }
  for (const pn_pages& edit : step.pages) {
    if (edit.cache != 0) continue;
    std::vector<uint32_t>& table = run.program.lane[edit.lane].table;
    const size_t end = size_t{edit.index} + edit.count;
    if (table.size() < end) table.resize(end, PN_NONE);
    for (uint32_t i = 0; i < edit.count; ++i) table[edit.index + i] = edit.page + i;
  }
}

// Where the id at a position of a lane stands; nullptr when no page was given for it.
int32_t* cell(const Run& run, uint32_t lane, uint32_t position) {
  const std::vector<uint32_t>& table = run.program.lane[lane].table;
  const uint32_t index = position / run.program.page_tokens;
  if (index >= table.size() || table[index] >= run.page_count) return nullptr;
  std::byte* page = run.pages + table[index] * run.program.page_bytes;
  return reinterpret_cast<int32_t*>(page) + position % run.program.page_tokens;
}

std::string no_page(uint32_t lane, uint32_t position) {
  return "position " + std::to_string(position) + " of lane " + std::to_string(lane) +
         " has no page";
}

std::string append(Run& run, const Step& step) {
  for (const pn_entry& entry : step.entries) {
    const bool fed = (entry.flags & PN_ENTRY_FEED) != 0;
    const int32_t* from = step.tokens.data() + entry.token;
    if (fed) {
      if (run.ids == nullptr) return "a fed entry, and ids is not bound";
      from = run.ids + uint64_t{entry.lane} * run.program.ids_depth + entry.token;
    }
    for (uint32_t i = 0; run.pages != nullptr && i < entry.count; ++i) {
      int32_t* to = cell(run, entry.lane, entry.position + i);
      if (to == nullptr) return no_page(entry.lane, entry.position + i);
      *to = from[i];
    }
  }
  return "";
}

int32_t next_id(Run& run, uint32_t lane, uint32_t position, std::string* wrong) {
  const Options& o = state().options;
  Lane& of = run.program.lane[lane];
  if (of.first_draw < 0 || position < of.first_draw) of.first_draw = position;
  if (o.draw == Draw::list) {
    const auto n = static_cast<size_t>(position - of.first_draw);
    return o.ids[std::min(n, o.ids.size() - 1)];
  }
  std::vector<int32_t> seen;
  for (uint32_t p = 0; run.pages != nullptr && p < position; ++p) {
    const int32_t* at = cell(run, lane, p);
    if (at == nullptr) {
      *wrong = no_page(lane, p);
      return -1;
    }
    seen.push_back(*at);
  }
  const uint64_t vocab = std::max<uint64_t>(1, run.program.vocab);
  const uint64_t low = std::min(o.token_min, vocab - 1);
  const uint64_t high = std::max(low, std::min(o.token_max, vocab - 1));
  return static_cast<int32_t>(low) +
         chaos_next(o.seed, seen.data(), seen.size(), static_cast<uint32_t>(high - low + 1));
}

std::string emit(Run& run, const pn_entry& entry, const pn_row& row) {
  std::string wrong;
  const uint32_t position = entry.position + row.token + 1;  // of the new id
  int32_t id = next_id(run, entry.lane, position, &wrong);
  if (!wrong.empty()) return wrong;
  if (run.no_ids) id = -1;
  std::byte* to = at(row.target);
  if (to == nullptr) return "row: its target is gone";
  if ((row.flags & PN_ROW_SAMPLE) != 0) {
    const pn_result result{id, -0.5f, run.no_ids ? NAN : 2.0f, row.top};
    std::memcpy(to, &result, sizeof result);
    to += sizeof result;
    if (row.id_slot != PN_NONE && run.ids != nullptr) {
      run.ids[uint64_t{entry.lane} * run.program.ids_depth + row.id_slot] = id;
    }
  }
  for (uint32_t i = 0; i < row.top; ++i) {
    const pn_candidate candidate{id + static_cast<int32_t>(i), 1.5f - static_cast<float>(i)};
    std::memcpy(to, &candidate, sizeof candidate);
    to += sizeof candidate;
  }
  if ((row.flags & PN_ROW_LOGITS) != 0) {
    const float peak = 1.5f;
    std::memset(to, 0, run.program.vocab * sizeof(float));
    if (id >= 0) std::memcpy(to + static_cast<size_t>(id) * sizeof(float), &peak, sizeof peak);
    to += run.program.vocab * sizeof(float);
  }
  if ((row.flags & PN_ROW_HIDDEN) != 0) std::memset(to, 0, run.program.hidden * sizeof(float));
  return "";
}

std::string run_command(const Queue& queue, const Command& command) {
  State& s = state();
  auto found = s.programs.find(command.head.program.id);
  if (found == s.programs.end()) return "the program was destroyed while queued";
  Program& program = found->second;
  const Die& die = s.dies[queue.die];
  Run run{program, nullptr, 0, nullptr, die.runs == s.of(die).nan_step};
  run.ids = reinterpret_cast<int32_t*>(program.ids.bytes != 0 ? at(program.ids) : nullptr);
  if (program.page_tokens != 0) {
    run.pages = at(program.pages);
    run.page_count = program.pages.bytes / program.page_bytes;
    if (run.pages == nullptr) return "the cache was destroyed while queued";
  }
  const bool step = command.head.kind == PN_CMD_RUN;
  if (step) {
    ++s.counts.steps;
    edit(run, command.step);
    const std::string wrong = append(run, command.step);
    if (!wrong.empty()) return wrong;
    program.last = command.step.entries;
  }
  for (const pn_row& row : command.step.rows) {
    if (step && (row.flags & PN_ROW_HOLD) != 0) continue;
    if (row.entry >= program.last.size()) return "row: no such entry in the last RUN";
    const std::string wrong = emit(run, program.last[row.entry], row);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

bool execute(Queue& queue, Work& work, pn_error* error) {
  for (const Command& command : work.commands) {
    std::string wrong;
    if (command.head.kind == PN_CMD_COPY) {
      std::byte *from = at(command.head.source), *to = at(command.head.target);
      if (from == nullptr || to == nullptr) {
        wrong = "COPY: a buffer was destroyed while queued";
      } else {
        std::memmove(to, from, command.head.source.bytes);
      }
    } else {
      wrong = run_command(queue, command);
    }
    if (wrong.empty()) continue;
    host_broke(nullptr, wrong);
    *error = make_error(PN_FAILED, wrong);
    error->scope = PN_SCOPE_QUEUE;
    return false;
  }
  return true;
}

}  // namespace chaos

int32_t chaos_next(uint64_t seed, const int32_t* seen, uint64_t count, uint32_t vocab) {
  uint64_t hash = 1469598103934665603ull ^ seed;
  for (uint64_t i = 0; i < count; ++i) {
    hash = (hash ^ static_cast<uint32_t>(seen[i])) * 1099511628211ull;
  }
  return static_cast<int32_t>((hash >> 20) % vocab);
}
