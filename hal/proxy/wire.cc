// SPDX-License-Identifier: Apache-2.0
//
// See wire.h. An op's parameters travel as the bytes that their first word counts.
#include "hal/proxy/wire.h"

#include <algorithm>

namespace pn::proxy {

namespace {

constexpr uint32_t kParamsMax = 4096;  // bytes of one op's parameters; the longest has 56

size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

void Writer::raw(const void* at, size_t bytes) {
  const size_t begin = data_.size();
  data_.resize(begin + padded(bytes));
  if (bytes != 0) std::memcpy(data_.data() + begin, at, bytes);
}

const std::byte* Reader::take(size_t bytes) {
  if (!ok_ || bytes > data_.size() - at_) {
    ok_ = false;
    return nullptr;
  }
  const std::byte* here = data_.data() + at_;
  at_ = std::min(data_.size(), at_ + padded(bytes));
  return here;
}

std::string Reader::text() {
  const std::span<const std::byte> all = bytes();
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

std::span<const std::byte> Reader::bytes() {
  const auto count = pod<uint64_t>();
  const std::byte* at = take(count);
  return at == nullptr ? std::span<const std::byte>() : std::span(at, count);
}

const char* write_plan(Writer& out, const pn_plan* given) {
  PlanParts parts;
  pn_plan& plan = parts.plan;
  if (!known(given, &plan)) return "pn_plan";
  if (!known(plan.ops, plan.op_count, &parts.ops)) return "pn_op";
  if (!known(plan.slots, plan.slot_count, &parts.slots)) return "pn_slot";
  if (!known(plan.weights, plan.weight_count, &parts.weights)) return "pn_weight";
  if (!known(plan.caches, plan.cache_count, &parts.caches)) return "pn_cache";
  if (plan.shape_count != 0 && plan.shapes == nullptr) return "pn_shape";
  out.pod(plan);
  out.list(parts.ops.data(), parts.ops.size());
  for (const pn_op& op : parts.ops) {
    const auto* params = static_cast<const uint32_t*>(op.params);
    const uint32_t bytes = params == nullptr ? 0 : *params;
    if (bytes > kParamsMax || (params != nullptr && bytes < sizeof(uint32_t))) return "op params";
    out.list(static_cast<const std::byte*>(op.params), bytes);
  }
  out.list(parts.slots.data(), parts.slots.size());
  out.list(parts.weights.data(), parts.weights.size());
  out.list(parts.caches.data(), parts.caches.size());
  out.list(plan.shapes, plan.shape_count);
  return nullptr;
}

void read_plan(Reader& in, PlanParts* out) {
  out->plan = in.pod<pn_plan>();
  out->ops = in.list<pn_op>();
  for (pn_op& op : out->ops) {
    const std::span<const std::byte> bytes = in.bytes();
    op.params = nullptr;
    if (bytes.empty()) continue;
    out->params.push_back(std::make_unique<uint64_t[]>(bytes.size() / 8 + 1));
    std::memcpy(out->params.back().get(), bytes.data(), bytes.size());
    op.params = out->params.back().get();
  }
  out->slots = in.list<pn_slot>();
  out->weights = in.list<pn_weight>();
  out->caches = in.list<pn_cache>();
  out->shapes = in.list<pn_shape>();
  pn_plan& plan = out->plan;
  plan.op_count = static_cast<uint32_t>(out->ops.size());
  plan.slot_count = static_cast<uint32_t>(out->slots.size());
  plan.weight_count = static_cast<uint32_t>(out->weights.size());
  plan.cache_count = static_cast<uint32_t>(out->caches.size());
  plan.shape_count = static_cast<uint32_t>(out->shapes.size());
  plan.ops = out->ops.data();
  plan.slots = out->slots.data();
  plan.weights = out->weights.data();
  plan.caches = out->caches.data();
  plan.shapes = out->shapes.data();
}

pn_error no_error() {
  pn_error error{};
  error.struct_size = sizeof error;
  return error;
}

pn_status set_error(pn_error* err, pn_status code, const std::string& text) {
  pn_error error = no_error();
  error.code = code;
  std::memcpy(error.message, text.data(), std::min(text.size(), sizeof error.message - 1));
  if (err != nullptr) pn_write(err, &error, sizeof error);
  return code;
}

}  // namespace pn::proxy
