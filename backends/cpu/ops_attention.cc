// SPDX-License-Identifier: Apache-2.0
//
// ATTENTION over paged keys and values, alone or right behind its QKV.
//
// A context is read in blocks of at most 64 positions at fixed multiples, with a running maximum;
// blocks form chunks of about 1024 positions that start afresh and are joined in order. Both
// borders depend on positions alone. So a row's bits are the same whether its chunks run on one
// thread or on several, alone or beside seven other lanes, in a prompt cut here or there.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/heads.h"

namespace pn::cpu {
namespace {

constexpr int64_t kUnitRows =
    32;  // query rows that share one pass over a page: 16 KiB of f32 at 128

uint64_t round64(uint64_t n) { return (n + 63) / 64 * 64; }

// Adds a later chunk's state to the running one.
void join_states(const AttendState& into, const AttendState& from, int64_t rows, int64_t dv) {
  for (int64_t r = 0; r < rows; ++r) {
    if (from.sum[r] == 0) continue;  // saw nothing
    float* acc = into.acc + r * dv;
    const float* add = from.acc + r * dv;
    if (into.sum[r] == 0) {
      into.max[r] = from.max[r];
      into.sum[r] = from.sum[r];
      memcpy(acc, add, static_cast<size_t>(dv) * sizeof(float));
      continue;
    }
    const float max = std::max(into.max[r], from.max[r]);
    const float a = std::exp(into.max[r] - max), b = std::exp(from.max[r] - max);
    into.max[r] = max;
    into.sum[r] = into.sum[r] * a + from.sum[r] * b;
    for (int64_t i = 0; i < dv; ++i) acc[i] = acc[i] * a + add[i] * b;
  }
}

// Visits the units of a step that fall to this thread: each entry's tokens in blocks, for each kv
// head. Long contexts make units unequal, so they are claimed one at a time.
template <typename Visit>
void each_unit(const Run& run, uint32_t thread, const HeadReader& reader, Visit&& visit) {
  const int64_t step = reader.tokens_a_unit();
  const bool claims = run.threads > 1 && run.tokens >= kClaimRows;
  std::atomic<uint32_t>& next = run.claims[reader.claim()];
  uint32_t turn = 0, mine = claims ? next.fetch_add(1, std::memory_order_relaxed) : thread;
  int64_t first = 0;
  for (uint32_t e = 0; e < run.step.entry_count; ++e) {
    const int64_t count = run.step.entries[e].count;
    for (int64_t t = 0; t < count; t += step) {
      for (uint32_t g = 0; g < reader.params().kv_heads; ++g) {
        if (turn++ != mine) continue;
        visit(HeadReader::Unit{first + t, std::min(step, count - t), g});
        mine = claims ? next.fetch_add(1, std::memory_order_relaxed) : mine + run.threads;
      }
    }
    first += count;
  }
}

class Attention final : public Op {
 public:
  HeadReader reader;
  uint16_t in = PN_NO16, gate = PN_NO16, out = PN_NO16;

  void run(const Run& run, uint32_t thread) const override {
    const pn_op_attention& p = reader.params();
    const int64_t group = reader.group();
    const size_t row_bytes = static_cast<size_t>(group) * p.key_dim * sizeof(float);
    const Rows y = run.slot(out);
    each_unit(run, thread, reader, [&](const HeadReader::Unit& unit) {
      float* queries = reader.queries(run, thread);
      for (int64_t i = 0; i < unit.tokens; ++i)
        memcpy(queries + i * group * p.key_dim,
               run.slot(in).row(unit.first + i) + unit.g * group * p.key_dim, row_bytes);
      reader.attend(run, thread, unit, y);
      for (int64_t i = 0; gate != PN_NO16 && i < unit.tokens; ++i) {
        const int64_t at = unit.g * group * p.value_dim;
        apply_gate(run.slot(gate).row(unit.first + i) + at, group * p.value_dim,
                   y.row(unit.first + i) + at);
      }
    });
    run.barrier();
  }
};

class AttentionBlock final : public Op {
 public:
  HeadMaker maker;
  HeadReader reader;
  uint16_t out = PN_NO16;

  void run(const Run& run, uint32_t thread) const override {
    maker.multiply(run, thread);
    run.barrier();
    if (run.one_each)
      decode(run, thread);
    else
      prompt(run, thread);
    run.barrier();
  }

 private:
  using Unit = HeadReader::Unit;

