// SPDX-License-Identifier: Apache-2.0
//
// From a row of logits to an id: penalties, bias, mask, cut-offs and the draw of <pantheon/step.h>.
//
// Owns the arithmetic of one row; knows no steps, threads or slots. The one idea: nothing is sorted
// that the draw does not need. The best few are selected first, and only while the running sum has
// not passed the draw are more of them taken.
#pragma once

#include <pantheon/step.h>

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/vector.h"

namespace pn::cpu {

// First word of Philox4x32-10, all of it for the tests.
struct Philox {
  uint32_t word[4];
};
Philox philox4x32_10(const uint32_t counter[4], const uint32_t key[2]);
// u in [0, 1) for the token that will stand at `position`.
double draw_of(uint64_t seed, uint32_t position);

// What is known of raw logits before anything is drawn; made in blocks that join in order.
struct LogitStats {
  float max = 0;
  int32_t best = -1;   // lowest id of the largest
  double sum = 0;      // of exp(logit - max)
  bool finite = true;  // no NaN and no +inf; -inf is a logit that is never drawn
};
LogitStats scan_logits(const VectorKernels& vectors, const float* logits, int32_t first,
                       int32_t last);
// A whole row in the parts that every caller must use, so that its sum has one value.
inline constexpr int32_t kStatsPart = 4096;  // logits: 16 KiB, half of a first-level cache
LogitStats scan_all(const VectorKernels& vectors, const float* logits, int32_t vocab);
LogitStats join_stats(const LogitStats& a, const LogitStats& b);
float log_sum_of(const LogitStats& stats);  // NaN when not finite

struct Candidate {
  float logit;
  int32_t id;
};

// Scratch of one thread, (vocab) each; contents do not matter between calls.
struct SampleScratch {
  float* logits = nullptr;
  uint32_t* counts = nullptr;
  Candidate* candidates = nullptr;
};
uint64_t sample_scratch_bytes(uint64_t vocab);
SampleScratch sample_scratch(std::byte* at, uint64_t vocab);

struct SampleRow {
  const float* logits = nullptr;  // raw, (vocab)
  int32_t vocab = 0;
  const VectorKernels* vectors = nullptr;
  LogitStats stats;  // of logits
  const pn_lane* setup = nullptr;
  const std::byte* bias = nullptr;   // setup->bias_count pairs {id, add}
  const int32_t* history = nullptr;  // tokens at positions [0, position]
  uint32_t position = 0;             // of the row's token; the drawn one stands behind it
  uint32_t mask_form = PN_MASK_NONE;
  uint32_t mask_count = 0;
  const std::byte* mask = nullptr;
};
// -1 when nothing is allowed or the logits are not finite.
int32_t sample_row(const SampleRow& row, const SampleScratch& scratch);

// The best `top` raw logits, falling, then by rising id.
void top_candidates(const float* logits, int32_t vocab, uint32_t top, const SampleScratch& scratch,
                    pn_candidate* out);

}  // namespace pn::cpu
