// SPDX-License-Identifier: Apache-2.0
//
// Group ops: a whole small model. Prompts and decode against the reference; and, against itself,
// what the plugin claims: the same bits in any batch, in any chunks, on any pages.
#include <cstring>
#include <numeric>
#include <optional>

#include "hal/check/tiny_model.h"
#include "hal/check/trial.h"

namespace pn::check {

namespace {

using Logits = std::vector<float>;

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// A rig of the model on the plugin under test; empty, and the bench told, when it cannot.
Result<std::unique_ptr<Rig>> our_rig(Bench& bench, uint32_t claim = 0) {
  PN_TRY(Side * side, bench.subject());
  auto model = fitting_model(*side, bench.seed(1));
  if (!model && model.error().code == Code::unsupported) {
    bench.unsupported(model.error().message);
    return std::unique_ptr<Rig>();
  }
  if (!model) return tl::unexpected<Error>(model.error());
  PN_TRY(auto rig, Rig::make(*side, model->plan()));
  if ((rig->numerics() & claim) != claim) {
    bench.unsupported("the plugin does not claim it");
    return std::unique_ptr<Rig>();
  }
  return rig;
}

// Logits of the last token of lane `lane` after `count` tokens in chunks of `chunk`.
Result<Logits> after_chunks(Rig& rig, uint32_t lane, uint32_t count, uint32_t chunk,
                            uint64_t seed) {
  Logits logits;
  for (uint32_t at = 0; at < count; at += chunk) {
    Steps steps;
    if (at == 0) deal_pages(rig.plan(), &steps);
    prompt(&steps, lane, at, std::min(chunk, count - at), seed);
    PN_TRY(rig.run(steps, chunk > 16 ? 1 : 0));
    logits = rig.row(steps, 0).logits;
  }
  return logits;
}

Result<void> model(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench));
  if (rig == nullptr) return {};
  PN_TRY(Side * reference, bench.reference());
  PN_TRY(auto other, Rig::make(*reference, rig->plan()));
  std::vector<Rig*> both = {rig.get(), other.get()};
  std::vector<uint32_t> at(9);
  double worst = 0;
  for (const std::vector<uint32_t>& counts : {std::vector<uint32_t>{33, 0, 7, 1},
                                              {1, 20, 1, 0, 0, 5},
                                              {1, 1, 1, 1, 0, 1},
                                              {1, 1, 1, 1}}) {
    Steps steps;
    deal_pages(rig->plan(), &steps);
    for (uint32_t lane = 0; lane < counts.size(); ++lane) {
      if (counts[lane] == 0) continue;
      prompt(&steps, lane, at[lane], counts[lane], bench.seed(lane));
      at[lane] += counts[lane];
    }
    for (Rig* r : both) PN_TRY(r->run(steps, 1));
    for (uint32_t r = 0; r < steps.rows.size(); ++r) {
      const Logits got = rig->row(steps, r).logits, want = other->row(steps, r).logits;
      bench.close(
          got, want, std::max(2e-2, 2 * rig->tolerance()),
          fmt::format("lane {} at position {}", steps.entries[r].lane, steps.entries[r].position));
      worst = std::max(worst, compare(got, want).worst);
    }
  }
  bench.note(fmt::format("largest error {:.1e} of the largest logit", worst));
  return {};
}

Result<void> batch(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench, PN_NUMERICS_BATCH_INVARIANT));
  if (rig == nullptr) return {};
  // Eight lanes with pasts of their own, then one step of all eight and one of each alone.
  for (uint32_t lane = 0; lane < 8; ++lane)
    PN_TRY(after_chunks(*rig, lane, 5 + 3 * lane, 64, bench.seed(lane)));
  Steps all;
  for (uint32_t lane = 0; lane < 8; ++lane) prompt(&all, lane, 5 + 3 * lane, 1, bench.seed(lane));
  PN_TRY(rig->run(all));
  std::vector<Logits> together;
  for (uint32_t lane = 0; lane < 8; ++lane) together.push_back(rig->row(all, lane).logits);
  for (uint32_t lane = 0; lane < 8; ++lane) {
    Steps one;
    prompt(&one, lane, 5 + 3 * lane, 1, bench.seed(lane));
    PN_TRY(rig->run(one));
    bench.expect(same_bits(rig->row(one, 0).logits, together[lane]),
                 "lane {} alone gives other bits than in a batch of 8", lane);
  }
  return {};
}

