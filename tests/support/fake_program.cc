// SPDX-License-Identifier: Apache-2.0
//
// Programs and steps of the fake plugin. A page holds the tokens that were written to it, so what
// a row "sees" is exactly what the host made visible.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/support/fake_state.h"

namespace pn::test {
namespace {

constexpr std::byte kMark{0x5a};  // layouts are the source's bytes xor this

void edit_lanes(FakePlugin::State& state, FakeProgram& program,
                const FakePlugin::Pending& pending) {
  for (const pn_lane& setup : pending.lanes) {
    FakeLane& lane = program.lane[setup.lane];
    lane.setup = setup;
    if ((setup.flags & PN_LANE_RESET) != 0)
      std::fill(lane.table.begin(), lane.table.end(), PN_NONE);
    lane.live = true;
    if (setup.bias_count != 0) fake_at(state, setup.bias);
  }
  for (const pn_pages& edit : pending.pages) {
    FakeLane& lane = program.lane[edit.lane];
    for (uint32_t i = 0; i < edit.count; ++i) {
      if (edit.index + i >= lane.table.size()) lane.table.resize(edit.index + i + 1, PN_NONE);
      lane.table[edit.index + i] = edit.page + i;
    }
  }
}

int32_t* cell(FakePlugin::State& state, FakeProgram& program, uint32_t lane, uint32_t position) {
  static int32_t nothing;
  uint32_t index = position / program.page_tokens;
  std::vector<uint32_t>& table = program.lane[lane].table;
  if (index >= table.size() || table[index] == PN_NONE) {
    state.counters.broken.push_back("a position has no page");
    return &nothing;
  }
  std::vector<int32_t>& page = program.pages[table[index]];
  page.resize(program.page_tokens, -7);
  return &page[position % program.page_tokens];
}

int32_t draw(FakePlugin::State& state, std::span<const int32_t> seen) {
  return state.knobs.script ? state.knobs.script(seen) : fake_next(seen, state.knobs.vocab);
}

void emit(FakePlugin::State& state, FakeProgram& program, const FakePlugin::Pending& pending,
          const pn_row& row) {
  const pn_entry& entry = pending.entries[row.entry];
  std::vector<int32_t> seen;
  for (uint32_t p = 0; p <= entry.position + row.token; ++p) {
    seen.push_back(*cell(state, program, entry.lane, p));
  }
  pn_result result{draw(state, seen), -0.5f, 2.0f, row.top};
  const FakeLane& lane = program.lane[entry.lane];
  if (lane.setup.bias_count != 0) {  // the first pair forces its id
    std::memcpy(&result.id, fake_at(state, lane.setup.bias), sizeof(result.id));
  }
  if (pending.number == state.knobs.nan_at) result.id = -1;
  program.ids[entry.lane] = result.id;
  std::byte* to = fake_at(state, row.target);
  std::memcpy(to, &result, sizeof(result));
  for (uint32_t i = 0; i < row.top; ++i) {
    pn_candidate candidate{result.id + static_cast<int32_t>(i), 1.5f - static_cast<float>(i)};
    std::memcpy(to + sizeof(result) + i * sizeof(candidate), &candidate, sizeof(candidate));
  }
}

pn_status rank(const pn_weight* weight, uint64_t, uint32_t* count, pn_layout_choice* out,
               pn_error* error) {
  std::lock_guard lock(FakePlugin::instance().mutex());
  const auto& knobs = FakePlugin::instance().state().knobs;
  if (weight->role == PN_ROLE_TIED && !knobs.tied) {
    return fake_error(error, PN_UNSUPPORTED, "no layout serves a table and a matrix");
  }
  bool full = out != nullptr && *count >= 1;
  *count = 1;
  if (!full) return out == nullptr ? PN_OK : PN_INCOMPLETE;
  bool vector = weight->role == PN_ROLE_VECTOR || weight->role == PN_ROLE_ROPE;
  uint64_t elements = 1;
  for (int64_t d : weight->shape) elements *= static_cast<uint64_t>(d);
  // Any type, as one byte an element group would need its block size: tests use F32, F16, Q8_0.
  uint64_t bytes = weight->source_type == PN_TYPE_F32   ? elements * 4
                   : weight->source_type == PN_TYPE_F16 ? elements * 2
                                                        : elements / 32 * 34;
  pn_layout_choice choice{};
  choice.loss = knobs.lossy_only && !vector ? PN_LOSS_LOSSY : PN_LOSS_NONE;
  choice.layout = 7;
  std::strcpy(choice.name, "fake.xor/1");
  choice.tile_count = vector ? 1 : elements / static_cast<uint64_t>(weight->shape[0]);
  choice.tile_bytes = bytes / choice.tile_count;
  choice.alignment = 64;
  choice.speed = 1;
  pn_write(out, &choice, sizeof(choice));
  return PN_OK;
}

pn_status convert(const pn_weight* weight, uint64_t target, uint64_t layout, const void* source,
                  void* out, uint64_t first, uint64_t count, pn_error* error) {
  if (layout != 7) return fake_error(error, PN_INVALID, "no such layout");
  uint32_t one = 1;
  pn_layout_choice choice{};
  choice.struct_size = sizeof(choice);
  pn_status status = rank(weight, target, &one, &choice, error);
  if (status != PN_OK) return status;
  for (bool hangs = true; hangs;) {
    {
      std::lock_guard lock(FakePlugin::instance().mutex());
      hangs = FakePlugin::instance().state().knobs.convert_hangs;
    }
    if (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto* from = static_cast<const std::byte*>(source) + first * choice.tile_bytes;
  auto* to = static_cast<std::byte*>(out);
  for (uint64_t i = 0; i < count * choice.tile_bytes; ++i) to[i] = from[i] ^ kMark;
  std::lock_guard lock(FakePlugin::instance().mutex());
  FakePlugin::instance().state().counters.converted += count * choice.tile_bytes;
  return PN_OK;
}

}  // namespace

int32_t fake_next(std::span<const int32_t> seen, uint32_t vocab) {
  uint64_t hash = 1469598103934665603ull;
  for (int32_t id : seen) hash = (hash ^ static_cast<uint32_t>(id)) * 1099511628211ull;
  return static_cast<int32_t>((hash >> 20) % vocab);
}

pn_status fake_query(pn_device, const pn_plan* plan, pn_report* report, pn_error*) {
  std::lock_guard lock(FakePlugin::instance().mutex());
  const auto& knobs = FakePlugin::instance().state().knobs;
  if (report->span_count != 0 && report->spans != nullptr) {
    pn_span span{};
    span.granularity = knobs.unsupported.empty() ? PN_SPAN_MODEL : PN_SPAN_UNSUPPORTED;
    span.op_count = plan->op_count;
    span.numerics = knobs.numerics;
    std::strncpy(span.reason, knobs.unsupported.c_str(), sizeof(span.reason) - 1);
    pn_write(report->spans, &span, sizeof(span));
  }
  report->span_count = 1;
  if (report->unit_bytes != nullptr) {
    for (uint32_t i = 0; i < plan->cache_count; ++i) {
      report->unit_bytes[i] = plan->caches[i].unit_tokens * 64ull;
    }
  }
  report->program_bytes = 1 << 20;
  report->scratch_bytes = 1 << 16;
  report->token_multiple = 1;
  report->step_bytes_max = knobs.step_bytes_max != 0 ? knobs.step_bytes_max : 1 << 20;
  return PN_OK;
}

pn_status fake_create(pn_device, const pn_plan* plan, uint32_t count, const pn_binding* bindings,
                      pn_program* out, pn_error* error) {
  std::lock_guard lock(FakePlugin::instance().mutex());
  auto& state = FakePlugin::instance().state();
  FakeProgram program;
  program.shapes.assign(plan->shapes, plan->shapes + plan->shape_count);
  program.lanes = plan->lanes;
  program.page_tokens = plan->cache_count != 0 ? plan->caches[0].unit_tokens : 64;
  program.lane.resize(plan->lanes);
  program.ids.assign(plan->lanes, -1);
  program.bindings.assign(bindings, bindings + count);
  std::vector<bool> bound(plan->weight_count);
  for (const pn_binding& binding : program.bindings) {
    fake_at(state, binding.slice);
    if (binding.kind == PN_BIND_WEIGHT) bound[binding.index] = true;
  }
  for (uint32_t i = 0; i < plan->weight_count; ++i) {
    if (!bound[i]) return fake_error(error, PN_INVALID, "weight " + std::to_string(i) + " unbound");
  }
  out->id = state.next_id++;
  state.programs[out->id] = std::move(program);
  return PN_OK;
}

// Called at submit, in queue order: what the host may not do.
void fake_check(FakePlugin::State& state, const FakeProgram& program, const pn_step& step) {
  auto& c = state.counters;
  uint64_t tokens = 0;
  std::vector<bool> seen(program.lanes);
  for (uint32_t i = 0; i < step.entry_count; ++i) {
    const pn_entry& entry = step.entries[i];
    tokens += entry.count;
    bool fed = (entry.flags & PN_ENTRY_FEED) != 0;
    if (!fed) c.prompt_tokens += entry.count;
    if (entry.lane >= program.lanes || seen[entry.lane]) c.broken.push_back("entry: bad lane");
    if (entry.lane < program.lanes) seen[entry.lane] = true;
    if (!fed && entry.token + entry.count > step.token_count) c.broken.push_back("entry: tokens");
  }
  for (uint32_t i = 0; i < step.row_count; ++i) {
    if (step.rows[i].entry >= step.entry_count ||
        step.rows[i].token >= step.entries[step.rows[i].entry].count) {
      c.broken.push_back("row: no such token");
    }
  }
  uint64_t bytes = step.token_count * 4ull + step.lane_count * sizeof(pn_lane) +
                   step.page_count * sizeof(pn_pages) + step.entry_count * sizeof(pn_entry) +
                   step.row_count * sizeof(pn_row);
  uint64_t most = state.knobs.step_bytes_max != 0 ? state.knobs.step_bytes_max : 1 << 20;
  if (bytes > most) c.broken.push_back("step: too many bytes");
  c.most_tokens = std::max(c.most_tokens, tokens);
  c.most_entries = std::max<uint64_t>(c.most_entries, step.entry_count);
}

void fake_execute(FakePlugin::State& state, const FakePlugin::Pending& pending) {
  for (const pn_command& command : pending.commands) {
    if (command.kind == PN_CMD_COPY) {
      ++state.counters.copies;
      std::memcpy(fake_at(state, command.target), fake_at(state, command.source),
                  command.source.bytes);
      continue;
    }
    ++state.counters.executed;
    FakeProgram& program = state.programs[command.program.id];
    edit_lanes(state, program, pending);
    for (const pn_entry& entry : pending.entries) {
      if (!program.lane[entry.lane].live) state.counters.broken.push_back("entry: no setup");
      for (uint32_t i = 0; i < entry.count; ++i) {
        bool fed = (entry.flags & PN_ENTRY_FEED) != 0;
        int32_t token = fed ? program.ids[entry.lane] : pending.tokens[entry.token + i];
        *cell(state, program, entry.lane, entry.position + i) = token;
      }
    }
    for (const pn_row& row : pending.rows) emit(state, program, pending, row);
  }
}

std::vector<pn_slice> FakePlugin::weight_slices() const {
  std::lock_guard lock(mutex_);
  std::vector<pn_slice> slices;
  if (state_->programs.empty()) return slices;
  for (const pn_binding& binding : state_->programs.rbegin()->second.bindings) {
    if (binding.kind == PN_BIND_WEIGHT) slices.push_back(binding.slice);
  }
  return slices;
}

std::vector<std::byte> FakePlugin::weight_bytes(uint32_t weight) const {
  pn_slice slice = weight_slices().at(weight);
  std::lock_guard lock(mutex_);
  const std::byte* at = fake_at(*state_, slice);
  return {at, at + slice.bytes};
}

const pn_layout_api* fake_layout() {
  static const pn_layout_api layout{sizeof(pn_layout_api), 0, rank, convert, nullptr, nullptr};
  return &layout;
}

}  // namespace pn::test
