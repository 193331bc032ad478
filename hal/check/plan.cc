// SPDX-License-Identifier: Apache-2.0
//
// See plan.h.
#include "hal/check/plan.h"

#include <cstring>

namespace pn::check {

namespace {

std::vector<std::byte> as_bytes(std::span<const float> values) {
  const auto* raw = reinterpret_cast<const std::byte*>(values.data());
  return {raw, raw + values.size_bytes()};
}

}  // namespace

uint64_t random_bits(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

std::vector<float> random_values(uint64_t count, uint64_t seed, float scale) {
  std::vector<float> values(count);
  for (float& v : values)
    v = scale * (static_cast<float>(random_bits(seed) >> 40) * 0x1p-23f - 1.0f);
  return values;
}

uint16_t Plan::slot(uint32_t width, uint32_t kind, uint32_t rows) {
  pn_slot s{};
  s.struct_size = sizeof s;
  s.kind = kind;
  s.rows = rows;
  s.width = width;
  s.type = PN_TYPE_F32;
  slots.push_back(s);
  return static_cast<uint16_t>(slots.size() - 1);
}

uint16_t Plan::weight(uint32_t role, uint32_t type, std::vector<int64_t> shape,
                      std::vector<std::byte> data) {
  pn_weight w{};
  w.struct_size = sizeof w;
  w.role = role;
  w.source_type = type;
  for (size_t i = 0; i < 4; ++i) w.shape[i] = i < shape.size() ? shape[i] : 1;
  w.bias = w.scale = w.adapter_a = w.adapter_b = PN_NO16;
  weights.push_back(w);
  bytes.push_back(std::move(data));
  return static_cast<uint16_t>(weights.size() - 1);
}

uint16_t Plan::matrix(int64_t cols, int64_t rows, uint64_t seed, float scale) {
  return weight(PN_ROLE_MATRIX, PN_TYPE_F32, {cols, rows},
                as_bytes(random_values(static_cast<uint64_t>(cols * rows), seed, scale)));
}

uint16_t Plan::stack(int64_t cols, int64_t rows, int64_t experts, uint64_t seed) {
  return weight(PN_ROLE_EXPERTS, PN_TYPE_F32, {cols, rows, experts},
                as_bytes(random_values(static_cast<uint64_t>(cols * rows * experts), seed)));
}

uint16_t Plan::vector(std::span<const float> values, uint32_t role) {
  return weight(role, PN_TYPE_F32, {static_cast<int64_t>(values.size())}, as_bytes(values));
}

uint16_t Plan::random_vector(int64_t n, uint64_t seed, float scale) {
  return vector(random_values(static_cast<uint64_t>(n), seed, scale));
}

uint16_t Plan::rope(uint32_t pairs, float base) {
  std::vector<float> w(pairs);
  float angle = 1;
  for (float& v : w) v = angle, angle *= 1 - 1 / base * 8;
  return vector(w, PN_ROLE_ROPE);
}

uint16_t Plan::cache(uint32_t unit_tokens, uint32_t layers, uint32_t type,
                     uint32_t units_per_lane) {
  pn_cache c{};
  c.struct_size = sizeof c;
  c.kind = PN_CACHE_PAGED;
  c.unit_tokens = unit_tokens;
  c.layers = layers;
  c.key_type = c.value_type = type;
  c.units_per_lane = units_per_lane;
  caches.push_back(c);
  return static_cast<uint16_t>(caches.size() - 1);
}

pn_op& Plan::add(uint16_t kind, std::vector<std::byte> p) {
  pn_op op{};
  op.struct_size = sizeof op;
  op.op = kind;
  for (uint16_t& x : op.in) x = PN_NO16;
  for (uint16_t& x : op.out) x = PN_NO16;
  for (uint16_t& x : op.weight) x = PN_NO16;
  ops.push_back(op);
  params.push_back(std::move(p));
  return ops.back();
}

pn_plan Plan::view() {
  for (size_t i = 0; i < ops.size(); ++i)
    ops[i].params = params[i].empty() ? nullptr : params[i].data();
  pn_plan plan{};
  plan.struct_size = sizeof plan;
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

// ---- steps --------------------------------------------------------------------------------------

pn_step Steps::view() const {
  pn_step step{};
  step.struct_size = sizeof step;
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

pn_entry& Steps::entry(uint32_t lane, uint32_t position, std::span<const int32_t> ids) {
  pn_entry e{};
  e.lane = lane;
  e.count = static_cast<uint32_t>(ids.size());
  e.token = static_cast<uint32_t>(tokens.size());
  e.position = position;
  e.state_in = e.state_out = PN_NONE;
  entries.push_back(e);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  return entries.back();
}

pn_entry& Steps::entry(uint32_t lane, uint32_t position, uint32_t count) {
  return entry(lane, position, std::vector<int32_t>(count));
}

pn_row& Steps::row(uint32_t entry, uint32_t token, uint32_t flags) {
  pn_row r{};
  r.entry = entry;
  r.token = token;
  r.flags = flags;
  r.id_slot = PN_NONE;
  rows.push_back(r);
  return rows.back();
}

pn_lane& Steps::lane(uint32_t number, float temperature) {
  pn_lane l{};
  l.struct_size = sizeof l;
  l.lane = number;
  l.flags = PN_LANE_RESET;
  l.adapter = PN_NONE;
  l.temperature = temperature;
  l.top_p = 1;
  l.repeat_penalty = 1;
  lanes.push_back(l);
  return lanes.back();
}

void Steps::page(uint32_t lane, uint32_t index, uint32_t page, uint32_t count, uint32_t cache) {
  pages.push_back({cache, lane, index, page, count, 0});
}

}  // namespace pn::check
