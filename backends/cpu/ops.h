// SPDX-License-Identifier: Apache-2.0
//
// What an op is made of: the builder that checks and places it, and the run that it sees.
//
// Owns the seam between compile.cc and the ops_*.cc files. The one idea: building an op answers the
// query (a reason when it cannot be done) and yields the object that runs; there is no second place
// that knows what is supported.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdarg>

#include "backends/cpu/program.h"
#include "backends/cpu/threads.h"

namespace pn::cpu {

// One run in flight, the same for all threads.
struct Run {
  const Program& program;
  const Step& step;
  Team& team;
  const MatmulKernels& matmul;
  const VectorKernels& vectors;
  uint32_t threads = 1;
  uint32_t tokens = 0;           // T of this step
  uint32_t rows = 0;             // R
  bool one_each = false;         // every entry has one token: nobody reads what others append
  const Token* token = nullptr;  // (tokens)
  std::byte* work = nullptr;     // of the op that runs
  std::atomic<uint32_t>* claims = nullptr;  // zero when the run starts; Builder::claim names one
  std::byte* scratch = nullptr;

  Rows slot(uint16_t index) const { return program.slots[index]; }
  const Weight& weight(uint16_t index) const { return program.weights[index]; }
  uint32_t count(uint32_t rows_kind) const { return rows_kind == PN_ROWS_TOKENS ? tokens : rows; }
  void barrier() const { team.barrier(); }
  template <typename T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(work + offset);
  }
};

// Part `thread` of [0, total) in `threads` parts.
struct Range {
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
};
inline Range split(int64_t total, uint32_t thread, uint32_t threads) {
  return {total * thread / threads, total * (thread + 1) / threads};
}

// Visits [0, total) in ranges that together all threads cover once. With many rows a range is a
// piece that a thread claims when it is free, so that a thread which the host takes away for a
// while does not hold up the others. With few rows memory is streamed: each thread has a fixed part
// to read through, and only the last quarter is claimed, in pieces small enough that the threads
// end within the 20 us for which a barrier spins.
inline constexpr uint32_t kClaimRows = 16;
template <typename Visit>
void share(const Run& run, uint32_t thread, uint32_t claim, int64_t total, int64_t rows,
           Visit&& visit) {
  const bool few = rows < kClaimRows;
  const int64_t fixed = run.threads == 1 ? total : few ? total - total / 4 : 0;
  const Range mine = split(fixed, thread, run.threads);
  if (mine.size() > 0) visit(mine);
  const int64_t piece = std::max<int64_t>(1, total / (int64_t{run.threads} * (few ? 32 : 8)));
  while (fixed < total) {
    const int64_t first =
        fixed + int64_t{run.claims[claim].fetch_add(1, std::memory_order_relaxed)} * piece;
    if (first >= total) return;
    visit(Range{first, std::min(total, first + piece)});
  }
}

class Op {
 public:
  virtual ~Op() = default;
  // Every thread calls it; on return of the last one all of the op's output is there (each op ends
  // with a barrier of its own).
  virtual void run(const Run& run, uint32_t thread) const = 0;
};

// Offsets of an op's own scratch, 64-byte aligned.
class WorkPlan {
 public:
  uint64_t take(uint64_t bytes) {
    const uint64_t at = used_;
    used_ += (bytes + 63) / 64 * 64;
    return at;
  }
  uint64_t used() const { return used_; }

 private:
  uint64_t used_ = 0;
};

// A norm that its consumers apply while they prepare their input; never stored.
struct FoldedNorm {
  bool folded = false;
  uint16_t source = PN_NO16;  // slot that the norm reads
  uint16_t weight = PN_NO16;
  pn_op_norm params = {};
};

inline constexpr uint32_t kAnyRows = 0xffffffff;

