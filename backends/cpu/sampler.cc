// SPDX-License-Identifier: Apache-2.0
//
// Sampling of one row. See sampler.h.
//
// Sums over candidates are in f64: the step's formula says which id the draw falls on, and with 130
// thousand of them an f32 running sum would be off by more than the rare ids weigh.
#include "backends/cpu/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pn::cpu {
namespace {

// Falling logit, then rising id.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Adjusted logits of a row: a private copy once something changes them.
class Adjusted {
 public:
  Adjusted(const SampleRow& row, const SampleScratch& scratch) : row_(row), scratch_(scratch) {}

  const float* logits() const { return copied_ ? scratch_.logits : row_.logits; }
  bool changed() const { return copied_; }

  void penalise() {
    const pn_lane& s = *row_.setup;
    const bool off =
        s.repeat_penalty == 1.0f && s.presence_penalty == 0.0f && s.frequency_penalty == 0.0f;
    if (off || s.penalty_tokens == 0) return;
    const uint32_t end = row_.position + 1;
    const uint32_t oldest = end > s.penalty_tokens ? end - s.penalty_tokens : 0;
    const uint32_t from = std::max(s.penalty_from, oldest);
    clear_counts();
    for (uint32_t p = from; p < end; ++p)
      if (known(row_.history[p])) ++scratch_.counts[row_.history[p]];
    float* logits = copy();
    for (uint32_t p = from; p < end; ++p) {
      const int32_t id = row_.history[p];
      if (!known(id) || scratch_.counts[id] == 0) continue;
      float& logit = logits[id];
      logit = logit > 0 ? logit / s.repeat_penalty : logit * s.repeat_penalty;
      logit -= static_cast<float>(scratch_.counts[id]) * s.frequency_penalty + s.presence_penalty;
      scratch_.counts[id] = 0;
    }
  }

  void add_bias() {
    if (row_.bias == nullptr) return;
    float* logits = copy();
    for (uint32_t i = 0; i < row_.setup->bias_count; ++i) {
      int32_t id = 0;
      float add = 0;
      memcpy(&id, row_.bias + i * 8, 4);
      memcpy(&add, row_.bias + i * 8 + 4, 4);
      if (known(id)) logits[id] += add;
    }
  }

  void mask() {
    if (row_.mask_form == PN_MASK_NONE) return;
    if (row_.mask_form == PN_MASK_BITS) return mask_bits();
    const bool allow = row_.mask_form == PN_MASK_ALLOW;
    float* logits = copy();
    if (allow) {
      clear_counts();
      for (uint32_t i = 0; i < row_.mask_count; ++i)
        if (known(listed(i))) scratch_.counts[listed(i)] = 1;
      for (int32_t id = 0; id < row_.vocab; ++id)
        if (scratch_.counts[id] == 0) logits[id] = -INFINITY;
    }
    for (uint32_t i = 0; i < row_.mask_count; ++i) {
      if (!allow && known(listed(i))) logits[listed(i)] = -INFINITY;
    }
  }

 private:
  bool known(int32_t id) const { return id >= 0 && id < row_.vocab; }
  int32_t listed(uint32_t i) const {
    int32_t id = 0;
    memcpy(&id, row_.mask + uint64_t{i} * 4, 4);
    return id;
  }
  void mask_bits() {
    float* logits = copy();
    for (int32_t id = 0; id < row_.vocab; ++id) {
      const auto word = static_cast<uint32_t>(id / 32);
      uint32_t bits = 0;
      if (word < row_.mask_count) memcpy(&bits, row_.mask + uint64_t{word} * 4, 4);
      if ((bits >> (id % 32) & 1) == 0) logits[id] = -INFINITY;
    }
  }
  void clear_counts() {
    memset(scratch_.counts, 0, static_cast<size_t>(row_.vocab) * sizeof(uint32_t));
  }
  float* copy() {
    if (!copied_)
      memcpy(scratch_.logits, row_.logits, static_cast<size_t>(row_.vocab) * sizeof(float));
    copied_ = true;
    return scratch_.logits;
  }

