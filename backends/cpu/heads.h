// SPDX-License-Identifier: Apache-2.0
//
// The two halves of an attention layer: heads made from rows (QKV), and heads that read the cache.
//
// Owns no ops; ops_qkv.cc and ops_attention.cc make three of these halves: each alone, and both in
// one. The one idea: the same functions serve every split of the work, so which path a step takes
// changes no bit of it.
#pragma once

#include "backends/cpu/prepare.h"

namespace pn::cpu {

// One page of one cache layer and head, for writing and reading.
struct PageView {
  std::byte* keys = nullptr;    // (unit_tokens, key_dim)
  std::byte* values = nullptr;  // (unit_tokens, value_dim)
};
PageView page_view(const Cache& cache, const CacheLayer& layer, uint32_t page, uint32_t head);
inline uint32_t page_of(const Program& program, uint32_t cache, uint32_t lane, uint32_t position) {
  const pn_cache& info = program.code.caches[cache].info;
  return program.tables[cache][uint64_t{lane} * info.units_per_lane + position / info.unit_tokens];
}
// Writes one head's key and value (F32) of a token; nullptr: leaves that part alone.
void append_row(const Run& run, const Token& token, uint32_t cache, uint32_t layer, uint32_t head,
                const float* key, const float* value);

// A rope table as an op keeps it.
struct RopeUse {
  uint32_t kind = PN_ROPE_NONE;
  uint32_t pairs = 0;
  uint64_t offset = 0;  // in scratch
  uint32_t tokens = 0;  // T of the largest shape
  void turn(const Run& run, int64_t token, float* head) const;
};
bool plan_rope(Builder& b, uint16_t weight, uint32_t kind, uint32_t dims, uint32_t dim,
               float magnitude, RopeUse* out);

// QKV: raw rows by matrix, then each head by itself.
class HeadMaker {
 public:
  bool plan(Builder& b);                                 // from the QKV op at b.index
  void multiply(const Run& run, uint32_t thread) const;  // raw rows of all tokens; no barrier after
  // Query head h of token t as attention wants it, in out (key_dim).
  void query(const Run& run, int64_t t, uint32_t h, float* out) const;
  const float* gate(const Run& run, int64_t t, uint32_t h) const;  // (value_dim), GATED only
  // Norms, turns and appends kv head g of token t; does nothing under NO_APPEND.
  void append(const Run& run, int64_t t, uint32_t g) const;
  const pn_op_qkv& params() const { return params_; }
  bool has(uint32_t flag) const { return (params_.flags & flag) != 0; }

 private:
  float* raw(const Run& run, int64_t t) const { return run.at<float>(raw_) + t * stride_; }
  void multiply_part(const Run& run, const Panels::Made& made, uint32_t part, Range tiles) const;

  pn_op_qkv params_ = {};
  Panels in_;
  uint16_t weights_[6] = {};
  int64_t rows_[3] = {};  // of q, k, v
  int64_t at_[3] = {};    // columns of the raw row
  int64_t stride_ = 0;
  uint32_t claim_ = 0;
  uint64_t raw_ = 0;  // work offset, (tokens, stride)
  RopeUse rope_;
};

// Attention of query rows of one lane against one kv head's pages.
class HeadReader {
 public:
  bool plan(Builder& b, const pn_op_attention& params, uint16_t sinks);
  // Rows of one unit: `tokens` consecutive tokens from `first`, all query heads of kv head g.
  struct Unit {
    int64_t first = 0;
    int64_t tokens = 1;
    uint32_t g = 0;
  };
  int64_t tokens_a_unit() const { return block_tokens_; }
  uint32_t group() const { return group_; }
  uint32_t claim() const { return claim_; }  // of the units of a step
  const pn_op_attention& params() const { return params_; }
  // The thread's buffer of query rows: (tokens * group, key_dim), token after token.
  float* queries(const Run& run, uint32_t thread) const;
  // Reads all the unit sees and writes out rows.
  void attend(const Run& run, uint32_t thread, const Unit& unit, const Rows& out) const;

  // The same in pieces, for few heads and a long context: piece c of a one-token unit, then join.
  struct Chunks {
    uint32_t first = 0, last = 0;
  };
  Chunks chunks_of(const Run& run, const Unit& unit) const;
  bool splits(const Run& run) const;  // worth it in this step
  void attend_chunk(const Run& run, uint32_t thread, const Unit& unit, uint32_t chunk) const;
  void join(const Run& run, uint32_t thread, const Unit& unit, const Rows& out) const;

 private:
  AttendState state(const Run& run, uint32_t thread, uint32_t which) const;
  AttendState partial(const Run& run, const Unit& unit, uint32_t chunk) const;
  void read_chunk(const Run& run, uint32_t thread, const Unit& unit, uint32_t chunk,
                  const AttendState& state) const;
  void finish(const Run& run, const Unit& unit, const AttendState& state, const Rows& out) const;

  pn_op_attention params_ = {};
  uint16_t sinks_ = PN_NO16;
  uint32_t group_ = 1;
  uint32_t claim_ = 0;
  int64_t block_tokens_ = 1;
  int64_t rows_max_ = 1;
  uint32_t block_ = 64;    // positions a kernel call, at fixed multiples
  uint32_t chunk_ = 1024;  // positions a chunk, at fixed multiples
  uint32_t chunks_max_ = 1;
  uint32_t partial_units_ = 0;
  uint64_t queries_ = 0, queries_step_ = 0;
  uint64_t states_ = 0, state_bytes_ = 0;      // two a thread
  uint64_t limits_ = 0, limits_step_ = 0;      // begin and end a row
  uint64_t partials_ = 0, partial_bytes_ = 0;  // [partial_units][chunks_max]
};

// out *= sigmoid(gate) over n values.
void apply_gate(const float* gate, int64_t n, float* out);

}  // namespace pn::cpu
