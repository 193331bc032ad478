// SPDX-License-Identifier: Apache-2.0
//
// QKV: query, key and value heads of each row; norm, rope, and the append to the paged cache.
//
// The matrices write raw rows q | k | v of the op's own; heads are then made one by one, each by
// whoever needs it next, which in a decode step is the thread that attends with it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/heads.h"

namespace pn::cpu {
namespace {

constexpr uint32_t kHeadMax = 1024;

int64_t round16(int64_t n) { return (n + 15) / 16 * 16; }

void store_row(const VectorKernels& vectors, uint32_t bytes, const float* from, int64_t n,
               std::byte* to) {
  if (bytes == 4)
    memcpy(to, from, static_cast<size_t>(n) * 4);
  else
    vectors.to_f16(from, n, reinterpret_cast<uint16_t*>(to));
}

class Qkv final : public Op {
 public:
  HeadMaker heads;
  uint16_t q_out = PN_NO16, gate_out = PN_NO16;

  void run(const Run& run, uint32_t thread) const override {
    heads.multiply(run, thread);
    run.barrier();
    const pn_op_qkv& p = heads.params();
    const int64_t units = p.query_heads + p.kv_heads;
    const Range part = split(run.tokens * units, thread, run.threads);
    for (int64_t u = part.first; u < part.last; ++u) {
      const int64_t t = u / units;
      const auto h = static_cast<uint32_t>(u % units);
      if (h >= p.query_heads) {
        heads.append(run, t, h - p.query_heads);
        continue;
      }
      heads.query(run, t, h, run.slot(q_out).row(t) + int64_t{h} * p.key_dim);
      if (gate_out != PN_NO16)
        memcpy(run.slot(gate_out).row(t) + int64_t{h} * p.key_dim, heads.gate(run, t, h),
               p.key_dim * sizeof(float));
    }
    run.barrier();
  }
};

}  // namespace

PageView page_view(const Cache& cache, const CacheLayer& layer, uint32_t page, uint32_t head) {
  std::byte* unit = cache.base + uint64_t{page} * cache.unit_bytes;
  const uint64_t rows = uint64_t{head} * cache.info.unit_tokens;
  return {unit + layer.keys + rows * layer.key_dim * cache.key_bytes,
          unit + layer.values + rows * layer.value_dim * cache.value_bytes};
}

void append_row(const Run& run, const Token& token, uint32_t cache, uint32_t layer, uint32_t head,
                const float* key, const float* value) {
  const Cache& c = run.program.code.caches[cache];
  const CacheLayer& l = c.layers[layer];
  const PageView page =
      page_view(c, l, page_of(run.program, cache, token.lane, token.position), head);
  const uint64_t row = token.position % c.info.unit_tokens;
  if (key != nullptr)
    store_row(run.vectors, c.key_bytes, key, l.key_dim, page.keys + row * l.key_dim * c.key_bytes);
  if (value != nullptr)
    store_row(run.vectors, c.value_bytes, value, l.value_dim,
              page.values + row * l.value_dim * c.value_bytes);
}

void RopeUse::turn(const Run& run, int64_t token, float* head) const {
  if (kind == PN_ROPE_NONE) return;
  const float* cos = reinterpret_cast<const float*>(run.scratch + offset) + token * pairs;
  const float* sin = cos + int64_t{tokens} * pairs;
  if (kind == PN_ROPE_NORM)
    run.vectors.rope_norm(head, cos, sin, pairs);
  else
    run.vectors.rope_neox(head, cos, sin, pairs);
}

bool plan_rope(Builder& b, uint16_t weight, uint32_t kind, uint32_t dims, uint32_t dim,
               float magnitude, RopeUse* out) {
  if (kind > PN_ROPE_NEOX) return b.refuse("rope kind %u", kind);
  out->kind = kind;
  if (kind == PN_ROPE_NONE) return true;
  if (dims > dim) return b.refuse("rope_dims %u of a head of %u", dims, dim);
  uint32_t table = 0;
  if (!b.rope(weight, dims, magnitude, &table)) return false;
  out->pairs = dims / 2;
  out->offset = b.ropes[table].offset;
  out->tokens = b.plan.tokens;
  return true;
}

bool HeadMaker::plan(Builder& b) {
  const pn_op& op = b.op().op;
  params_ = b.op().as<pn_op_qkv>();
  const pn_op_qkv& p = params_;
  std::copy(op.weight, op.weight + 6, weights_);
  constexpr uint32_t kFlags =
      PN_QKV_FUSED | PN_QKV_GATED | PN_QKV_V_NORM | PN_QKV_V_IS_K | PN_QKV_NO_APPEND;
  if ((p.flags & ~kFlags) != 0) return b.refuse("flags %#x", p.flags);
  if (p.query_heads == 0 || p.kv_heads == 0 || p.query_heads % p.kv_heads != 0 || p.key_dim == 0 ||
      p.value_dim == 0)
    return b.refuse("%u query heads, %u kv heads of %u and %u", p.query_heads, p.kv_heads,
                    p.key_dim, p.value_dim);
  if (has(PN_QKV_V_IS_K) && p.key_dim != p.value_dim)
    return b.refuse("v is k, yet heads are of %u and %u", p.key_dim, p.value_dim);
  if (has(PN_QKV_V_IS_K) && has(PN_QKV_V_NORM) && p.value_dim > kHeadMax)
    return b.refuse("v is k, normed, in heads of %u; %u at most", p.value_dim, kHeadMax);
  if (!b.input(0, 0, PN_ROWS_TOKENS) || !b.nothing_else(1, 2, 6)) return false;
  const int64_t width = b.slot(op.in[0]).width;
  const bool keys = !has(PN_QKV_NO_APPEND), values = keys && !has(PN_QKV_V_IS_K);
  rows_[0] = int64_t{p.query_heads} * p.key_dim * (has(PN_QKV_GATED) ? 2 : 1);
  rows_[1] = keys ? int64_t{p.kv_heads} * p.key_dim : 0;
  rows_[2] = values ? int64_t{p.kv_heads} * p.value_dim : 0;
  if (has(PN_QKV_FUSED)) {
    if (!b.matrix(0, width, rows_[0] + rows_[1] + rows_[2], "q, k and v")) return false;
    at_[1] = rows_[0];
    at_[2] = rows_[0] + rows_[1];
    stride_ = round16(at_[2] + rows_[2]);
  } else {
    if (!b.matrix(0, width, rows_[0], "q") || (keys && !b.matrix(1, width, rows_[1], "k")) ||
        (values && !b.matrix(2, width, rows_[2], "v")))
      return false;
    at_[1] = round16(rows_[0]);
    at_[2] = at_[1] + round16(rows_[1]);
    stride_ = at_[2] + round16(rows_[2]);
  }
  if (weights_[3] != PN_NO16 && !b.vector(weights_[3], p.key_dim, "query norm")) return false;
  if (weights_[4] != PN_NO16 && !b.vector(weights_[4], p.key_dim, "key norm")) return false;
  if (!plan_rope(b, weights_[5], p.rope_kind, p.rope_dims, p.key_dim, p.rope_magnitude, &rope_))
    return false;
  if (p.q_temperature != 0 && !(p.q_span > 0)) return b.refuse("q_span %g", double{p.q_span});
  const CacheLayer layer = {p.kv_heads, p.key_dim, p.value_dim};
  if (keys && !b.cache_layer(p.cache, p.cache_layer, true, layer)) return false;
  in_.plan(b, op.in[0], weights_, has(PN_QKV_FUSED) ? 1 : 1 + keys + values, b.plan.tokens);
  claim_ = b.claim();
  raw_ = b.work.take(static_cast<uint64_t>(b.plan.tokens * stride_) * sizeof(float));
  return true;
}

void HeadMaker::multiply(const Run& run, uint32_t thread) const {
  const Panels::Made made = in_.run(run, thread, run.tokens);
  const uint32_t parts = has(PN_QKV_FUSED) ? 1 : 3;
  int64_t total = 0, tiles[3] = {};
  for (uint32_t i = 0; i < parts; ++i)
    total += tiles[i] = tile_count(parts == 1 ? rows_[0] + rows_[1] + rows_[2] : rows_[i]);
  if (run.tokens == 0) return;
  // The tiles of q, k and v as one list.
  share(run, thread, claim_, total, run.tokens, [&](Range mine) {
    int64_t before = 0;
    for (uint32_t i = 0; i < parts; before += tiles[i++]) {
      const Range part = {std::max<int64_t>(mine.first - before, 0),
                          std::min(mine.last - before, tiles[i])};
      if (part.size() > 0) multiply_part(run, made, i, part);
    }
  });
}

void HeadMaker::multiply_part(const Run& run, const Panels::Made& made, uint32_t part,
                              Range tiles) const {
  const Weight& w = run.weight(weights_[part]);
  const Matrix matrix = w.matrix();
  float* y = run.at<float>(raw_) + at_[part];
  run.matmul.matmul(matrix, made.of(matrix.type), run.tokens, y, stride_, tiles.first, tiles.last);
  const Range columns = columns_of(tiles, matrix.rows);
  finish_columns(run, w, 0, {y, stride_, run.tokens, columns.first, columns.last});
}

void HeadMaker::query(const Run& run, int64_t t, uint32_t h, float* out) const {
  const int64_t step = int64_t{params_.key_dim} * (has(PN_QKV_GATED) ? 2 : 1);
  const float* from = raw(run, t) + h * step;
  if (weights_[3] != PN_NO16)
    run.vectors.rms_norm(from, run.weight(weights_[3]).values(), params_.norm_eps, params_.key_dim,
                         out);
  else
    memcpy(out, from, params_.key_dim * sizeof(float));
  rope_.turn(run, t, out);
  if (params_.q_temperature == 0) return;
  const float spans = std::floor(static_cast<float>(run.token[t].position) / params_.q_span);
  const float factor = 1.0f + params_.q_temperature * std::log1p(spans);
  for (uint32_t i = 0; i < params_.key_dim; ++i) out[i] *= factor;
}

const float* HeadMaker::gate(const Run& run, int64_t t, uint32_t h) const {
  return raw(run, t) + (int64_t{h} * 2 + 1) * params_.key_dim;
}

void HeadMaker::append(const Run& run, int64_t t, uint32_t g) const {
  if (has(PN_QKV_NO_APPEND)) return;
  const uint32_t dk = params_.key_dim, dv = params_.value_dim;
  float* row = raw(run, t);
  float* key = row + at_[1] + int64_t{g} * dk;
  float* value = row + at_[2] + int64_t{g} * dv;
  const Token& token = run.token[t];
  if (has(PN_QKV_V_IS_K)) value = key;  // written before the key is normed and turned
  if (has(PN_QKV_V_NORM) && !has(PN_QKV_V_IS_K))
    run.vectors.rms_norm(value, nullptr, params_.norm_eps, dv, value);
  if (has(PN_QKV_V_NORM) && has(PN_QKV_V_IS_K)) {
    // The key is needed as it came: scale a copy, a stack's worth at most.
    float copy[kHeadMax];
    run.vectors.rms_norm(key, nullptr, params_.norm_eps, dv, copy);
    append_row(run, token, params_.cache, params_.cache_layer, g, nullptr, copy);
  } else {
    append_row(run, token, params_.cache, params_.cache_layer, g, nullptr, value);
  }
  if (weights_[4] != PN_NO16)
    run.vectors.rms_norm(key, run.weight(weights_[4]).values(), params_.norm_eps, dk, key);
  rope_.turn(run, t, key);
  append_row(run, token, params_.cache, params_.cache_layer, g, key, nullptr);
}

std::unique_ptr<Op> build_qkv(Builder& b) {
  const pn_op& op = b.op().op;
  auto qkv = std::make_unique<Qkv>();
  if (!qkv->heads.plan(b)) return nullptr;
  const pn_op_qkv& p = qkv->heads.params();
  const int64_t width = int64_t{p.query_heads} * p.key_dim;
  const bool gated = qkv->heads.has(PN_QKV_GATED);
  if (!b.output(0, width, PN_ROWS_TOKENS)) return nullptr;
  if (gated && !b.output(1, width, PN_ROWS_TOKENS)) return nullptr;
  if (!gated && op.out[1] != PN_NO16) return b.refuse("out[1] without GATED"), nullptr;
  qkv->q_out = op.out[0];
  qkv->gate_out = op.out[1];
  return qkv;
}

}  // namespace pn::cpu
