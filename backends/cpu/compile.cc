// SPDX-License-Identifier: Apache-2.0
//
// Plan -> op list: folds norms into their consumers, fuses QKV with ATTENTION, builds each op, and
// gives every slot its place in scratch.
//
// Knows ops by their build functions alone. Slots whose lives do not overlap share bytes, so the
// scratch of a deep model is that of one layer.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backends/cpu/ops.h"

namespace pn::cpu {
namespace {

constexpr uint32_t kNumerics =
    PN_NUMERICS_BATCH_INVARIANT | PN_NUMERICS_REPRODUCIBLE | PN_NUMERICS_CHUNK_INVARIANT;

struct BuildEntry {
  uint16_t op;
  Build build;
};
constexpr BuildEntry kBuilds[] = {
    {PN_OP_EMBED, build_embed},   {PN_OP_NORM, build_norm},           {PN_OP_LINEAR, build_linear},
    {PN_OP_QKV, build_qkv},       {PN_OP_ATTENTION, build_attention}, {PN_OP_MLP, build_mlp},
    {PN_OP_ROUTER, build_router}, {PN_OP_EXPERTS, build_experts},     {PN_OP_ROWS, build_rows},
    {PN_OP_EMIT, build_emit},     {PN_OP_BINARY, build_binary},       {PN_OP_UNARY, build_unary},
    {PN_OP_GLU, build_glu},       {PN_OP_COLUMNS, build_columns},     {PN_OP_CONCAT, build_concat},
    {PN_OP_ROPE, build_rope},     {PN_OP_APPEND, build_append},
};

Build build_of(const pn_op& op) {
  if (op.rev != 0) return nullptr;
  for (const BuildEntry& entry : kBuilds)
    if (entry.op == op.op) return entry.build;
  return nullptr;
}

uint32_t element_bytes(uint32_t type) {
  return type == PN_TYPE_F32 ? 4 : type == PN_TYPE_F16 ? 2 : 0;
}

// Life of a slot, in positions of the final op list.
struct Life {
  uint32_t first = UINT32_MAX, last = 0;
  void touch(uint32_t at) {
    first = std::min(first, at);
    last = std::max(last, at);
  }
};

class Compiler {
 public:
  Compiler(const Plan& plan, uint32_t threads) : plan_(plan), b_{plan} {
    b_.threads = threads;
    b_.caches = &code_.caches;
    b_.norms.resize(plan.slots.size());
    b_.readers.resize(plan.slots.size());
    b_.row_floats.resize(plan.slots.size());
    for (size_t s = 0; s < plan.slots.size(); ++s) b_.row_floats[s] = plan.slots[s].width;
    lives_.resize(plan.slots.size());
  }

  Compiled run() {
    open_caches();
    for (uint32_t i = 0; i < plan_.ops.size(); ++i)
      for (uint16_t s : plan_.ops[i].op.in)
        if (s != PN_NO16) b_.readers[s].push_back(i);
    fold_norms();
    load_inputs();
    for (uint32_t i = 0; i < plan_.ops.size(); i = build(i)) {
    }
    store_outputs();
    if (auto tables = make_rope_tables(b_)) code_.ops.insert(code_.ops.begin(), std::move(tables));
    close_caches();
    place();
    code_.claims = b_.claims;
    code_.embeds = b_.embeds;
    code_.emits = b_.emits;
    code_.vocab = b_.vocab;
    code_.hidden = b_.hidden;
    code_.logits = b_.logits;
    code_.table_rows = b_.table_rows;
    return std::move(code_);
  }

 private:
  const PlanOp& op(uint32_t i) const { return plan_.ops[i]; }

  void open_caches() {
    for (const pn_cache& info : plan_.caches) {
      Cache cache;
      cache.info = info;
      if (info.kind == PN_CACHE_PAGED && info.key_type == info.value_type) {
        cache.key_bytes = element_bytes(info.key_type);
        cache.value_bytes = element_bytes(info.value_type);
      }
      cache.layers.resize(info.layers);
      code_.caches.push_back(std::move(cache));
    }
  }

  void close_caches() {
    for (Cache& cache : code_.caches) {
      uint64_t at = 0;
      for (CacheLayer& layer : cache.layers) {
        const uint64_t rows = uint64_t{layer.heads} * cache.info.unit_tokens;
        layer.keys = at;
        at += (rows * layer.key_dim * cache.key_bytes + 63) / 64 * 64;
        layer.values = at;
        at += (rows * layer.value_dim * cache.value_bytes + 63) / 64 * 64;
      }
      cache.unit_bytes = at;
    }
  }