  // Whoever attends with a head makes it and appends its key first: nobody else reads that page
  // row.
  void decode(const Run& run, uint32_t thread) const {
    const uint32_t heads = reader.params().kv_heads;
    const int64_t units = int64_t{run.tokens} * heads;
    if (reader.splits(run)) return decode_split(run, thread, units);
    for (int64_t u = thread; u < units; u += run.threads) {
      const Unit unit = {u / heads, 1, static_cast<uint32_t>(u % heads)};
      maker.append(run, unit.first, unit.g);
      attend(run, thread, unit);
    }
  }

  void decode_split(const Run& run, uint32_t thread, int64_t units) const {
    const uint32_t heads = reader.params().kv_heads;
    const Rows y = run.slot(out);
    uint32_t turn = 0;
    for (int64_t u = 0; u < units; ++u) {
      const Unit unit = {u / heads, 1, static_cast<uint32_t>(u % heads)};
      const HeadReader::Chunks chunks = reader.chunks_of(run, unit);
      for (uint32_t c = chunks.first; c < chunks.last; ++c) {
        if (turn++ % run.threads != thread) continue;
        if (c + 1 == chunks.last) maker.append(run, unit.first, unit.g);
        gather(run, thread, unit);
        reader.attend_chunk(run, thread, unit, c);
      }
    }
    run.barrier();
    for (int64_t u = thread; u < units; u += run.threads) {
      const Unit unit = {u / heads, 1, static_cast<uint32_t>(u % heads)};
      reader.join(run, thread, unit, y);
      gate(run, unit);
    }
  }

  void prompt(const Run& run, uint32_t thread) const {
    const uint32_t heads = reader.params().kv_heads;
    const Range part = split(int64_t{run.tokens} * heads, thread, run.threads);
    for (int64_t u = part.first; u < part.last; ++u)
      maker.append(run, u / heads, static_cast<uint32_t>(u % heads));
    run.barrier();
    each_unit(run, thread, reader, [&](const Unit& unit) { attend(run, thread, unit); });
  }

  void gather(const Run& run, uint32_t thread, const Unit& unit) const {
    float* queries = reader.queries(run, thread);
    const uint32_t group = reader.group();
    for (int64_t i = 0; i < unit.tokens; ++i)
      for (uint32_t h = 0; h < group; ++h, queries += maker.params().key_dim)
        maker.query(run, unit.first + i, unit.g * group + h, queries);
  }

  void attend(const Run& run, uint32_t thread, const Unit& unit) const {
    gather(run, thread, unit);
    reader.attend(run, thread, unit, run.slot(out));
    gate(run, unit);
  }

  void gate(const Run& run, const Unit& unit) const {
    if (!maker.has(PN_QKV_GATED)) return;
    const uint32_t group = reader.group(), dv = reader.params().value_dim;
    for (int64_t i = 0; i < unit.tokens; ++i)
      for (uint32_t h = unit.g * group; h < (unit.g + 1) * group; ++h)
        apply_gate(maker.gate(run, unit.first + i, h), dv,
                   run.slot(out).row(unit.first + i) + int64_t{h} * dv);
  }
};

}  // namespace

void apply_gate(const float* gate, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] *= 1.0f / (1.0f + std::exp(-gate[i]));
}

bool HeadReader::plan(Builder& b, const pn_op_attention& params, uint16_t sinks) {
  params_ = params;
  sinks_ = sinks;
  if (params.flags != 0) return b.refuse("flags %#x", params.flags);
  if (params.query_heads == 0 || params.kv_heads == 0 ||
      params.query_heads % params.kv_heads != 0 || params.key_dim == 0 || params.value_dim == 0)
    return b.refuse("%u query heads, %u kv heads of %u and %u", params.query_heads, params.kv_heads,
                    params.key_dim, params.value_dim);
  const CacheLayer layer = {params.kv_heads, params.key_dim, params.value_dim};
  if (!b.cache_layer(params.cache, params.cache_layer, false, layer)) return false;
  if (sinks != PN_NO16 && !b.vector(sinks, params.query_heads, "sinks")) return false;
  Cache& cache = (*b.caches)[params.cache];
  cache.window = !cache.read                               ? params.window
                 : cache.window == 0 || params.window == 0 ? 0
                                                           : std::max(cache.window, params.window);
  cache.read = true;
  claim_ = b.claim();
  group_ = params.query_heads / params.kv_heads;
  block_tokens_ = std::max<int64_t>(1, kUnitRows / group_);
  rows_max_ = block_tokens_ * group_;
  const uint32_t unit = cache.info.unit_tokens;
  block_ = std::min<uint32_t>(unit, kAttendPositions);
  chunk_ = std::max(1u, 1024 / block_) * block_;
  chunks_max_ = (b.plan.context + chunk_ - 1) / chunk_;
  const auto rows = static_cast<uint64_t>(rows_max_);
  queries_step_ = round64(rows * params.key_dim * sizeof(float));
  queries_ = b.work.take(queries_step_ * b.threads);
  state_bytes_ = round64(rows * sizeof(float)) * 2 + round64(rows * params.value_dim * 4);
  states_ = b.work.take(state_bytes_ * 2 * b.threads);
  limits_step_ = round64(rows * sizeof(int32_t)) * 2;
  limits_ = b.work.take(limits_step_ * b.threads);
  partial_units_ = chunks_max_ > 1 ? b.threads : 0;
  partial_bytes_ =
      round64(group_ * sizeof(float)) * 2 + round64(uint64_t{group_} * params.value_dim * 4);
  partials_ = b.work.take(partial_bytes_ * chunks_max_ * partial_units_);
  return true;
}

