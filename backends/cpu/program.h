// SPDX-License-Identifier: Apache-2.0
//
// Programs: a plan compiled to a flat list of ops with every address known.
//
// Owns lanes (page tables, sampling setups, histories), bound addresses and the op list. Knows the
// queue only as a number. The one idea: all threads of the die walk the op list together; an op
// splits itself between them, and ends with a barrier, so what it wrote is there for the next.
#pragma once

#include <pantheon/program.h>

#include <atomic>
#include <memory>
#include <vector>

#include "backends/cpu/kernels/vector.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/step.h"

namespace pn::cpu {

struct Die;
struct Work;
class Team;
class Op;
struct Run;

// A weight with its address. Tiled kinds: `tiles` of each expert. Plain kinds: one part, F32.
struct Weight {
  pn_weight info = {};
  uint64_t part_bytes = 0;              // of one expert, or of all
  std::vector<const std::byte*> parts;  // one an expert of a stack, else one
  const float* values() const { return reinterpret_cast<const float*>(parts[0]); }
  Matrix matrix(uint64_t part = 0) const;
};

// Where the rows of a slot are: float rows, `stride` floats apart.
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
  int64_t width = 0;
  float* row(int64_t i) const { return data + i * stride; }
};

// Where in a page the keys and values of one cache layer lie: head after head, tokens of a head
// together, so that attention reads one head of a page front to back.
struct CacheLayer {
  uint32_t heads = 0, key_dim = 0, value_dim = 0;  // 0 heads: nothing appends here
  uint64_t keys = 0, values = 0;                   // byte offsets in a unit
};
struct Cache {
  pn_cache info = {};
  uint32_t key_bytes = 0, value_bytes = 0;  // of an element
  uint64_t unit_bytes = 0;
  std::vector<CacheLayer> layers;
  std::byte* base = nullptr;
  uint64_t units = 0;   // bound
  uint32_t window = 0;  // what its readers look back over; 0 all
  bool read = false;    // by an ATTENTION
};

// What one token of a run is.
struct Token {
  uint32_t entry = 0;
  uint32_t lane = 0;
  uint32_t position = 0;
  int32_t id = 0;
};

struct Lane {
  pn_lane setup = {};               // sampling, as last set
  const std::byte* bias = nullptr;  // pairs of setup.bias_count
  uint32_t known = 0;               // history: positions [0, known)
};

// A row that waits for PN_CMD_SAMPLE.
struct HeldRow {
  uint32_t entry = 0, token = 0, lane = 0, position = 0;
  bool spoiled = false;
};

// The op list and where everything lies; made without any binding, so query and create share it.
struct Compiled {
  Compiled();
  Compiled(Compiled&&) noexcept;
  Compiled& operator=(Compiled&&) noexcept;
  ~Compiled();
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<uint64_t> slot_offset;  // in scratch; UINT64_MAX: bound, or never materialised
  std::vector<int64_t> slot_stride;   // floats
  std::vector<Cache> caches;
  std::vector<pn_span> spans;
  uint32_t claims = 0;          // counters that ops share work by
  uint64_t work_offset = 0;     // ops' own scratch, shared by all
  uint64_t sampler_offset = 0;  // in scratch: thread 0's room to sample in
  uint64_t scratch_bytes = 0;
  bool supported = true;
  bool embeds = false, emits = false;
  uint32_t vocab = 0;         // width of EMIT's logits, 0 none
  uint16_t logits = PN_NO16;  // EMIT's slot of them
  uint32_t hidden = 0;        // width of EMIT's hidden rows, 0 none
  uint32_t table_rows = 0;    // ids that EMBED knows
};

struct Program {
  ~Program();
  Die* die = nullptr;
  Plan plan;
  Compiled code;
  std::vector<Weight> weights;
  std::vector<Rows> slots;
  std::vector<std::byte*> bound;  // one a slot: rows of an INPUT or OUTPUT as the host has them
  std::byte* scratch = nullptr;
  int32_t* ids = nullptr;  // [lanes][ids_depth], or nullptr
  const MatmulKernels* matmul = nullptr;
  const VectorKernels* vectors = nullptr;

  // Records, one mapping of record_bytes: what pn_report.program_host_bytes says.
  std::byte* records = nullptr;
  uint64_t record_bytes = 0;
  Lane* lanes = nullptr;          // (lanes)
  int32_t* history = nullptr;     // (lanes, context)
  std::vector<uint32_t*> tables;  // one a paged cache: (lanes, units_per_lane)
  Token* tokens = nullptr;        // (tokens)
  uint8_t* spoiled = nullptr;     // (entries): a fed -1 came in
  float* held_logits = nullptr;   // (held_max, vocab)
  HeldRow* held = nullptr;        // (held_max)
  uint32_t held_max = 0, held_count = 0;
  std::atomic<uint32_t>* claims = nullptr;  // (code.claims)
  uint64_t step_bytes_max = 0;

  // The host's side, written at submit.
  uint64_t queue_id = 0;  // 0: has not run yet
  void submitted(const Work& work, pn_queue queue);

  // [leader]
  pn_status run(Team& team, const Step& step, pn_error* err);
  pn_status sample(Team& team, const Step& step, pn_error* err);

 private:
  void edit(const Step& step);
  pn_status admit(const Step& step, pn_error* err);
  void settle(const Step& step);
  void keep_id(const pn_row& row, uint32_t lane, const std::byte* target);
  pn_status check_pages(const pn_entry& entry, pn_error* err) const;
};

pn_status program_query(pn_device device, const pn_plan* plan, pn_report* report, pn_error* err);
pn_status program_create(pn_device device, const pn_plan* plan, uint32_t count,
                         const pn_binding* bindings, pn_program* out, pn_error* err);
pn_status program_status(pn_program program, pn_program_status* out, pn_error* err);
void program_destroy(pn_program program);

// compile.cc: never fails; what is not supported is in the spans.
Compiled compile(const Plan& plan, uint32_t threads);
uint64_t step_bytes_needed(const Plan& plan);  // the smallest room that is useful
uint64_t step_bytes_max(const Plan& plan);     // the room that is offered
// bind.cc
pn_status bind(Program* program, uint32_t count, const pn_binding* bindings, pn_error* err);
uint64_t record_bytes(const Plan& plan, const Compiled& code);
void place_records(Program* program);

}  // namespace pn::cpu
