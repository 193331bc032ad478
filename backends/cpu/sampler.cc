// SPDX-License-Identifier: Apache-2.0
//
// Sampling of one row. See sampler.h.
//
// Sums over candidates are in f64: the step's formula says which id the draw falls on, and with 130
// thousand of them an f32 running sum would be off by more than the rare ids weigh.
#include "backends/cpu/sampler.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pn::cpu {
namespace {

// Falling logit, then rising id.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The largest of n logits; false when one is NaN or +inf. Four at a time with SSE2: a compiler may
// not turn the plain loop into that, because of NaN.
bool block_max(const float* x, int32_t n, float* out) {
  __m128 top = _mm_set1_ps(-INFINITY), fine = _mm_castsi128_ps(_mm_set1_epi32(-1));
  int32_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const __m128 v = _mm_loadu_ps(x + i);
    fine = _mm_and_ps(fine, _mm_cmplt_ps(v, _mm_set1_ps(INFINITY)));
    top = _mm_max_ps(top, v);
  }
  float lanes[4];
  _mm_storeu_ps(lanes, top);
  bool finite = _mm_movemask_ps(fine) == 15;
  float best = std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
  for (; i < n; ++i) {
    finite = finite && x[i] < INFINITY;
    best = x[i] > best ? x[i] : best;
  }
  *out = best;
  return finite;
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

// Candidates of a row: the first n sorted, all of them at least as good as what was left out.
struct Cut {
  Candidate* list;
  int64_t n;
  int64_t all;
  double total;  // of the weights of all that may be drawn, e^((logit - max) / temperature)
  float max;
  float temperature;
  double weight(int64_t i) const {
    return std::exp((static_cast<double>(list[i].logit) - max) / temperature);
  }
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

// Weights of a whole row by how far a logit is below the largest, so that a share of the total can
// be cut out without sorting what is below it.
class Bins {
 public:
  Bins(const SampleRow& row, const float* logits, float max) : row_(row), logits_(logits) {
    max_ = max;
    inverse_ = 1.0f / row.setup->temperature;
    constexpr int32_t kBlock = 256;
    float gap[kBlock], weight[kBlock];
    for (int32_t id = 0; id < row.vocab; id += kBlock) {
      const int32_t n = std::min(kBlock, row.vocab - id);
      for (int32_t i = 0; i < n; ++i) gap[i] = (logits[id + i] - max) * inverse_;
      row.vectors->exp(gap, n, weight);
      for (int32_t i = 0; i < n; ++i) sums_[bin(gap[i])] += weight[i];
    }
    for (double sum : sums_) total_ += sum;
  }
  double total() const { return total_; }

  // Candidates of the best bins that together weigh more than `share`, in id order.
  int64_t collect_share(double share, Candidate* out) const {
    int32_t last = 0;
    double running = sums_[0];
    // A little more than asked: the bins' sums are of f32 exponentials.
    while (last + 1 < kBins && running <= share * (1 + 1e-6)) running += sums_[++last];
    int64_t n = 0;
    for (int32_t id = 0; id < row_.vocab; ++id)
      if (bin((logits_[id] - max_) * inverse_) <= last) out[n++] = {logits_[id], id};
    return n;
  }