Result<void> chunks(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench, PN_NUMERICS_CHUNK_INVARIANT));
  if (rig == nullptr) return {};
  PN_TRY(const Logits whole, after_chunks(*rig, 0, 64, 64, bench.seed(3)));
  for (const uint32_t chunk : {1u, 7u, 16u}) {
    PN_TRY(const Logits cut, after_chunks(*rig, chunk % 8, 64, chunk, bench.seed(3)));
    bench.expect(same_bits(cut, whole), "a prompt of 64 in chunks of {} gives other bits", chunk);
  }
  return {};
}

Result<void> again(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench, PN_NUMERICS_REPRODUCIBLE));
  if (rig == nullptr) return {};
  std::optional<Logits> first;
  for (int round = 0; round < (bench.quick() ? 3 : 12); ++round) {
    PN_TRY(const Logits logits, after_chunks(*rig, 4, 50, 64, bench.seed(4)));
    if (!first) first = logits;
    bench.expect(same_bits(*first, logits), "run {} gives other bits than the first", round);
  }
  return {};
}

// Pages of one lane are given to another, in the same step that begins to use them.
Result<void> pages_reused(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench));
  if (rig == nullptr) return {};
  const double tolerance = rig->tolerance();
  PN_TRY(const Logits fresh, after_chunks(*rig, 1, 40, 64, bench.seed(5)));
  PN_TRY(after_chunks(*rig, 2, 60, 64, bench.seed(6)));
  Steps steps;
  for (uint32_t i = 0; i < 4; ++i) {
    steps.page(7, i, dealt_page(rig->plan(), 0, 2, i));
    steps.page(2, i, dealt_page(rig->plan(), 0, 7, i));
  }
  prompt(&steps, 7, 0, 40, bench.seed(5));
  PN_TRY(rig->run(steps, 1));
  bench.close(rig->row(steps, 0).logits, fresh, tolerance, "a lane on pages of another");
  // A shorter prompt on a lane that had a longer one: what lies behind it is not seen.
  Steps shorter;
  prompt(&shorter, 7, 0, 9, bench.seed(7));
  PN_TRY(rig->run(shorter, 1));
  PN_TRY(const Logits alone, after_chunks(*rig, 3, 9, 64, bench.seed(7)));
  bench.close(rig->row(shorter, 0).logits, alone, tolerance, "a shorter prompt on the same lane");
  return {};
}

Result<void> pages_shared(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench));
  if (rig == nullptr) return {};
  const uint64_t prefix = bench.seed(8);
  PN_TRY(after_chunks(*rig, 0, 32, 64, prefix));  // two whole pages
  PN_TRY(const Logits want, after_chunks(*rig, 1, 37, 64, prefix));
  Steps steps;
  for (uint32_t lane : {5u, 6u}) {
    steps.page(lane, 0, dealt_page(rig->plan(), 0, 0, 0));
    steps.page(lane, 1, dealt_page(rig->plan(), 0, 0, 1));
    steps.page(lane, 2, dealt_page(rig->plan(), 0, lane, 2));
    prompt(&steps, lane, 32, 5, prefix);
  }
  PN_TRY(rig->run(steps, 1));
  for (uint32_t r : {0u, 1u})
    bench.close(rig->row(steps, r).logits, want, rig->tolerance(), "a lane on a shared prefix");
  return {};
}

// A unit is contiguous and says everything: copied elsewhere, it serves there.
Result<void> pages_moved(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench));
  if (rig == nullptr) return {};
  const uint64_t text = bench.seed(9), unit = rig->report().unit_bytes[0];
  PN_TRY(after_chunks(*rig, 0, 16, 16, text));
  PN_TRY(const Logits want, after_chunks(*rig, 1, 20, 64, text));
  const uint32_t from = dealt_page(rig->plan(), 0, 0, 0), to = dealt_page(rig->plan(), 0, 8, 5);
  PN_TRY(rig->side().copy(rig->cache(0).slice(from * unit, unit),
                          rig->cache(0).slice(to * unit, unit)));
  Steps steps;
  steps.page(4, 0, to);
  steps.page(4, 1, dealt_page(rig->plan(), 0, 4, 1));
  prompt(&steps, 4, 16, 4, text);
  PN_TRY(rig->run(steps));
  bench.close(rig->row(steps, 0).logits, want, rig->tolerance(), "a lane on a copied page");
  return {};
}

