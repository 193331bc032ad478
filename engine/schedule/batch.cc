// SPDX-License-Identifier: Apache-2.0
//
// What goes into a step: every sequence that decodes, then prompt chunks, oldest first, as far as
// the token budget goes. From here to the return of queue_submit nothing is allocated; on an empty
// plugin it takes about a microsecond (tests/perf/step_bench.cc).
#include <algorithm>
#include <cstring>

#include "engine/schedule/runner.h"
#include "hal/host/watch.h"

namespace pn::engine {

bool Runner::pump(uint64_t now_ns) {
  bool any = false;
  while (!error_ && flight_count_ < kStepDepth) {
    while (admit_first(now_ns)) any = true;
    if (!compose(now_ns)) break;
    any = true;
  }
  return any;
}

bool Runner::compose(uint64_t now_ns) {
  bool prompts = std::any_of(order_.begin(), order_.end(),
                             [this](uint32_t lane) { return lanes_[lane].prefilling(); });
  // One chunk at a time, and no decode step slipped between two: a cancelled prompt stops after
  // the chunk that runs, and a chunk is so long that submitting the next one late costs nothing.
  if (prompts && chunk_in_flight()) return false;

  Flight& flight = flight_of(value_ + 1);
  flight.value = value_ + 1;
  flight.chunk = false;
  flight.rows.clear();
  step_.clear();
  advances_.clear();
  commands_.clear();
  context_need_ = 0;
  for (uint32_t lane : order_) {
    if (lanes_[lane].decoding() && step_.fits(1, pages_due(lanes_[lane], 1), false)) {
      add_decoder(lane, flight);
    }
  }
  uint32_t budget = copy_.shapes.back().tokens - step_.run_tokens();
  if (step_.entries() != 0) budget = std::min(budget, kChunkBesideDecode);
  for (uint32_t lane : order_) {
    if (budget == 0 || !prompts) break;
    if (lanes_[lane].prefilling()) budget -= add_chunk(lane, budget, flight);
  }
  return step_.entries() != 0 && submit(flight, now_ns);
}

bool Runner::chunk_in_flight() const {
  for (uint64_t value = read_ + 1; value <= value_; ++value) {
    if (flight_of(value).chunk) return true;
  }
  return false;
}

void Runner::add_decoder(uint32_t lane, Flight& flight) {
  Sequence& sequence = lanes_[lane];
  add_pages(lane, 1, true);
  uint32_t entry = step_.feed(lane, sequence.ran);
  context_need_ = std::max(context_need_, sequence.ran + 1);
  add_row(lane, entry, 0, flight);
}

// Returns the tokens added: 0 when not even one fits the bytes of a step.
uint32_t Runner::add_chunk(uint32_t lane, uint32_t budget, Flight& flight) {
  Sequence& sequence = lanes_[lane];
  uint32_t left = sequence.job->prompt_tokens - sequence.ran;
  uint32_t count = std::min(left, budget);
  if (count < left) {  // not the last chunk: waste no padding
    uint32_t end = step_.run_tokens() + count;
    uint32_t cut = end % copy_.token_multiple;
    if (cut < count) count -= cut;
  }
  while (count != 0 && !step_.fits(count, pages_due(sequence, count), true)) count /= 2;
  if (count == 0) return 0;
  bool last = count == left;
  if (!sequence.setup_sent) add_setup(lane);
  add_pages(lane, count, last);
  std::span<const int32_t> tokens(sequence.job->tokens.data() + sequence.ran, count);
  uint32_t entry = step_.give(lane, sequence.ran, tokens);
  context_need_ = std::max(context_need_, sequence.ran + count);
  if (last) add_row(lane, entry, count - 1, flight);
  flight.chunk = true;
  return count;
}

void Runner::add_row(uint32_t lane, uint32_t entry, uint32_t token, Flight& flight) {
  const Sequence& sequence = lanes_[lane];
  uint32_t top = sequence.job->top;
  auto index = static_cast<uint32_t>(flight.rows.size());
  pn_row row{};
  row.entry = entry;
  row.token = token;
  row.flags = PN_ROW_SAMPLE;
  row.top = top;
  row.id_slot = 0;
  row.target = {copy_.results.slice.buffer,
                copy_.results.slice.offset + record_offset(flight.value, index),
                sizeof(pn_result) + top * sizeof(pn_candidate)};
  step_.row(row);
  flight.rows.push_back({lane, top, sequence.epoch});
}

void Runner::add_setup(uint32_t lane) {
  Sequence& sequence = lanes_[lane];
  pn_lane setup = sequence.job->setup;
  setup.struct_size = sizeof(setup);
  setup.lane = lane;
  setup.flags |= PN_LANE_RESET;
  if (!sequence.job->bias.empty()) add_bias(sequence, lane, setup);
  uint32_t known = std::min(setup.penalty_tokens, sequence.reused);
  setup.history_position = sequence.reused - known;
  std::span<const int32_t> history(sequence.job->tokens.data() + setup.history_position, known);
  step_.lane(setup, history);
}

void Runner::add_bias(const Sequence& sequence, uint32_t lane, pn_lane& setup) {
  struct Pair {
    int32_t id;
    float add;
  };
  const BiasArea& area = copy_.bias;
  uint64_t list_bytes = area.pairs * sizeof(Pair);
  uint64_t offset = (sequence.bias_list * copy_.lanes + lane) * list_bytes;
  std::byte* to = area.host + offset;
  for (const auto& [id, add] : sequence.job->bias) {
    Pair pair{id, add};
    std::memcpy(to, &pair, sizeof(pair));
    to += sizeof(pair);
  }
  setup.bias_count = static_cast<uint32_t>(sequence.job->bias.size());
  setup.bias = {area.slice.buffer, area.slice.offset + offset, list_bytes};
  if (area.staging.buffer.id == 0) return;
  pn_command copy{};
  copy.kind = PN_CMD_COPY;
  copy.source = {area.staging.buffer, area.staging.offset + offset, list_bytes};
  copy.target = setup.bias;
  commands_.push_back(copy);
}

// Pages that become needed when the sequence advances by count, at most one edit each and cache.
uint32_t Runner::pages_due(const Sequence& sequence, uint32_t count) const {
  uint32_t end = (sequence.ran + count + copy_.page_tokens - 1) / copy_.page_tokens;
  return (end - std::min(end, sequence.pages_sent)) * static_cast<uint32_t>(copy_.caches.size());
}

void Runner::add_pages(uint32_t lane, uint32_t count, bool draws) {
  const Sequence& sequence = lanes_[lane];
  uint32_t from = sequence.pages_sent;
  uint32_t end = (sequence.ran + count + copy_.page_tokens - 1) / copy_.page_tokens;
  if (end > from) {
    std::span<const uint32_t> due(sequence.pages.data() + from, end - from);
    for (uint32_t cache : copy_.caches) step_.pages(cache, lane, from, due);
  }
  advances_.push_back({lane, count, std::max(from, end), draws});
}

bool Runner::submit(Flight& flight, uint64_t now_ns) {
  pn_shape need{step_.run_tokens(), step_.entries(), step_.rows(), context_need_};
  flight.shape = pick_shape(copy_.shapes, need);
  if (flight.shape == copy_.shapes.size()) flight.shape--;  // bounded by construction
  flight.tokens = step_.run_tokens();

  pn_step step = step_.view();
  pn_command run{};
  run.kind = PN_CMD_RUN;
  run.program = copy_.program;
  run.shape = flight.shape;
  commands_.push_back(run);
  pn_submit submit{};
  submit.struct_size = sizeof(submit);
  submit.command_count = static_cast<uint32_t>(commands_.size());
  submit.step_count = 1;
  submit.value = flight.value;
  submit.commands = commands_.data();
  submit.steps = &step;
  pn_error error{};
  error.struct_size = sizeof(error);
  pn_status status = PN_OK;
  {
    const hal::WatchedCall watched(copy_.api, copy_.patience);
    status = copy_.api->queue_submit(copy_.queue, &submit, &error);
  }
  if (status == PN_OK) {
    commit(flight, now_ns);
    return true;
  }
  if (status == PN_NOT_READY && flight_count_ != 0) return false;  // read something first
  bool lost = status == PN_DEVICE_LOST;
  Error found{lost ? Code::device_lost : Code::failed,
              copy_.die + " refused a step of " + copy_.model + ": " + error.message, ""};
  if (lost) {
    fail(std::move(found), error.recovery);
  } else {
    end_live(found);
  }
  return false;
}

void Runner::commit(Flight& flight, uint64_t now_ns) {
  uint64_t prompt_tokens = 0;
  for (const Advance& advance : advances_) {
    Sequence& sequence = lanes_[advance.lane];
    if (sequence.prefilling()) {
      prompt_tokens += advance.tokens;
      if (!sequence.setup_sent) sequence.first_step_ns = now_ns;
      sequence.setup_sent = true;
    }
    sequence.ran += advance.tokens;
    sequence.pages_sent = advance.pages_sent;
    sequence.drawn += advance.draws ? 1 : 0;
  }
  value_ = flight.value;
  flight.submitted_ns = now_ns;
  ++flight_count_;
  counts.steps.fetch_add(1, std::memory_order_relaxed);
  counts.prompt_tokens.fetch_add(prompt_tokens, std::memory_order_relaxed);
}

uint64_t Runner::record_offset(uint64_t value, uint32_t row) const {
  return ((value % kStepDepth) * copy_.lanes + row) * copy_.results.stride;
}

}  // namespace pn::engine
