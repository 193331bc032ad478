// SPDX-License-Identifier: Apache-2.0
//
// Group contract: growth. Structs that are shorter, longer, and longer with something said, in and
// out; arrays by stride; lists by two calls.
#include "hal/check/contract.h"

namespace pn::check {

namespace {

// A call with one of its input structs resized.
struct Input {
  const char* name;
  std::function<pn_status(Size)> call;
};

pn_status submit_resized(Rig* rig, Size size, bool the_step) {
  const Steps steps = simple_steps();
  const pn_step step = steps.view();
  const pn_command command = rig->command();
  const std::vector<uint64_t> other_step = resized(&step, 1, size);
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.command_count = submit.step_count = 1;
  submit.commands = &command;
  submit.steps = the_step ? as<pn_step>(other_step) : &step;
  if (the_step) return rig->attempt(&submit);
  submit.value = rig->side().next_value();
  std::vector<uint64_t> words = resized(&submit, 1, size);
  if (size == Size::shorter) {  // the bytes behind it are there, and must not be read
    std::vector<uint64_t> all = resized(&submit, 1, Size::zero_tail);
    all[0] = words[0];
    words = all;
  }
  return rig->attempt(reinterpret_cast<pn_submit*>(words.data()));
}

// plan may be shorter than its type: nothing but its address is used here.
pn_status query(Rig* rig, const pn_plan& plan) {
  const uint32_t room = rig->plan().view().op_count;
  std::vector<pn_span> spans(room, pn_span{sizeof(pn_span)});
  pn_report report{};
  report.struct_size = sizeof report;
  report.span_count = room;
  report.spans = spans.data();
  pn_error err = new_error();
  return rig->side().table().program_query(rig->side().handle(), &plan, &report, &err);
}

pn_status query_resized(Rig* rig, Size size, const std::string& which) {
  const pn_plan plan = rig->plan().view();
  pn_plan other = plan;
  std::vector<uint64_t> words;
  std::vector<pn_op> ops(plan.ops, plan.ops + plan.op_count);
  if (which == "pn_plan") words = resized(&plan, 1, size);
  if (which == "pn_plan") return query(rig, *as<pn_plan>(words));
  if (which == "pn_op")
    words = resized(plan.ops, plan.op_count, size), other.ops = as<pn_op>(words);
  if (which == "pn_slot")
    words = resized(plan.slots, plan.slot_count, size), other.slots = as<pn_slot>(words);
  if (which == "pn_weight")
    words = resized(plan.weights, plan.weight_count, size), other.weights = as<pn_weight>(words);
  if (which == "params") {
    words = resized(static_cast<const pn_op_norm*>(ops[0].params), 1, size);  // all have 16 bytes
    ops[0].params = words.data();
    other.ops = ops.data();
  }
  return query(rig, other);
}

std::vector<Input> inputs(Rig* rig) {
  std::vector<Input> in = {
      {"pn_submit", [rig](Size s) { return submit_resized(rig, s, false); }},
      {"pn_step", [rig](Size s) { return submit_resized(rig, s, true); }},
      {"pn_plan", [rig](Size s) { return query_resized(rig, s, "pn_plan"); }},
      {"pn_op", [rig](Size s) { return query_resized(rig, s, "pn_op"); }},
      {"pn_slot", [rig](Size s) { return query_resized(rig, s, "pn_slot"); }},
      {"the params of an op", [rig](Size s) { return query_resized(rig, s, "params"); }}};
  if (!rig->plan().weights.empty())
    in.push_back({"pn_weight", [rig](Size s) { return query_resized(rig, s, "pn_weight"); }});
  const auto* layout = rig->side().plugin().interface<pn_layout_api>();
  if (layout != nullptr)
    in.push_back({"pn_weight in layout.rank", [rig, layout](Size size) {
                    Plan plan;
                    plan.random_vector(64, 1);
                    const auto words = resized(plan.weights.data(), 1, size);
                    uint32_t count = 0;
                    pn_error err = new_error();
                    return layout->rank(as<pn_weight>(words),
                                        rig->side().device().info().layout_target, &count, nullptr,
                                        &err);
                  }});
  return in;
}

Result<void> try_sizes(Bench& bench, Size size) {
  PN_TRY(auto rig, simple_rig(bench));
  if (rig == nullptr) return {};
  for (const Input& in : inputs(rig.get())) {
    const pn_status status = in.call(size);
    if (size == Size::zero_tail)
      bench.expect(status == PN_OK, "{} {}: status {}, wanted PN_OK", in.name, to_string(size),
                   status);
    if (size == Size::said_tail)
      bench.expect(status == PN_UNSUPPORTED, "{} {}: status {}, wanted PN_UNSUPPORTED", in.name,
                   to_string(size), status);
    if (size == Size::shorter)
      bench.expect(status == PN_UNSUPPORTED || status == PN_INVALID,
                   "{} {}: status {}, wanted PN_UNSUPPORTED", in.name, to_string(size), status);
  }
  Steps steps = simple_steps();
  PN_TRY(rig->run(steps));  // and all is well after it
  return {};
}

Result<void> struct_size_short(Bench& bench) { return try_sizes(bench, Size::shorter); }
Result<void> struct_size_zero_tail(Bench& bench) { return try_sizes(bench, Size::zero_tail); }
Result<void> struct_size_said_tail(Bench& bench) { return try_sizes(bench, Size::said_tail); }

// ---- out ----------------------------------------------------------------------------------------

constexpr unsigned char kMark = 0xcd;

// Calls with `room` structs of `size` bytes, all marked, and a guard behind them.
struct Filled {
  pn_status status;
  uint32_t count;
  std::vector<unsigned char> bytes;
  uint32_t size;
  bool guard_intact = true;
  const unsigned char* at(uint32_t i) const { return bytes.data() + size_t{i} * size; }
};
Filled fill(const Output& out, uint32_t size, uint32_t room) {
  constexpr size_t kGuard = 64;
  Filled f{PN_OK, room, {}, size};
  f.bytes.assign(size_t{room} * size + kGuard, kMark);
  for (uint32_t i = 0; i < room; ++i) std::memcpy(f.bytes.data() + size_t{i} * size, &size, 4);
  pn_error err = new_error();
  f.status = out.call(&f.count, f.bytes.data(), &err);
  for (size_t i = size_t{room} * size; i < f.bytes.size(); ++i)
    f.guard_intact = f.guard_intact && f.bytes[i] == kMark;
  return f;
}

uint32_t how_many(const Output& out) {
  if (!out.list) return 1;
  uint32_t count = 0;
  pn_error err = new_error();
  return out.call(&count, nullptr, &err) == PN_OK ? count : 0;
}

void check_out(Bench& bench, const Output& out, uint32_t size) {
  const Filled f = fill(out, size, 1);
  if (!bench.expect(f.status >= 0, "{}: a struct of {} bytes: status {}", out.name, size, f.status))
    return;
  uint32_t kept = 0;
  std::memcpy(&kept, f.at(0), 4);
  bench.expect(kept == size, "{}: struct_size {} became {}", out.name, size, kept);
  bench.expect(f.guard_intact, "{}: writes past a struct of {} bytes", out.name, size);
  bool zero = true;
  for (uint32_t i = out.size; i < size; ++i) zero = zero && f.at(0)[i] == 0;
  bench.expect(zero, "{}: bytes that it does not know are not zero", out.name);
}

Result<void> out_growth(Bench& bench) {
  PN_TRY(auto rig, simple_rig(bench));
  PN_TRY(const std::vector<Output> list, outputs(bench, rig.get()));
  for (const Output& out : list) {
    if (how_many(out) == 0) continue;
    for (const uint32_t size : {out.size, out.size + kTail, out.size - 8})
      check_out(bench, out, size);
  }
  // pn_error itself.
  PN_TRY(const std::vector<Failing> failing, failing_calls(bench, rig.get()));
  std::vector<unsigned char> bytes(sizeof(pn_error) + kTail + 64, kMark);
  const uint32_t size = sizeof(pn_error) + kTail;
  std::memcpy(bytes.data(), &size, 4);
  failing.front().call(reinterpret_cast<pn_error*>(bytes.data()));
  uint32_t kept = 0;
  std::memcpy(&kept, bytes.data(), 4);
  bench.expect(kept == size, "pn_error: struct_size {} became {}", size, kept);
  for (uint32_t i = sizeof(pn_error); i < size; ++i)
    if (!bench.expect(bytes[i] == 0, "pn_error: a byte that it does not know is not zero")) break;
  for (size_t i = size; i < bytes.size(); ++i)
    if (!bench.expect(bytes[i] == kMark, "pn_error: writes past its struct_size")) break;
  return {};
}

// Elements of a list filled with a longer stride are those filled with ours.
void check_stride(Bench& bench, const Output& out) {
  const uint32_t count = how_many(out);
  if (count == 0 || !out.stable) return;
  const Filled plain = fill(out, out.size, count), wide = fill(out, out.size + kTail, count);
  for (uint32_t i = 0; i < count; ++i)
    bench.expect(std::memcmp(plain.at(i) + 4, wide.at(i) + 4, out.size - 4) == 0,
                 "{}: element {} of a list with longer structs is another one", out.name, i);
}

// Spans and costs of a plan of several ops and shapes, by a longer stride.
Result<void> check_report(Bench& bench, Rig& rig) {
  const pn_plan plan = rig.plan().view();
  const uint32_t room = plan.op_count, size = sizeof(pn_span) + kTail;
  const uint32_t cost_size = sizeof(pn_cost) + kTail;
  std::vector<unsigned char> spans(size_t{room} * size),
      costs(size_t{plan.shape_count} * cost_size);
  for (uint32_t i = 0; i < room; ++i) std::memcpy(spans.data() + size_t{i} * size, &size, 4);
  for (uint32_t i = 0; i < plan.shape_count; ++i)
    std::memcpy(costs.data() + size_t{i} * cost_size, &cost_size, 4);
  pn_report report{};
  report.struct_size = sizeof report;
  report.span_count = room;
  report.spans = reinterpret_cast<pn_span*>(spans.data());
  report.costs = reinterpret_cast<pn_cost*>(costs.data());
  pn_error err = new_error();
  const pn_status status =
      rig.side().table().program_query(rig.side().handle(), &plan, &report, &err);
  if (!bench.expect(status == PN_OK, "program_query with longer spans: status {}", status))
    return {};
  for (uint32_t i = 0; i < report.span_count; ++i)
    bench.expect(std::memcmp(spans.data() + size_t{i} * size + 4,
                             reinterpret_cast<const char*>(&rig.report().spans[i]) + 4,
                             sizeof(pn_span) - 4) == 0,
                 "span {} of a list with longer structs is another one", i);
  for (uint32_t i = 0; i < plan.shape_count; ++i)
    bench.expect(std::memcmp(costs.data() + size_t{i} * cost_size + 4,
                             reinterpret_cast<const char*>(&rig.report().costs[i]) + 4,
                             sizeof(pn_cost) - 4) == 0,
                 "cost {} of a list with longer structs is another one", i);
  return {};
}

// In: a plan whose ops, slots and weights are longer, and lane edits that are.
Result<void> check_lanes(Bench& bench, Rig& rig) {
  Steps steps;
  for (uint32_t lane = 0; lane < 3; ++lane) steps.lane(lane), steps.entry(lane, 0, 1);
  for (uint32_t lane = 0; lane < 3; ++lane) steps.page(lane, 0, lane);
  const auto words = resized(steps.lanes.data(), steps.lanes.size(), Size::zero_tail);
  const pn_command command = rig.command();
  pn_step step = steps.view();
  step.lanes = as<pn_lane>(words);
  pn_submit submit{};
  submit.struct_size = sizeof submit;
  submit.command_count = submit.step_count = 1;
  submit.commands = &command;
  submit.steps = &step;
  std::string message;
  const pn_status status = rig.attempt(&submit, &message);
  bench.expect(status == PN_OK, "three longer pn_lane: status {}: {}", status, message);
  return {};
}

Result<void> strides(Bench& bench) {
  PN_TRY(auto simple, simple_rig(bench));
  PN_TRY(const std::vector<Output> list, outputs(bench, simple.get()));
  for (const Output& out : list) check_stride(bench, out);
  if (simple != nullptr)
    for (const char* which : {"pn_op", "pn_slot", "pn_weight"}) {
      const pn_status status = query_resized(simple.get(), Size::zero_tail, which);
      bench.expect(status == PN_OK, "a plan with longer {}: status {}", which, status);
    }
  PN_TRY(auto model, model_rig(bench));
  if (model == nullptr) return {};
  PN_TRY(check_report(bench, *model));
  for (const char* which : {"pn_op", "pn_slot", "pn_weight"}) {
    const pn_status status = query_resized(model.get(), Size::zero_tail, which);
    bench.expect(status == PN_OK, "a model's plan with longer {}: status {}", which, status);
  }
  return check_lanes(bench, *model);
}

Result<void> lists(Bench& bench) {
  PN_TRY(auto rig, simple_rig(bench));
  PN_TRY(const std::vector<Output> all, outputs(bench, rig.get()));
  for (const Output& out : all) {
    if (!out.list) continue;
    uint32_t count = 0;
    pn_error err = new_error();
    const pn_status asked = out.call(&count, nullptr, &err);
    if (!bench.expect(asked == PN_OK, "{}: count 0 gives {}, wanted PN_OK", out.name, asked))
      continue;
    if (count == 0) continue;
    const Filled more = fill(out, out.size, count + 2);
    bench.expect(more.status == PN_OK && more.count == count,
                 "{}: room for {} gives {} and count {}, wanted PN_OK and {}", out.name, count + 2,
                 more.status, more.count, count);
    bench.expect(more.at(count)[8] == kMark && more.at(count + 1)[8] == kMark,
                 "{}: writes elements that it does not have", out.name);
    if (count < 2) continue;
    const Filled few = fill(out, out.size, count - 1);
    bench.expect(few.status == PN_INCOMPLETE && few.count == count,
                 "{}: room for {} of {} gives {} and count {}, wanted PN_INCOMPLETE and {}",
                 out.name, count - 1, count, few.status, few.count, count);
    bench.expect(few.guard_intact, "{}: writes past the room given", out.name);
  }
  return {};
}

constexpr Case kCases[] = {
    {"contract/struct_size_short", "R5", "structs shorter than their first size are refused",
     struct_size_short},
    {"contract/struct_size_zero_tail", "R5", "longer structs with a tail of zeros are taken",
     struct_size_zero_tail},
    {"contract/struct_size_said_tail", "R5", "longer structs that say more are refused",
     struct_size_said_tail},
    {"contract/out_growth", "R6", "known fields written, the rest zeroed, size kept", out_growth},
    {"contract/strides", "R4", "arrays are walked by struct_size", strides},
    {"contract/lists", "R8", "two calls, true counts, PN_INCOMPLETE", lists},
};

}  // namespace

std::span<const Case> struct_cases() { return kCases; }

}  // namespace pn::check
