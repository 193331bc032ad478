// SPDX-License-Identifier: Apache-2.0
//
// EMIT: looks at the logits of all rows in parts, then draws each row on one thread.
//
// The first pass (largest logit, sum of exponentials, NaN) is cut into fixed parts of the
// vocabulary, so its sums do not depend on the number of threads, and a greedy row is done after
// it.
#include <cmath>
#include <cstring>

#include "backends/cpu/emit.h"
#include "backends/cpu/error.h"
#include "backends/cpu/state.h"

namespace pn::cpu {
namespace {

constexpr int32_t kPart = kStatsPart;

class Emit final : public Op {
 public:
  uint16_t logits = PN_NO16, hidden = PN_NO16;
  int32_t vocab = 0;
  int64_t parts = 0;
  uint64_t stats_at = 0, scratch_at = 0, scratch_step = 0;

  void run(const Run& run, uint32_t thread) const override {
    if (logits != PN_NO16) {
      const Range units = split(run.rows * parts, thread, run.threads);
      for (int64_t u = units.first; u < units.last; ++u) {
        const auto first = static_cast<int32_t>(u % parts) * kPart;
        run.at<LogitStats>(stats_at)[u] = scan_logits(run.vectors, run.slot(logits).row(u / parts),
                                                      first, std::min(vocab, first + kPart));
      }
      run.barrier();
    }
    for (uint32_t r = thread; r < run.rows; r += run.threads) serve(run, thread, r);
    run.barrier();
  }

