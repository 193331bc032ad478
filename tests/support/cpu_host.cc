// SPDX-License-Identifier: Apache-2.0
//
// The CPU plugin for tests, see cpu_host.h: loads it once a host, converts weights as a loader
// would, and fills scratch with rubbish first, so that no op can lean on zeros.
#include "tests/support/cpu_host.h"

#include <doctest/doctest.h>
#include <time.h>

#include <cstring>
#include <random>

extern "C" pn_status pantheon_plugin_entry_1(const pn_host* host, const pn_plugin** out,
                                             pn_error* err);

namespace pn::test {
namespace {

uint64_t monotonic(void*) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

constexpr uint64_t kResultBytes = 16 << 20;

}  // namespace

pn_error new_error() {
  pn_error err = {};
  err.struct_size = sizeof(err);
  return err;
}

CpuHost::CpuHost(const HostOptions& options, uint32_t die) {
  static pn_host host;  // outlives the plugin, as the ABI asks
  static std::vector<pn_pair> pairs;
  static HostOptions kept;
  kept = options;
  pairs.clear();
  for (const auto& [key, value] : kept) pairs.push_back({key.c_str(), value.c_str()});
  host = {};
  host.struct_size = sizeof(host);
  host.abi_minor = PN_ABI_MINOR;
  host.config = pairs.data();
  host.config_count = static_cast<uint32_t>(pairs.size());
  host.now_ns = monotonic;
  pn_error err = new_error();
  const pn_status loaded = pantheon_plugin_entry_1(&host, &api_, &err);
  REQUIRE_MESSAGE(loaded == PN_OK, err.message);
  layout_ = interface<pn_layout_api>("pantheon.layout/1");
  const pn_status opened = api_->device_open(die, &device_, &err);
  REQUIRE_MESSAGE(opened == PN_OK, err.message);
  REQUIRE(api_->queue_create(device_, PN_QUEUE_RUN, 8, &queue_, &err) == PN_OK);
}

CpuHost::~CpuHost() { api_->shutdown(0); }

CpuHost::Memory CpuHost::allocate(uint64_t bytes, uint32_t heap) {
  Memory memory;
  void* at = nullptr;
  pn_error err = new_error();
  const pn_status status = api_->buffer_create(device_, heap, bytes, &memory.buffer, &at, &err);
  REQUIRE_MESSAGE(status == PN_OK, err.message);
  memory.host = static_cast<std::byte*>(at);
  memory.bytes = bytes;
  return memory;
}

pn_status CpuHost::submit(const pn_command& command, const pn_step* step, std::string* message) {
  pn_submit submit = {};
  submit.struct_size = sizeof(submit);
  submit.command_count = 1;
  submit.commands = &command;
  submit.step_count = step == nullptr ? 0 : 1;
  submit.steps = step;
  submit.value = value_ + 1;
  pn_error err = new_error();
  pn_status status = api_->queue_submit(queue_, &submit, &err);
  if (status == PN_OK) {
    ++value_;
    status = api_->queue_wait({queue_, value_}, 600'000'000'000u, &err);
    if (status != PN_OK) api_->queue_error(queue_, &err);
  }
  if (message != nullptr) *message = err.message;
  return status;
}

uint16_t PlanBuilder::slot(uint32_t width, uint32_t kind, uint32_t rows, uint32_t type) {
  pn_slot s = {};
  s.struct_size = sizeof(s);
  s.kind = kind;
  s.rows = rows;
  s.width = width;
  s.type = type;
  slots.push_back(s);
  return static_cast<uint16_t>(slots.size() - 1);
}

uint16_t PlanBuilder::weight(uint32_t role, uint32_t type, std::vector<int64_t> shape,
                             std::vector<std::byte> data) {
  pn_weight w = {};
  w.struct_size = sizeof(w);
  w.role = role;
  w.source_type = type;
  for (size_t i = 0; i < 4; ++i) w.shape[i] = i < shape.size() ? shape[i] : 1;
  w.bias = w.scale = w.adapter_a = w.adapter_b = PN_NO16;
  weights.push_back(w);
  bytes.push_back(std::move(data));
  return static_cast<uint16_t>(weights.size() - 1);
}

uint16_t PlanBuilder::matrix(int64_t cols, int64_t rows, const std::vector<float>& values,
                             uint32_t role, int64_t experts) {
  REQUIRE(values.size() == static_cast<size_t>(cols * rows * experts));
  const auto* raw = reinterpret_cast<const std::byte*>(values.data());
  return weight(role, PN_TYPE_F32, {cols, rows, experts}, {raw, raw + values.size() * 4});
}

uint16_t PlanBuilder::vector(const std::vector<float>& values, uint32_t role) {
  const auto* raw = reinterpret_cast<const std::byte*>(values.data());
  return weight(role, PN_TYPE_F32, {static_cast<int64_t>(values.size())},
                {raw, raw + values.size() * 4});
}

pn_op& PlanBuilder::add(uint16_t kind, std::vector<std::byte> p) {
  pn_op op = {};
  op.struct_size = sizeof(op);
  op.op = kind;
  for (uint16_t& x : op.in) x = PN_NO16;
  for (uint16_t& x : op.out) x = PN_NO16;
  for (uint16_t& x : op.weight) x = PN_NO16;
  ops.push_back(op);
  params.push_back(std::move(p));
  return ops.back();
}

pn_plan PlanBuilder::view() {
  for (size_t i = 0; i < ops.size(); ++i)
    ops[i].params = params[i].empty() ? nullptr : params[i].data();
  pn_plan plan = {};
  plan.struct_size = sizeof(plan);
  plan.lanes = lanes;
  plan.ids_depth = ids_depth;
  plan.op_count = static_cast<uint32_t>(ops.size());
  plan.slot_count = static_cast<uint32_t>(slots.size());
  plan.weight_count = static_cast<uint32_t>(weights.size());
  plan.cache_count = static_cast<uint32_t>(caches.size());
  plan.shape_count = static_cast<uint32_t>(shapes.size());
  plan.ops = ops.data();
  plan.slots = slots.data();
  plan.weights = weights.data();
  plan.caches = caches.data();
  plan.shapes = shapes.data();
  return plan;
}

// Gives each weight the first layout that rank offers; tile_count * tile_bytes of each.
static std::vector<uint64_t> choose_layouts(CpuHost& host, PlanBuilder& plan) {
  std::vector<uint64_t> sizes;
  for (pn_weight& w : plan.weights) {
    pn_layout_choice choice = {};
    choice.struct_size = sizeof(choice);
    uint32_t count = 1;
    pn_error err = new_error();
    const pn_status status = host.layout().rank(&w, 1, &count, &choice, &err);
    REQUIRE_MESSAGE(status == PN_OK, err.message);
    w.layout = choice.layout;
    sizes.push_back(choice.tile_count * choice.tile_bytes);
  }
  return sizes;
}

pn_status query(CpuHost& host, PlanBuilder& plan, pn_report* report, std::vector<pn_span>* spans) {
  choose_layouts(host, plan);
  const pn_plan view = plan.view();
  spans->assign(plan.ops.size() + 1, {});
  for (pn_span& span : *spans) span.struct_size = sizeof(span);
  *report = {};
  report->struct_size = sizeof(*report);
  report->spans = spans->data();
  report->span_count = static_cast<uint32_t>(spans->size());
  pn_error err = new_error();
  const pn_status status = host.api().program_query(host.device(), &view, report, &err);
  spans->resize(report->span_count);
  return status;
}

CpuProgram::CpuProgram(CpuHost& host, PlanBuilder& plan, uint32_t pages) : host_(host) {
  const std::vector<uint64_t> sizes = choose_layouts(host, plan);
  const pn_plan view = plan.view();
  pn_error err = new_error();
  std::vector<uint64_t> unit_bytes(plan.caches.size() + 1);
  report_.struct_size = sizeof(report_);
  report_.unit_bytes = unit_bytes.data();
  const pn_status asked = host.api().program_query(host.device(), &view, &report_, &err);
  REQUIRE_MESSAGE(asked == PN_OK, err.message);

  std::vector<pn_binding> bindings;
  for (uint32_t i = 0; i < plan.weights.size(); ++i) {
    const CpuHost::Memory memory = host.allocate(sizes[i]);
    const pn_weight& w = plan.weights[i];
    const bool tiled = w.layout != 0;
    const uint64_t tiles = tiled ? static_cast<uint64_t>((w.shape[1] + 15) / 16 * w.shape[2])
                                 : static_cast<uint64_t>(w.shape[1] * w.shape[2]);
    const pn_status done =
        host.layout().convert(&w, 1, w.layout, plan.bytes[i].data(), memory.host, 0, tiles, &err);
    REQUIRE_MESSAGE(done == PN_OK, err.message);
    bindings.push_back({PN_BIND_WEIGHT, i, 0, 0, memory.slice()});
  }
  for (uint32_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].kind == PN_SLOT_INTERNAL) continue;
    uint64_t rows = 1;
    for (const pn_shape& shape : plan.shapes)
      rows = std::max<uint64_t>(rows,
                                plan.slots[i].rows == PN_ROWS_TOKENS ? shape.tokens : shape.rows);
    slots_[i] = host.allocate(rows * plan.slots[i].width * 4);
    bindings.push_back({PN_BIND_SLOT, i, 0, 0, slots_[i].slice()});
  }
  for (uint32_t i = 0; i < plan.caches.size(); ++i) {
    caches_.push_back(host.allocate(unit_bytes[i] * pages));
    bindings.push_back({PN_BIND_CACHE, i, 0, 0, caches_[i].slice()});
  }
  const CpuHost::Memory scratch = host.allocate(report_.scratch_bytes);
  memset(scratch.host, 0x5a, scratch.bytes);  // nothing may lean on zeros
  bindings.push_back({PN_BIND_SCRATCH, 0, 0, 0, scratch.slice()});
  ids_ = host.allocate(uint64_t{plan.lanes} * plan.ids_depth * 4);
  bindings.push_back({PN_BIND_IDS, 0, 0, 0, ids_.slice()});
  results_ = host.allocate(kResultBytes);
  const pn_status made =
      host.api().program_create(host.device(), &view, static_cast<uint32_t>(bindings.size()),
                                bindings.data(), &program_, &err);
  REQUIRE_MESSAGE(made == PN_OK, err.message);
}