  // A whole-row norm that only matrix ops read is applied while they prepare their input: a pass
  // over memory and a barrier less, twice a layer.
  void fold_norms() {
    for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
      const pn_op& norm = op(i).op;
      if (norm.op != PN_OP_NORM || norm.rev != 0) continue;
      const pn_op_norm& params = op(i).as<pn_op_norm>();
      const uint16_t in = norm.in[0], out = norm.out[0];
      if (in == PN_NO16 || out == PN_NO16 || params.group != 0) continue;
      if (plan_.slots[out].kind != PN_SLOT_INTERNAL || b_.readers[out].empty()) continue;
      if (b_.norms[in].folded || plan_.slots[in].width != plan_.slots[out].width ||
          plan_.slots[in].rows != plan_.slots[out].rows)
        continue;
      bool all = true;
      for (uint32_t reader : b_.readers[out]) all = all && takes_folded(op(reader).op, out);
      if (!all) continue;
      b_.index = i;
      b_.reason[0] = 0;
      const bool weight_fine =
          norm.weight[0] == PN_NO16 || b_.vector(norm.weight[0], plan_.slots[out].width, "norm");
      if (params.kind > PN_NORM_L2 || !weight_fine) continue;
      b_.norms[out] = {true, in, norm.weight[0], params};
    }
    b_.reason[0] = 0;
  }

  static bool takes_folded(const pn_op& reader, uint16_t slot) {
    const bool kind = reader.op == PN_OP_LINEAR || reader.op == PN_OP_QKV ||
                      reader.op == PN_OP_MLP || reader.op == PN_OP_ROUTER ||
                      reader.op == PN_OP_EXPERTS;
    if (!kind || reader.in[0] != slot) return false;
    for (uint32_t k = 1; k < 6; ++k)
      if (reader.in[k] == slot) return false;
    return true;
  }

  // ATTENTION right after its QKV, with nobody else reading the queries.
  bool fuses(uint32_t i) const {
    if (op(i).op.op != PN_OP_QKV || i + 1 >= plan_.ops.size()) return false;
    const pn_op& qkv = op(i).op;
    const pn_op& attention = op(i + 1).op;
    if (attention.op != PN_OP_ATTENTION || qkv.rev != 0 || attention.rev != 0) return false;
    const auto& q = op(i).as<pn_op_qkv>();
    const auto& a = op(i + 1).as<pn_op_attention>();
    const bool gated = (q.flags & PN_QKV_GATED) != 0;
    return qkv.out[0] != PN_NO16 && attention.in[0] == qkv.out[0] &&
           b_.readers[qkv.out[0]].size() == 1 && plan_.slots[qkv.out[0]].kind == 0 &&
           attention.in[1] == qkv.out[1] && gated == (qkv.out[1] != PN_NO16) &&
           (!gated || (b_.readers[qkv.out[1]].size() == 1 && plan_.slots[qkv.out[1]].kind == 0)) &&
           q.cache == a.cache && q.cache_layer == a.cache_layer && q.query_heads == a.query_heads &&
           q.kv_heads == a.kv_heads && q.key_dim == a.key_dim && q.value_dim == a.value_dim;
  }

  // Builds the op at i (and what goes with it); the next op to build.
  uint32_t build(uint32_t i) {
    const pn_op& norm = op(i).op;
    if (norm.op == PN_OP_NORM && norm.out[0] != PN_NO16 && b_.norms[norm.out[0]].folded) {
      // Told in the span of the op that follows when that is its reader, else on its own.
      if (b_.readers[norm.out[0]].front() == i + 1)
        pending_ = i;
      else
        span(i, 1, PN_SPAN_OP, nullptr);
      return i + 1;
    }
    const uint32_t first = pending_ == UINT32_MAX ? i : pending_;
    pending_ = UINT32_MAX;
    if (fuses(i) && make(i, build_attention_block)) {
      span(first, i + 2 - first, PN_SPAN_BLOCK, nullptr);
      return i + 2;
    }
    const Build how = build_of(op(i).op);
    if (how == nullptr) {
      b_.reason[0] = 0;
      b_.refuse("%s, revision %u, is not in the cpu plugin", op_name(op(i).op.op), op(i).op.rev);
      span(first, i + 1 - first, PN_SPAN_UNSUPPORTED, b_.reason);
    } else if (make(i, how)) {
      span(first, i + 1 - first, first == i ? PN_SPAN_OP : PN_SPAN_BLOCK, nullptr);
    } else {
      span(first, i + 1 - first, PN_SPAN_UNSUPPORTED, b_.reason);
    }
    return i + 1;
  }

  bool make(uint32_t i, Build how) {
    b_.index = i;
    b_.work = WorkPlan();
    b_.reads.clear();
    b_.writes.clear();
    b_.reason[0] = 0;
    auto made = how(b_);
    if (made == nullptr) return false;
    const auto at = static_cast<uint32_t>(code_.ops.size());
    for (uint16_t s : b_.reads) lives_[s].touch(at);
    for (uint16_t s : b_.writes) lives_[s].touch(at);
    work_bytes_ = std::max(work_bytes_, b_.work.used());
    code_.ops.push_back(std::move(made));
    return true;
  }