  const SampleRow& row_;
  const SampleScratch& scratch_;
  bool copied_ = false;
};

// Candidates of at least `floor`, in id order.
int64_t collect(const float* logits, int32_t vocab, float floor, Candidate* out) {
  int64_t n = 0;
  for (int32_t id = 0; id < vocab; ++id)
    if (logits[id] >= floor) out[n++] = {logits[id], id};
  return n;
}

// The best k of the row, sorted; k may shrink to what there is. One pass: what cannot be among the
// best is left out by a floor that rises as the buffer of 2k fills.
int64_t select_top(const float* logits, int32_t vocab, int64_t k, Candidate* out) {
  if (k * 2 >= vocab) {
    int64_t n = collect(logits, vocab, -INFINITY, out);
    k = std::min(k, n);
    std::partial_sort(out, out + k, out + n, before);
    return k;
  }
  int64_t n = 0;
  float floor = -INFINITY;
  for (int32_t id = 0; id < vocab; ++id) {
    // A later id loses a tie, so equality with the floor of a full set may be left out too.
    if (!(logits[id] >= floor)) continue;
    out[n++] = {logits[id], id};
    if (n < 2 * k) continue;
    std::nth_element(out, out + k - 1, out + n, before);
    n = k;
    floor = out[k - 1].logit;
  }
  k = std::min(k, n);
  std::partial_sort(out, out + k, out + n, before);
  return k;
}

// Where the draw falls among sorted[0, n): the first whose running sum exceeds `target`, or -1.
int64_t draw_in(const Candidate* sorted, int64_t n, double* running, double target, float max,
                float temperature) {
  for (int64_t i = 0; i < n; ++i) {
    *running += std::exp((static_cast<double>(sorted[i].logit) - max) / temperature);
    if (*running > target) return i;
  }
  return -1;
}

// Candidates that survive top_k and top_p and min_p, sorted and cut.
struct Cut {
  Candidate* list;
  int64_t n;     // sorted prefix of list
  int64_t all;   // candidates in list, the rest unsorted behind the prefix
  double total;  // of all weights that may be drawn
  float max;
};

// Extends the sorted prefix to at least `want` of `all`.
void sort_more(Cut* cut, int64_t want) {
  want = std::min(want, cut->all);
  if (want <= cut->n) return;
  if (want < cut->all)
    std::nth_element(cut->list + cut->n, cut->list + want - 1, cut->list + cut->all, before);
  std::sort(cut->list + cut->n, cut->list + want, before);
  cut->n = want;
}

// top_p: keep the shortest prefix whose share reaches top_p.
void cut_top_p(Cut* cut, float top_p, float temperature) {
  const double target = static_cast<double>(top_p) * cut->total;
  double running = 0;
  for (int64_t i = 0; i < cut->all; ++i) {
    if (i >= cut->n) sort_more(cut, std::max<int64_t>(64, cut->n * 4));
    running += std::exp((static_cast<double>(cut->list[i].logit) - cut->max) / temperature);
    if (running < target) continue;
    cut->n = cut->all = i + 1;
    cut->total = running;
    return;
  }
}

int32_t draw(const SampleRow& row, const float* logits, const SampleScratch& scratch) {
  const pn_lane& s = *row.setup;
  const float t = s.temperature;
  Cut cut = {scratch.candidates, 0, 0, 0, 0};
  if (s.top_k != 0 && s.top_k < static_cast<uint32_t>(row.vocab)) {
    cut.n = cut.all = select_top(logits, row.vocab, s.top_k, cut.list);
    cut.max = cut.n > 0 ? cut.list[0].logit : -INFINITY;
  } else {
    cut.max = *std::max_element(logits, logits + row.vocab);
    cut.all = collect(logits, row.vocab, -INFINITY, cut.list);
  }
  if (cut.max == -INFINITY) return -1;
  if (cut.max == INFINITY)  // a bias of infinity forces its id
    return static_cast<int32_t>(std::max_element(logits, logits + row.vocab) - logits);
  for (int64_t i = 0; i < cut.all; ++i)
    cut.total += std::exp((static_cast<double>(cut.list[i].logit) - cut.max) / t);
  if (s.top_p < 1.0f) cut_top_p(&cut, s.top_p, t);
  if (s.min_p > 0.0f) {
    // p >= min_p * the largest p: a floor on the logit.
    double kept = 0;
    int64_t n = 0;
    const bool sorted = cut.n == cut.all;
    for (int64_t i = 0; i < cut.all; ++i) {
      const double p = std::exp((static_cast<double>(cut.list[i].logit) - cut.max) / t);
      if (p < static_cast<double>(s.min_p)) continue;
      kept += p;
      cut.list[n++] = cut.list[i];
    }
    cut.all = n;
    cut.n = sorted ? n : 0;
    cut.total = kept;
  }
  const double target = draw_of(s.seed, row.position + 1) * cut.total;
  double running = 0;
  int64_t looked = 0;
  for (;;) {
    sort_more(&cut, std::max<int64_t>(64, looked * 8));
    const int64_t at = draw_in(cut.list + looked, cut.n - looked, &running, target, cut.max, t);
    if (at >= 0) return cut.list[looked + at].id;
    looked = cut.n;
    // Rounding may leave the sum a hair short of the total: the last one then.
    if (looked == cut.all) return cut.list[cut.all - 1].id;
  }
}

}  // namespace