Result<void> lane_reset(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench));
  if (rig == nullptr) return {};
  Steps first;
  deal_pages(rig->plan(), &first);
  pn_lane& lane = first.lane(3);
  lane.presence_penalty = 1000;
  lane.penalty_tokens = 64;
  prompt(&first, 3, 0, 4, bench.seed(10));
  first.rows.clear();
  first.row(0, 3, PN_ROW_SAMPLE | PN_ROW_LOGITS);
  PN_TRY(rig->run(first));
  const auto raw = rig->row(first, 0).logits;
  const auto best = static_cast<int32_t>(std::max_element(raw.begin(), raw.end()) - raw.begin());
  // Without its setup the lane is greedy again; without its history nothing is punished.
  const int32_t last[] = {best};
  Steps punished;
  punished.entry(3, 4, last);
  punished.row(0, 0, PN_ROW_SAMPLE);
  PN_TRY(rig->run(punished));
  Steps reset;
  pn_lane& again = reset.lane(3);
  again.presence_penalty = 1000;
  again.penalty_tokens = 64;
  again.penalty_from = 0;
  for (uint32_t i = 0; i < 8; ++i) reset.page(3, i, dealt_page(rig->plan(), 0, 3, i));
  const int32_t other[] = {token_at(bench.seed(10), 0)};
  reset.entry(3, 0, other);
  reset.row(0, 0, PN_ROW_SAMPLE | PN_ROW_LOGITS);
  PN_TRY(rig->run(reset));
  auto left = rig->row(reset, 0).logits;
  left[static_cast<size_t>(other[0])] -= 1000;
  const auto want = static_cast<int32_t>(std::max_element(left.begin(), left.end()) - left.begin());
  bench.expect(rig->row(reset, 0).result.id == want, "after RESET the lane draws {}, wanted {}",
               rig->row(reset, 0).result.id, want);
  // A reset lane has no pages: running on is refused, or fails the queue; and reads nothing.
  Steps bare;
  bare.lane(3);
  prompt(&bare, 3, 5, 1, bench.seed(10));
  const bool refused = !rig->run(bare).has_value();
  bench.expect(refused, "a reset lane still finds the pages that it had");
  return {};
}

Result<void> feed(Bench& bench) {
  PN_TRY(auto rig, our_rig(bench));
  if (rig == nullptr) return {};
  Steps first;
  deal_pages(rig->plan(), &first);
  for (uint32_t lane : {2u, 5u}) {
    first.lane(lane);
    prompt(&first, lane, 0, 6, bench.seed(11));
  }
  for (pn_row& row : first.rows) row.flags = PN_ROW_SAMPLE, row.id_slot = 1;
  PN_TRY(rig->run(first));
  const int32_t drawn[] = {rig->row(first, 0).result.id};
  PN_TRY(const auto ids, rig->read_ids());
  bench.expect(ids[2 * 2 + 1] == drawn[0], "ids[2][1] is {}, the row says {}", ids[2 * 2 + 1],
               drawn[0]);
  Steps next;
  pn_entry& fed = next.entry(2, 6, 1);
  fed.flags = PN_ENTRY_FEED;
  fed.token = 1;
  next.row(0, 0, PN_ROW_LOGITS);
  next.entry(5, 6, drawn);  // the same past and token, told by the host
  next.row(1, 0, PN_ROW_LOGITS);
  PN_TRY(rig->run(next));
  bench.close(rig->row(next, 0).logits, rig->row(next, 1).logits, rig->tolerance(),
              "the id on the device against the same from the host");
  // A fed -1 spoils its own lane only.
  std::vector<int32_t> spoiled = ids;
  spoiled[2 * 2 + 1] = -1;
  PN_TRY(rig->write_ids(spoiled));
  for (pn_row& row : next.rows) row.flags = PN_ROW_SAMPLE;
  for (pn_entry& entry : next.entries) entry.position = 7;
  PN_TRY(rig->run(next));
  bench.expect(rig->row(next, 0).result.id == -1, "a lane fed -1 draws {}, wanted -1",
               rig->row(next, 0).result.id);
  bench.expect(rig->row(next, 1).result.id >= 0, "its neighbour draws {}",
               rig->row(next, 1).result.id);
  return {};
}

constexpr Case kCases[] = {
    {"ops/feed", "pn_entry", "ids on the device feed the next run", feed},
    {"ops/model", "pn_plan", "a small llama, prompts and decode of several lanes", model},
    {"ops/batch", "BATCH_INVARIANT", "a row alone and in a batch of 8: the same bits", batch},
    {"ops/chunks", "CHUNK_INVARIANT", "a prompt in chunks of 1, 7, 16, 64: the same bits", chunks},
    {"ops/again", "REPRODUCIBLE", "the same run many times: the same bits", again},
    {"ops/pages_reused", "pn_pages", "a page given to another lane: nothing stale", pages_reused},
    {"ops/pages_shared", "pn_pages", "lanes on one prefix", pages_shared},
    {"ops/pages_moved", "pn_cache", "a page copied elsewhere serves there", pages_moved},
    {"ops/lane_reset", "PN_LANE_RESET", "no table, setup or history is kept", lane_reset},
};

}  // namespace

std::span<const Case> model_cases() { return kCases; }

}  // namespace pn::check
