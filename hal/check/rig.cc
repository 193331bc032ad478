// SPDX-License-Identifier: Apache-2.0
//
// See rig.h.
#include "hal/check/rig.h"

#include <algorithm>
#include <cstring>

namespace pn::check {

namespace {

constexpr uint8_t kRubbish = 0x5a;  // 1.5e16 as F32: seen at once in any sum
constexpr uint64_t kGuard = 1024;   // bytes behind each bound slice that nobody may touch

uint64_t source_bytes(const Plan& plan, size_t i) { return plan.bytes[i].size(); }

uint32_t most(const Plan& plan, uint32_t rows_kind) {
  uint32_t n = 1;
  for (const pn_shape& s : plan.shapes)
    n = std::max(n, rows_kind == PN_ROWS_TOKENS ? s.tokens : s.rows);
  return n;
}

}  // namespace

Result<std::unique_ptr<Rig>> Rig::make(Side& side, const Plan& plan, uint32_t pages) {
  auto rig = std::make_unique<Rig>();
  rig->side_ = &side;
  rig->plan_ = plan;
  PN_TRY(rig->choose_layouts());
  const pn_plan view = rig->plan_.view();
  PN_TRY(rig->report_, side.device().query(view));
  if (!rig->report_.supported()) return fail(Code::unsupported, rig->report_.unsupported());
  PN_TRY(rig->bind_weights());
  PN_TRY(rig->bind_rest(pages));
  PN_TRY(rig->program_, side.device().create_program(view, rig->bindings_));
  PN_TRY(rig->program_.wait_ready(kPatience));
  return rig;
}

Result<void> Rig::choose_layouts() {
  for (size_t i = 0; i < plan_.weights.size(); ++i) {
    pn_weight& w = plan_.weights[i];
    w.heap = side_->heap();
    pn_layout_choice choice{};
    choice.tile_count = 1;
    choice.tile_bytes = source_bytes(plan_, i);
    if (side_->layout()) {
      PN_TRY(const auto choices, side_->layout()->rank(w));
      choice = choices.front();
      w.layout = choice.layout;
    }
    choices_.push_back(choice);
  }
  for (const pn_op& op : plan_.ops) {
    if (op.op != PN_OP_EMIT) continue;
    const size_t at = static_cast<size_t>(&op - plan_.ops.data());
    if (op.in[0] != PN_NO16) vocab_ = plan_.params_of<pn_op_emit>(at).vocab;
    if (op.in[1] != PN_NO16) hidden_ = plan_.slots[op.in[1]].width;
  }
  return {};
}

Result<void> Rig::bind_weights() {
  for (size_t i = 0; i < plan_.weights.size(); ++i) {
    const pn_layout_choice& choice = choices_[i];
    std::vector<std::byte> bytes(choice.tile_count * choice.tile_bytes);
    if (side_->layout()) {
      PN_TRY(side_->layout()->convert(plan_.weights[i], choice, plan_.bytes[i].data(), bytes.data(),
                                      0, choice.tile_count));
    } else {
      bytes = plan_.bytes[i];
    }
    PN_TRY(hal::Buffer buffer, bind(PN_BIND_WEIGHT, static_cast<uint32_t>(i), bytes.size()));
    PN_TRY(side_->write(buffer, 0, bytes.data(), bytes.size()));
    weights_.push_back(std::move(buffer));
  }
  return {};
}

Result<hal::Buffer> Rig::bind(uint32_t kind, uint32_t index, uint64_t bytes) {
  bytes = std::max<uint64_t>(bytes, 64);
  PN_TRY(hal::Buffer buffer, side_->place(bytes + kGuard));
  PN_TRY(side_->fill(buffer, kRubbish));
  bindings_.push_back({kind, index, 0, 0, buffer.slice(0, bytes)});
  return buffer;
}

Result<void> Rig::bind_rest(uint32_t pages) {
  for (uint32_t i = 0; i < plan_.slots.size(); ++i) {
    const pn_slot& slot = plan_.slots[i];
    slots_.emplace_back();
    if (slot.kind == PN_SLOT_INTERNAL) continue;
    PN_TRY(slots_.back(), bind(PN_BIND_SLOT, i, uint64_t{most(plan_, slot.rows)} * slot.width * 4));
  }
  for (uint32_t i = 0; i < plan_.caches.size(); ++i) {
    const uint64_t units = pages != 0 ? pages : plan_.lanes * plan_.caches[i].units_per_lane;
    PN_TRY(hal::Buffer cache, bind(PN_BIND_CACHE, i, units * report_.unit_bytes[i]));
    caches_.push_back(std::move(cache));
  }
  PN_TRY(scratch_, bind(PN_BIND_SCRATCH, 0, report_.head.scratch_bytes));
  PN_TRY(ids_, bind(PN_BIND_IDS, 0, uint64_t{plan_.lanes} * plan_.ids_depth * 4));
  PN_TRY(results_, side_->results(row_bytes() * (2 * uint64_t{most(plan_, PN_ROWS_OUT)} + 1)));
  return {};
}

Result<std::string> Rig::touched_guard() {
  const auto intact = [this](const hal::Buffer& buffer) -> Result<bool> {
    if (!buffer) return true;
    std::vector<uint8_t> guard(kGuard);
    PN_TRY(side_->read(buffer, buffer.bytes() - kGuard, guard.data(), kGuard));
    return std::all_of(guard.begin(), guard.end(), [](uint8_t b) { return b == kRubbish; });
  };
  PN_TRY(const bool scratch, intact(scratch_));
  if (!scratch)
    return fmt::format("the scratch of {} bytes that the report asked for",
                       report_.head.scratch_bytes);
  for (const auto* list : {&slots_, &caches_, &weights_})
    for (size_t i = 0; i < list->size(); ++i) {
      PN_TRY(const bool fine, intact((*list)[i]));
      if (!fine)
        return fmt::format("{} {}",
                           list == &slots_    ? "slot"
                           : list == &caches_ ? "cache"
                                              : "weight",
                           i);
    }
  PN_TRY(const bool ids, intact(ids_));
  return std::string(ids ? "" : "ids");
}

uint32_t Rig::numerics() const {
  uint32_t all = ~0u;
  for (const pn_span& span : report_.spans) all &= span.numerics;
  return report_.spans.empty() ? 0 : all;
}

// Activations of 8 bits beside quantised weights: 2e-2 of the largest value was measured on the cpu
// plugin at widths of 256. Plain F32 stays below 1e-4 for any order of summation here.
double Rig::tolerance() const {
  double most = 1e-3;
  for (const pn_span& span : report_.spans)
    if (span.accumulate_type != PN_TYPE_F32) most = 3e-2;
  for (const pn_weight& w : plan_.weights) {
    const TypeFacts* facts = type_facts(w.source_type);
    if (facts != nullptr && facts->block > 1) most = std::max(most, 3e-2);
  }
  return most;
}

Result<void> Rig::write_slot(uint16_t slot, std::span<const float> values) {
  return side_->write(slots_[slot], 0, values.data(), values.size_bytes());
}

Result<std::vector<float>> Rig::read_slot(uint16_t slot, uint64_t rows) {
  std::vector<float> out(rows * plan_.slots[slot].width);
  PN_TRY(side_->read(slots_[slot], 0, out.data(), out.size() * 4));
  return out;
}

Result<void> Rig::write_ids(std::span<const int32_t> ids) {
  return side_->write(ids_, 0, ids.data(), ids.size_bytes());
}

Result<std::vector<int32_t>> Rig::read_ids() {
  std::vector<int32_t> out(uint64_t{plan_.lanes} * plan_.ids_depth);
  PN_TRY(side_->read(ids_, 0, out.data(), out.size() * 4));
  return out;
}

// ---- runs ---------------------------------------------------------------------------------------

uint64_t Rig::row_bytes() const {
  const uint64_t bytes = sizeof(pn_result) + uint64_t{std::min(vocab_, 1024u)} * 8 +
                         uint64_t{vocab_} * 4 + uint64_t{hidden_} * 4;
  return (bytes + 4095) / 4096 * 4096;
}

void Rig::aim(Steps* steps) const {
  for (size_t r = 0; r < steps->rows.size(); ++r)
    steps->rows[r].target = results_.slice(r * row_bytes(), row_bytes());
}

pn_command Rig::command(uint32_t shape, uint32_t kind) const {
  pn_command command{};
  command.kind = kind;
  command.program = program_.handle();
  command.shape = shape;
  return command;
}

Result<void> Rig::run(Steps& steps, uint32_t shape, uint32_t kind) {
  aim(&steps);
  const pn_command one = command(shape, kind);
  const pn_step step = steps.view();
  return side_->execute({&one, 1}, {&step, 1});
}

pn_status Rig::attempt(pn_submit* submit, std::string* message) {
  pn_error err = new_error();
  submit->value = side_->next_value();
  const pn_queue queue = side_->queue().handle();
  pn_status status = side_->table().queue_submit(queue, submit, &err);
  if (status == PN_OK) {
    status = side_->table().queue_wait({queue, submit->value}, kPatience, &err);
    if (status != PN_OK) {
      err = new_error();
      side_->table().queue_error(queue, &err);
      if (err.code < 0) status = err.code;
      program_ = {};
      if (!side_->renew_queue()) return status;
      auto made = side_->device().create_program(plan_.view(), bindings_);
      if (made && made->wait_ready(kPatience)) program_ = *std::move(made);
    }
  }
  if (message != nullptr) message->assign(err.message, ::strnlen(err.message, sizeof err.message));
  return status;
}

pn_status Rig::attempt(Steps& steps, uint32_t shape) {
  const pn_command one = command(shape);
  const pn_step step = steps.view();
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.command_count = submit.step_count = 1;
  submit.commands = &one;
  submit.steps = &step;
  return attempt(&submit);
}

Rig::RowData Rig::row(const Steps& steps, uint32_t r) const {
  const pn_row& row = steps.rows[r];
  const char* at = static_cast<const char*>(results_.host()) + row.target.offset;
  RowData out;
  if ((row.flags & PN_ROW_SAMPLE) != 0 || row.top != 0) {
    std::memcpy(&out.result, at, sizeof(pn_result));
    at += sizeof(pn_result);
  }
  const auto take = [&at](auto* list, size_t count) {
    list->resize(count);
    if (count == 0) return;  // memcpy may not be given NULL, even for no bytes
    std::memcpy(list->data(), at, count * sizeof(list->front()));
    at += count * sizeof(list->front());
  };
  take(&out.top, row.top);
  take(&out.logits, (row.flags & PN_ROW_LOGITS) != 0 ? vocab_ : 0);
  take(&out.hidden, (row.flags & PN_ROW_HIDDEN) != 0 ? hidden_ : 0);
  return out;
}

Result<Pair> make_pair(Bench& bench, const Plan& plan, uint32_t pages) {
  PN_TRY(Side * ours, bench.subject());
  Pair pair;
  auto rig = Rig::make(*ours, plan, pages);
  if (!rig) {
    if (rig.error().code != Code::unsupported) return tl::unexpected<Error>(rig.error());
    pair.unsupported = rig.error().message;
    return pair;
  }
  PN_TRY(Side * theirs, bench.reference());
  auto other = Rig::make(*theirs, plan, pages);
  if (!other) {
    if (other.error().code != Code::unsupported) return tl::unexpected<Error>(other.error());
    pair.unsupported = "the reference cannot do it: " + other.error().message;
    return pair;
  }
  pair.ours = *std::move(rig);
  pair.theirs = *std::move(other);
  return pair;
}

}  // namespace pn::check