Philox philox4x32_10(const uint32_t counter[4], const uint32_t key[2]) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  uint32_t k[2] = {key[0], key[1]};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    memcpy(c, next, sizeof(c));
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

double draw_of(uint64_t seed, uint32_t position) {
  const uint32_t counter[4] = {position, 0, 0, 0};
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  return (philox4x32_10(counter, key).word[0] >> 8) * 0x1p-24;
}

LogitStats scan_logits(const VectorKernels& vectors, const float* logits, int32_t first,
                       int32_t last) {
  LogitStats stats;
  stats.max = -INFINITY;
  stats.best = first;
  for (int32_t id = first; id < last; ++id) {
    stats.finite = stats.finite && logits[id] < INFINITY;
    if (logits[id] > stats.max) stats.max = logits[stats.best = id];
  }
  if (!stats.finite || stats.max == -INFINITY) return stats;
  constexpr int32_t kPart = 256;
  float part[kPart];
  for (int32_t id = first; id < last; id += kPart) {
    const int32_t n = std::min(kPart, last - id);
    for (int32_t i = 0; i < n; ++i) part[i] = logits[id + i] - stats.max;
    vectors.exp(part, n, part);
    for (int32_t i = 0; i < n; ++i) stats.sum += part[i];
  }
  return stats;
}

LogitStats scan_all(const VectorKernels& vectors, const float* logits, int32_t vocab) {
  LogitStats all = scan_logits(vectors, logits, 0, std::min(vocab, kStatsPart));
  for (int32_t first = kStatsPart; first < vocab; first += kStatsPart)
    all = join_stats(all, scan_logits(vectors, logits, first, std::min(vocab, first + kStatsPart)));
  return all;
}

LogitStats join_stats(const LogitStats& a, const LogitStats& b) {
  LogitStats both;
  both.finite = a.finite && b.finite;
  both.best = b.max > a.max ? b.best : a.best;
  both.max = std::max(a.max, b.max);
  if (!both.finite || both.max == -INFINITY) return both;
  both.sum = a.sum * std::exp(static_cast<double>(a.max) - both.max) +
             b.sum * std::exp(static_cast<double>(b.max) - both.max);
  return both;
}

float log_sum_of(const LogitStats& stats) {
  if (!stats.finite) return NAN;
  return static_cast<float>(stats.max + std::log(stats.sum));
}

uint64_t sample_scratch_bytes(uint64_t vocab) {
  const uint64_t n = (vocab + 15) / 16 * 16;
  return n * (sizeof(float) + sizeof(uint32_t) + sizeof(Candidate));
}

SampleScratch sample_scratch(std::byte* at, uint64_t vocab) {
  const uint64_t n = (vocab + 15) / 16 * 16;
  SampleScratch scratch;
  scratch.candidates = reinterpret_cast<Candidate*>(at);
  scratch.logits = reinterpret_cast<float*>(at + n * sizeof(Candidate));
  scratch.counts = reinterpret_cast<uint32_t*>(scratch.logits + n);
  return scratch;
}

int32_t sample_row(const SampleRow& row, const SampleScratch& scratch) {
  if (!row.stats.finite) return -1;
  Adjusted adjusted(row, scratch);
  adjusted.penalise();
  adjusted.add_bias();
  adjusted.mask();
  const float* logits = adjusted.logits();
  if (row.setup->temperature > 0.0f) return draw(row, logits, scratch);
  if (!adjusted.changed()) return row.stats.max == -INFINITY ? -1 : row.stats.best;
  const float* best = std::max_element(logits, logits + row.vocab);
  return *best == -INFINITY ? -1 : static_cast<int32_t>(best - logits);
}

void top_candidates(const float* logits, int32_t vocab, uint32_t top, const SampleScratch& scratch,
                    pn_candidate* out) {
  const int64_t n = select_top(logits, vocab, top, scratch.candidates);
  for (int64_t i = 0; i < n; ++i) out[i] = {scratch.candidates[i].id, scratch.candidates[i].logit};
}

}  // namespace pn::cpu