  void span(uint32_t first, uint32_t count, uint32_t granularity, const char* reason) {
    pn_span span = {};
    span.struct_size = sizeof(span);
    span.granularity = granularity;
    span.first_op = first;
    span.op_count = count;
    span.accumulate_type = PN_TYPE_F32;
    span.numerics = kNumerics;
    if (reason != nullptr) {
      snprintf(span.reason, sizeof(span.reason), "%s", reason);
      span.numerics = 0;
      code_.supported = false;
    }
    code_.spans.push_back(span);
  }

  // Bound rows that are not F32 are read into, and written from, F32 rows of our own.
  static bool converts(const pn_slot& slot) {
    return slot.kind != PN_SLOT_INTERNAL && slot.type != PN_TYPE_F32;
  }
  void load_inputs() {
    for (uint16_t s = 0; s < plan_.slots.size(); ++s) {
      if (plan_.slots[s].kind != PN_SLOT_INPUT || !converts(plan_.slots[s])) continue;
      lives_[s].touch(static_cast<uint32_t>(code_.ops.size()));
      code_.ops.push_back(make_load(b_, s));
    }
  }
  void store_outputs() {
    for (uint16_t s = 0; s < plan_.slots.size(); ++s) {
      if (plan_.slots[s].kind != PN_SLOT_OUTPUT || !converts(plan_.slots[s])) continue;
      lives_[s].touch(static_cast<uint32_t>(code_.ops.size()));
      code_.ops.push_back(make_store(b_, s));
    }
  }

  struct Taken {
    uint64_t from, to;
    uint32_t first, last;
  };
  // The lowest place where a slot overlaps no slot that lives at the same time.
  static uint64_t fit(const std::vector<Taken>& taken, const Life& life, uint64_t size) {
    uint64_t at = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Taken& other : taken) {
        const bool together = other.first <= life.last && life.first <= other.last;
        if (!together || at + size <= other.from || other.to <= at) continue;
        at = other.to;
        moved = true;
      }
    }
    return at;
  }

  void place() {
    std::vector<Taken> taken;
    uint64_t slots_end = 0;
    const uint64_t base = b_.fixed.used();
    code_.slot_offset.assign(plan_.slots.size(), UINT64_MAX);
    code_.slot_stride.resize(plan_.slots.size());
    for (uint32_t s = 0; s < plan_.slots.size(); ++s) {
      const pn_slot& slot = plan_.slots[s];
      const bool bound = slot.kind != PN_SLOT_INTERNAL && !converts(slot);
      code_.slot_stride[s] = bound ? slot.width : (b_.row_floats[s] + 15) / 16 * 16;
      if (bound || lives_[s].first == UINT32_MAX) continue;
      const uint64_t size = static_cast<uint64_t>(code_.slot_stride[s]) * sizeof(float) *
                            std::max(1u, plan_.slot_rows(s));
      const uint64_t at = fit(taken, lives_[s], size);
      taken.push_back({at, at + size, lives_[s].first, lives_[s].last});
      slots_end = std::max(slots_end, at + size);
      code_.slot_offset[s] = base + at;
    }
    code_.work_offset = base + slots_end;
    code_.sampler_offset = code_.work_offset + b_.sampler_at;
    code_.scratch_bytes = std::max<uint64_t>(64, code_.work_offset + work_bytes_);
  }

  const Plan& plan_;
  Compiled code_;
  Builder b_;
  std::vector<Life> lives_;
  uint64_t work_bytes_ = 0;
  uint32_t pending_ = UINT32_MAX;  // a folded norm whose reader comes next
};

constexpr uint64_t kStepBytesMax = uint64_t{3} << 19;  // 1.5 MiB of a ring slot's 2 MiB

}  // namespace

Compiled::Compiled() = default;
Compiled::Compiled(Compiled&&) noexcept = default;
Compiled& Compiled::operator=(Compiled&&) noexcept = default;
Compiled::~Compiled() = default;

Compiled compile(const Plan& plan, uint32_t threads) { return Compiler(plan, threads).run(); }

uint64_t step_bytes_needed(const Plan& plan) {
  return plan.tokens * sizeof(int32_t) + plan.entries * sizeof(pn_entry) +
         plan.rows * sizeof(pn_row) + uint64_t{plan.lanes} * sizeof(pn_lane);
}

uint64_t step_bytes_max(const Plan& plan) {
  // Room beside the entries for one whole table and history: a lane that reuses a long prefix.
  uint64_t edits = uint64_t{plan.context} * sizeof(int32_t);
  for (const pn_cache& cache : plan.caches) edits += cache.units_per_lane * sizeof(pn_pages);
  edits = std::max<uint64_t>(edits, 64 << 10);
  return std::min(kStepBytesMax, (step_bytes_needed(plan) + edits + 4095) / 4096 * 4096);
}

}  // namespace pn::cpu