float* HeadReader::queries(const Run& run, uint32_t thread) const {
  return run.at<float>(queries_ + thread * queries_step_);
}

AttendState HeadReader::state(const Run& run, uint32_t thread, uint32_t which) const {
  const uint64_t at = states_ + (uint64_t{thread} * 2 + which) * state_bytes_;
  const uint64_t list = round64(static_cast<uint64_t>(rows_max_) * sizeof(float));
  return {run.at<float>(at), run.at<float>(at + list), run.at<float>(at + 2 * list)};
}

AttendState HeadReader::partial(const Run& run, const Unit& unit, uint32_t chunk) const {
  const uint64_t index = static_cast<uint64_t>(unit.first) * params_.kv_heads + unit.g;
  const uint64_t at = partials_ + (index * chunks_max_ + chunk) * partial_bytes_;
  const uint64_t list = round64(group_ * sizeof(float));
  return {run.at<float>(at), run.at<float>(at + list), run.at<float>(at + 2 * list)};
}

bool HeadReader::splits(const Run& run) const {
  if (partial_units_ == 0 || run.tokens * params_.kv_heads >= run.threads) return false;
  for (uint32_t t = 0; t < run.tokens; ++t)
    if (run.token[t].position >= chunk_) return true;
  return false;
}

HeadReader::Chunks HeadReader::chunks_of(const Run& run, const Unit& unit) const {
  const uint32_t position = run.token[unit.first].position;
  const uint32_t window = params_.window;
  const uint32_t first = window == 0 || position < window ? 0 : position - window + 1;
  const auto last = static_cast<uint32_t>(position + unit.tokens);
  return {first / chunk_, (last + chunk_ - 1) / chunk_};
}

void HeadReader::attend(const Run& run, uint32_t thread, const Unit& unit, const Rows& out) const {
  const Chunks chunks = chunks_of(run, unit);
  const int64_t rows = unit.tokens * group_;
  const AttendState sum = state(run, thread, 0), one = state(run, thread, 1);
  for (uint32_t c = chunks.first; c < chunks.last; ++c) {
    const AttendState& into = c == chunks.first ? sum : one;
    read_chunk(run, thread, unit, c, into);
    if (c != chunks.first) join_states(sum, one, rows, params_.value_dim);
  }
  finish(run, unit, sum, out);
}

void HeadReader::attend_chunk(const Run& run, uint32_t thread, const Unit& unit,
                              uint32_t chunk) const {
  read_chunk(run, thread, unit, chunk, partial(run, unit, chunk));
}

void HeadReader::join(const Run& run, uint32_t thread, const Unit& unit, const Rows& out) const {
  const Chunks chunks = chunks_of(run, unit);
  const AttendState sum = state(run, thread, 0);
  attend_begin(sum, group_, params_.value_dim);
  for (uint32_t c = chunks.first; c < chunks.last; ++c)
    join_states(sum, partial(run, unit, c), group_, params_.value_dim);
  finish(run, unit, sum, out);
}

