// SPDX-License-Identifier: Apache-2.0
//
// Group perf: figures for a person to read. Nothing here fails on time.
#include <algorithm>
#include <chrono>

#include "hal/check/contract.h"
#include "hal/check/tiny_model.h"
#include "hal/check/trial.h"

namespace pn::check {

namespace {

using Clock = std::chrono::steady_clock;

// The median of `rounds`, ns.
template <typename F>
Result<double> median(int rounds, F&& once) {
  std::vector<double> all;
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    PN_TRY(once());
    all.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

Result<void> copies(Bench& bench, Side& side) {
  constexpr uint64_t kBytes = 32 << 20;
  PN_TRY(hal::Buffer a, side.place(kBytes));
  PN_TRY(hal::Buffer b, side.place(kBytes));
  PN_TRY(hal::Buffer host, side.results(kBytes));
  PN_TRY(side.fill(a, 1));
  PN_TRY(const double within, median(5, [&] { return side.copy(a.all(), b.all()); }));
  PN_TRY(const double out, median(5, [&] { return side.copy(a.all(), host.all()); }));
  bench.note(fmt::format("copy within {:.1f} GB/s, to the host {:.1f} GB/s", kBytes / within,
                         kBytes / out));
  return {};
}

Result<void> table(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  PN_TRY(const double empty, median(200, [&] { return side->execute({}, {}); }));
  const pn_queue queue = side->queue().handle();
  pn_progress progress{};
  PN_TRY(const double asked, median(200, [&]() -> Result<void> {
           for (int i = 0; i < 100; ++i) side->table().queue_query(1, &queue, &progress, nullptr);
           return {};
         }));
  bench.note(
      fmt::format("empty submit and wait {:.1f} us, query {:.0f} ns", empty / 1000, asked / 100));
  PN_TRY(copies(bench, *side));
  const auto model = fitting_model(*side, 1);
  if (!model) return {};
  PN_TRY(auto rig, Rig::make(*side, model->plan()));
  Steps first;
  deal_pages(rig->plan(), &first);
  prompt(&first, 0, 0, 16, 1);
  PN_TRY(rig->run(first, 1));
  Steps decode;
  prompt(&decode, 0, 16, 1, 1);
  PN_TRY(const double step, median(50, [&] { return rig->run(decode); }));
  bench.note(fmt::format("decode step of a model of {} layers, width {}: {:.1f} us", model->layers,
                         model->width, step / 1000));
  return {};
}

constexpr Case kCases[] = {
    {"perf/table", "-", "figures of submits, copies, a decode step; never fails", table},
};

}  // namespace

std::span<const Case> perf_cases() { return kCases; }

}  // namespace pn::check