 private:
  static constexpr int32_t kBins = 512;
  static int32_t bin(float gap) {  // 1/16 each; the last takes all from 32 on, and -inf
    const float at = gap * -16.0f;
    return at < static_cast<float>(kBins - 1) ? static_cast<int32_t>(at) : kBins - 1;
  }
  const SampleRow& row_;
  const float* logits_;
  float max_, inverse_;
  double sums_[kBins] = {};
  double total_ = 0;
};

// Fills the list with what top_k and, where it must look at the whole row, top_p or the draw need.
void gather(const SampleRow& row, const float* logits, double u, Cut* cut) {
  const pn_lane& s = *row.setup;
  if (s.top_k != 0 && s.top_k < static_cast<uint32_t>(row.vocab)) {
    cut->n = cut->all = select_top(logits, row.vocab, s.top_k, cut->list);
    cut->max = cut->n > 0 ? cut->list[0].logit : -INFINITY;
    if (std::isinf(cut->max)) return;
    for (int64_t i = 0; i < cut->all; ++i) cut->total += cut->weight(i);
    return;
  }
  cut->max = *std::max_element(logits, logits + row.vocab);
  if (std::isinf(cut->max)) return;
  if (s.top_p >= 1.0f && s.min_p > 0.0f) {
    // What min_p leaves out needs no weight: it is cut off exactly below.
    const float floor = cut->max + s.temperature * std::log(s.min_p) - 1e-3f * s.temperature;
    cut->all = collect(logits, row.vocab, floor, cut->list);
    return;
  }
  const Bins bins(row, logits, cut->max);
  cut->total = bins.total();
  cut->all = bins.collect_share(cut->total * (s.top_p < 1.0f ? s.top_p : u), cut->list);
}

// top_p: keep the shortest prefix whose share reaches top_p.
void cut_top_p(Cut* cut, float top_p) {
  const double target = static_cast<double>(top_p) * cut->total;
  double running = 0;
  for (int64_t i = 0; i < cut->all; ++i) {
    if (i >= cut->n) sort_more(cut, std::max<int64_t>(64, cut->n * 8));
    running += cut->weight(i);
    if (running < target && i + 1 < cut->all) continue;
    cut->n = cut->all = i + 1;
    cut->total = running;
    return;
  }
}

// min_p: p >= min_p times the largest p, which is 1 here.
void cut_min_p(Cut* cut, float min_p) {
  const bool sorted = cut->n == cut->all;
  int64_t n = 0;
  cut->total = 0;
  for (int64_t i = 0; i < cut->all; ++i) {
    const double p = cut->weight(i);
    if (p < static_cast<double>(min_p)) continue;
    cut->total += p;
    cut->list[n++] = cut->list[i];
  }
  cut->all = n;
  cut->n = sorted ? n : 0;
}

int32_t draw(const SampleRow& row, const float* logits, const SampleScratch& scratch) {
  const pn_lane& s = *row.setup;
  const double u = draw_of(s.seed, row.position + 1);
  Cut cut = {scratch.candidates, 0, 0, 0, -INFINITY, s.temperature};
  gather(row, logits, u, &cut);
  if (cut.max == -INFINITY) return -1;
  if (cut.max == INFINITY)  // a bias of infinity forces its id
    return static_cast<int32_t>(std::max_element(logits, logits + row.vocab) - logits);
  if (s.top_p < 1.0f) cut_top_p(&cut, s.top_p);
  if (s.min_p > 0.0f) cut_min_p(&cut, s.min_p);
  const double target = u * cut.total;
  double running = 0;
  for (int64_t i = 0; i < cut.all; ++i) {
    if (i >= cut.n) sort_more(&cut, std::max<int64_t>(64, cut.n * 8));
    running += cut.weight(i);
    if (running > target) return cut.list[i].id;
  }
  // Rounding may leave the sum a hair short of the total: the last one then.
  sort_more(&cut, cut.all);
  return cut.list[cut.all - 1].id;
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
  constexpr int32_t kBlock = 256;
  for (int32_t id = first; id < last; id += kBlock) {
    const int32_t n = std::min(kBlock, last - id);
    float top = 0;
    stats.finite = block_max(logits + id, n, &top) && stats.finite;
    if (!(top > stats.max)) continue;
    stats.max = top;
    stats.best = id;
    while (logits[stats.best] != top) ++stats.best;
  }
  if (!stats.finite || stats.max == -INFINITY) return stats;
  float part[kBlock];
  for (int32_t id = first; id < last; id += kBlock) {
    const int32_t n = std::min(kBlock, last - id);
    for (int32_t i = 0; i < n; ++i) part[i] = logits[id + i] - stats.max;
    vectors.exp(part, n, part);
    double sums[4] = {};  // one chain of additions would take longer than the exponentials
    int32_t i = 0;
    for (; i + 4 <= n; i += 4)
      for (int32_t k = 0; k < 4; ++k) sums[k] += part[i + k];
    for (; i < n; ++i) sums[0] += part[i];
    stats.sum += (sums[0] + sums[1]) + (sums[2] + sums[3]);
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