pn_status CpuProgram::run(const pn_step& step, uint32_t shape, std::string* message) {
  pn_command command = {};
  command.kind = PN_CMD_RUN;
  command.program = program_;
  command.shape = shape;
  return host_.submit(command, &step, message);
}

pn_status CpuProgram::sample(const pn_step& step, std::string* message) {
  pn_command command = {};
  command.kind = PN_CMD_SAMPLE;
  command.program = program_;
  return host_.submit(command, &step, message);
}

float* CpuProgram::slot(uint16_t index) { return reinterpret_cast<float*>(slots_.at(index).host); }

pn_step Steps::view() const {
  pn_step step = {};
  step.struct_size = sizeof(step);
  step.token_count = static_cast<uint32_t>(tokens.size());
  step.lane_count = static_cast<uint32_t>(lanes.size());
  step.page_count = static_cast<uint32_t>(pages.size());
  step.entry_count = static_cast<uint32_t>(entries.size());
  step.row_count = static_cast<uint32_t>(rows.size());
  step.tokens = tokens.data();
  step.lanes = lanes.data();
  step.pages = pages.data();
  step.entries = entries.data();
  step.rows = rows.data();
  return step;
}

void Steps::entry(uint32_t lane, uint32_t position, const std::vector<int32_t>& ids) {
  pn_entry e = {};
  e.lane = lane;
  e.count = static_cast<uint32_t>(ids.size());
  e.token = static_cast<uint32_t>(tokens.size());
  e.position = position;
  e.state_in = e.state_out = PN_NONE;
  entries.push_back(e);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
}

pn_row& Steps::row(uint32_t entry, uint32_t token, uint32_t flags, const pn_slice& target) {
  pn_row r = {};
  r.entry = entry;
  r.token = token;
  r.flags = flags;
  r.target = target;
  rows.push_back(r);
  return rows.back();
}

pn_lane& Steps::lane(uint32_t number, float temperature) {
  pn_lane l = {};
  l.struct_size = sizeof(l);
  l.lane = number;
  l.adapter = PN_NONE;
  l.temperature = temperature;
  l.top_p = 1;
  l.repeat_penalty = 1;
  lanes.push_back(l);
  return lanes.back();
}

std::vector<float> random_values(uint64_t count, uint64_t seed, float scale) {
  std::mt19937_64 engine(seed);
  std::vector<float> values(count);
  for (float& v : values) v = scale * (static_cast<float>(engine() >> 40) * 0x1p-23f - 1.0f);
  return values;
}

}  // namespace pn::test