struct Builder {
  const Plan& plan;
  uint32_t threads = 1;
  std::vector<Cache>* caches = nullptr;
  std::vector<FoldedNorm> norms;               // one a slot
  std::vector<std::vector<uint32_t>> readers;  // ops that read a slot
  // Fixed scratch that lives over the whole run (rope tables), before slots and work.
  WorkPlan fixed;
  struct RopeTable {
    uint16_t weight;
    float magnitude;
    uint32_t pairs;
    uint64_t offset;  // in scratch: cos (tokens, pairs), then sin
  };
  std::vector<RopeTable> ropes;
  uint32_t claims = 0;
  uint32_t claim() { return claims++; }  // a counter of the op's own, for share()
  bool embeds = false, emits = false;
  uint32_t vocab = 0;  // of EMIT's logits
  uint16_t logits = PN_NO16;
  uint32_t table_rows = 0;  // ids that EMBED knows
  uint32_t hidden = 0;      // width of EMIT's hidden rows
  uint64_t sampler_at = 0;  // work offset of EMIT's room to sample in

  // Of the op being built:
  uint32_t index = 0;
  WorkPlan work;
  std::vector<uint16_t> reads, writes;  // slots
  std::vector<int64_t> row_floats;      // one a slot; its width, or what a routing slot takes
  char reason[104] = {};

  const PlanOp& op() const { return plan.ops[index]; }
  const pn_weight& weight(uint16_t w) const { return plan.weights[w]; }
  const pn_slot& slot(uint16_t s) const { return plan.slots[s]; }

  // Sets the reason once and returns false.
  __attribute__((format(printf, 2, 3))) bool refuse(const char* format, ...);

  // Slot k of the op, there and of this width and kind of rows (width 0, rows kAnyRows: any).
  bool input(uint32_t k, int64_t width, uint32_t rows_kind);
  bool output(uint32_t k, int64_t width, uint32_t rows_kind);
  bool has_input(uint32_t k) const { return op().op.in[k] != PN_NO16; }
  bool has_weight(uint32_t k) const { return op().op.weight[k] != PN_NO16; }
  // No input, output or weight from these on.
  bool nothing_else(uint32_t inputs, uint32_t outputs, uint32_t weights);

  // Weight k as a matrix {cols, rows, experts} in a layout of ours.
  bool matrix(uint32_t k, int64_t cols, int64_t rows, const char* what, int64_t experts = 1);
  // Weight w as plain F32 of n values in all.
  bool vector(uint16_t w, int64_t n, const char* what);
  // The table of cos and sin for a rope weight.
  bool rope(uint16_t w, uint32_t dims, float magnitude, uint32_t* table);
  // A layer of a paged cache; appending ones fix its heads and dims.
  bool cache_layer(uint32_t cache, uint32_t layer, bool append, const CacheLayer& want);
};

using Build = std::unique_ptr<Op> (*)(Builder& b);  // null: b.reason says why
std::unique_ptr<Op> build_embed(Builder& b);
std::unique_ptr<Op> build_norm(Builder& b);
std::unique_ptr<Op> build_linear(Builder& b);
std::unique_ptr<Op> build_qkv(Builder& b);              // alone
std::unique_ptr<Op> build_attention(Builder& b);        // alone
std::unique_ptr<Op> build_attention_block(Builder& b);  // QKV at b.index with ATTENTION after it
std::unique_ptr<Op> build_mlp(Builder& b);
std::unique_ptr<Op> build_router(Builder& b);
std::unique_ptr<Op> build_experts(Builder& b);
std::unique_ptr<Op> build_rows(Builder& b);
std::unique_ptr<Op> build_emit(Builder& b);
std::unique_ptr<Op> build_binary(Builder& b);
std::unique_ptr<Op> build_unary(Builder& b);
std::unique_ptr<Op> build_glu(Builder& b);
std::unique_ptr<Op> build_columns(Builder& b);
std::unique_ptr<Op> build_concat(Builder& b);
std::unique_ptr<Op> build_rope(Builder& b);
std::unique_ptr<Op> build_append(Builder& b);
std::unique_ptr<Op> make_rope_tables(const Builder& b);  // before all others; null: none needed
std::unique_ptr<Op> make_load(const Builder& b, uint16_t slot);  // bound, not F32 -> F32 rows
std::unique_ptr<Op> make_store(const Builder& b, uint16_t slot);

// Rope cos and sin of a token: (pairs) each.
struct RopeRow {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

}  // namespace pn::cpu