void HeadReader::read_chunk(const Run& run, uint32_t thread, const Unit& unit, uint32_t chunk,
                            const AttendState& state) const {
  const Cache& cache = run.program.code.caches[params_.cache];
  const CacheLayer& layer = cache.layers[params_.cache_layer];
  const Token& token = run.token[unit.first];
  const int64_t rows = unit.tokens * group_, seen = token.position + unit.tokens;
  const int64_t window = params_.window == 0 ? INT64_MAX / 2 : params_.window;
  attend_begin(state, rows, params_.value_dim);
  int32_t* begin = run.at<int32_t>(limits_ + thread * limits_step_);
  int32_t* end = begin + limits_step_ / 2 / sizeof(int32_t);

  AttendBlock block;
  block.q = queries(run, thread);
  block.q_stride = params_.key_dim;
  block.k_stride = int64_t{params_.key_dim} * cache.key_bytes;
  block.v_stride = int64_t{params_.value_dim} * cache.value_bytes;
  block.kv_type = cache.info.key_type;
  block.rows = static_cast<int32_t>(rows);
  block.dk = static_cast<int32_t>(params_.key_dim);
  block.dv = static_cast<int32_t>(params_.value_dim);
  block.scale = params_.scale;
  block.softcap = params_.softcap;
  block.begin = begin;
  block.end = end;
  const int64_t oldest = std::max<int64_t>(0, int64_t{token.position} - window + 1);
  int64_t base = std::max<int64_t>(int64_t{chunk} * chunk_, oldest / block_ * block_);
  const int64_t stop = std::min(seen, (int64_t{chunk} + 1) * chunk_);
  for (; base < stop; base += block_) {
    const int64_t count = std::min<int64_t>(block_, stop - base);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t position = token.position + r / group_;
      end[r] = static_cast<int32_t>(std::clamp<int64_t>(position + 1 - base, 0, count));
      begin[r] = static_cast<int32_t>(std::clamp<int64_t>(position - window + 1 - base, 0, end[r]));
    }
    const auto at = static_cast<uint32_t>(base);
    const PageView page =
        page_view(cache, layer, page_of(run.program, params_.cache, token.lane, at), unit.g);
    const int64_t offset = at % cache.info.unit_tokens;
    block.k = page.keys + offset * block.k_stride;
    block.v = page.values + offset * block.v_stride;
    block.count = static_cast<int32_t>(count);
    run.vectors.attend_block(block, state);
  }
}

void HeadReader::finish(const Run& run, const Unit& unit, const AttendState& state,
                        const Rows& out) const {
  const int64_t head = int64_t{unit.g} * group_;
  for (int64_t i = 0; i < unit.tokens; ++i) {
    AttendState rows = state;
    rows.max += i * group_;
    rows.sum += i * group_;
    rows.acc += i * group_ * params_.value_dim;
    AttendOut to;
    to.out = out.row(unit.first + i) + head * params_.value_dim;
    to.stride = params_.value_dim;
    to.rows = group_;
    to.dv = params_.value_dim;
    if (sinks_ != PN_NO16) to.sinks = run.weight(sinks_).values() + head;
    attend_finish(rows, to);
  }
}

std::unique_ptr<Op> build_attention(Builder& b) {
  const pn_op& op = b.op().op;
  auto attention = std::make_unique<Attention>();
  const auto& params = b.op().as<pn_op_attention>();
  const int64_t keys = int64_t{params.query_heads} * params.key_dim;
  const int64_t values = int64_t{params.query_heads} * params.value_dim;
  if (!b.input(0, keys, PN_ROWS_TOKENS) || !b.output(0, values, PN_ROWS_TOKENS) ||
      !b.nothing_else(2, 1, 1) || !attention->reader.plan(b, params, op.weight[0]))
    return nullptr;
  if (b.has_input(1) && !b.input(1, values, PN_ROWS_TOKENS)) return nullptr;
  attention->in = op.in[0];
  attention->gate = op.in[1];
  attention->out = op.out[0];
  return attention;
}

std::unique_ptr<Op> build_attention_block(Builder& b) {
  auto block = std::make_unique<AttentionBlock>();
  if (!block->maker.plan(b)) return nullptr;
  const pn_op_qkv& q = block->maker.params();
  if (block->maker.has(PN_QKV_GATED) && q.key_dim != q.value_dim) return nullptr;
  const pn_op& qkv = b.op().op;
  if (b.slot(qkv.out[0]).width != uint64_t{q.query_heads} * q.key_dim ||
      (qkv.out[1] != PN_NO16 && b.slot(qkv.out[1]).width != uint64_t{q.query_heads} * q.key_dim))
    return nullptr;
  b.index += 1;
  const pn_op& op = b.op().op;
  const auto& params = b.op().as<pn_op_attention>();
  const int64_t values = int64_t{params.query_heads} * params.value_dim;
  if (!b.output(0, values, PN_ROWS_TOKENS) || !b.nothing_else(2, 1, 1) ||
      !block->reader.plan(b, params, op.weight[0]))
    return nullptr;
  block->out = op.out[0];
  return block;
}

}  // namespace pn::cpu