 private:
  void serve(const Run& run, uint32_t thread, uint32_t r) const {
    const Program& program = run.program;
    const pn_row& row = run.step.rows[r];
    const pn_entry& entry = run.step.entries[row.entry];
    RowJob job{program, row};
    job.target = run.step.targets[r];
    job.mask = run.step.masks[r];
    job.lane = entry.lane;
    job.position = entry.position + row.token;
    job.spoiled = program.spoiled[row.entry] != 0;
    job.draw = (row.flags & PN_ROW_HOLD) == 0;
    if (hidden != PN_NO16) job.hidden = run.slot(hidden).row(r);
    if (logits != PN_NO16) {
      job.logits = run.slot(logits).row(r);
      const LogitStats* stats = run.at<LogitStats>(stats_at) + r * parts;
      job.stats = stats[0];
      for (int64_t p = 1; p < parts; ++p) job.stats = join_stats(job.stats, stats[p]);
      job.scratch = sample_scratch(run.at<std::byte>(scratch_at + thread * scratch_step),
                                   static_cast<uint64_t>(vocab));
    }
    serve_row(job);
  }
};

}  // namespace

uint64_t row_target_bytes(const pn_row& row, uint32_t vocab, uint32_t hidden) {
  uint64_t bytes = row_has_result(row) ? sizeof(pn_result) : 0;
  bytes += uint64_t{row.top} * sizeof(pn_candidate);
  if ((row.flags & PN_ROW_LOGITS) != 0) bytes += uint64_t{vocab} * sizeof(float);
  if ((row.flags & PN_ROW_HIDDEN) != 0) bytes += uint64_t{hidden} * sizeof(float);
  return bytes;
}

void serve_row(const RowJob& job) {
  const Program& program = job.program;
  const pn_row& row = job.row;
  const auto vocab = static_cast<int32_t>(program.code.vocab);
  std::byte* to = job.target;
  if (row_has_result(row)) {
    pn_result result = {-1, NAN, NAN, row.top};
    if (!job.spoiled) result.log_sum = log_sum_of(job.stats);
    if ((row.flags & PN_ROW_SAMPLE) != 0 && job.draw) {
      const Lane& lane = program.lanes[job.lane];
      SampleRow sample;
      sample.logits = job.logits;
      sample.vocab = vocab;
      sample.vectors = program.vectors;
      sample.stats = job.stats;
      sample.setup = &lane.setup;
      sample.bias = lane.bias;
      sample.history = program.history + uint64_t{job.lane} * program.plan.context;
      sample.position = job.position;
      sample.mask_form = row.mask_form;
      sample.mask_count = row.mask_count;
      sample.mask = job.mask;
      if (!job.spoiled) result.id = sample_row(sample, job.scratch);
      if (result.id >= 0) result.logprob = job.logits[result.id] - result.log_sum;
    }
    memcpy(to, &result, sizeof(result));
    to += sizeof(result);
  }
  if (row.top != 0) {
    auto* candidates = reinterpret_cast<pn_candidate*>(to);
    top_candidates(job.logits, vocab, row.top, job.scratch, candidates);
    to += row.top * sizeof(pn_candidate);
  }
  if ((row.flags & PN_ROW_LOGITS) != 0) {
    memcpy(to, job.logits, static_cast<size_t>(vocab) * sizeof(float));
    to += static_cast<size_t>(vocab) * sizeof(float);
  }
  if ((row.flags & PN_ROW_HIDDEN) != 0) memcpy(to, job.hidden, program.code.hidden * sizeof(float));
}

std::unique_ptr<Op> build_emit(Builder& b) {
  const pn_op& op = b.op().op;
  if (b.emits) return b.refuse("a second EMIT"), nullptr;
  if (!b.nothing_else(2, 0, 0)) return nullptr;
  if (!b.has_input(0) && !b.has_input(1)) return b.refuse("neither logits nor hidden"), nullptr;
  auto emit = std::make_unique<Emit>();
  const uint32_t vocab = b.op().as<pn_op_emit>().vocab;
  if (b.has_input(0)) {
    if (!b.input(0, 0, PN_ROWS_OUT)) return nullptr;
    const uint32_t width = b.slot(op.in[0]).width;
    if (vocab == 0 || vocab > width || width > INT32_MAX / 2)
      return b.refuse("vocab %u of logits of width %u", vocab, width), nullptr;
    emit->logits = op.in[0];
    emit->vocab = static_cast<int32_t>(vocab);
    b.vocab = vocab;
    b.logits = op.in[0];
    emit->parts = (int64_t{vocab} + kPart - 1) / kPart;
    const uint64_t rows = std::max(1u, b.plan.rows);
    emit->scratch_step = (sample_scratch_bytes(vocab) + 63) / 64 * 64;
    emit->scratch_at = b.work.take(emit->scratch_step * b.threads);
    emit->stats_at = b.work.take(rows * static_cast<uint64_t>(emit->parts) * sizeof(LogitStats));
    b.sampler_at = emit->scratch_at;
  }
  if (b.has_input(1)) {
    if (!b.input(1, 0, PN_ROWS_OUT)) return nullptr;
    emit->hidden = op.in[1];
    b.hidden = b.slot(op.in[1]).width;
  }
  b.emits = true;
  return emit;
}

const pn_sampler_api* sampler_api() {
  static const pn_sampler_api api = {
      sizeof(pn_sampler_api), 0, [](pn_device device, pn_sampler_info* out, pn_error* err) {
        if (find_die(device, err) == nullptr) return pn_status{PN_INVALID};
        if (out == nullptr) return fail(err, PN_INVALID, "sampler.describe: out is NULL");
        pn_sampler_info info = {};
        info.struct_size = sizeof(info);
        info.features = PN_SAMPLES_GREEDY | PN_SAMPLES_TEMPERATURE | PN_SAMPLES_PENALTIES |
                        PN_SAMPLES_BIAS | PN_SAMPLES_MASK_BITS | PN_SAMPLES_MASK_LIST |
                        PN_SAMPLES_HOLD;
        info.top_max = kTopMax;
        info.history_max = UINT32_MAX;  // the whole context of a lane
        pn_write(out, &info, sizeof(info));
        return pn_status{PN_OK};
      }};
  return &api;
}

}  // namespace pn::cpu
