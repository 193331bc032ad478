// SPDX-License-Identifier: Apache-2.0
//
// Group layouts: pantheon.layout/1, for every type that the plugin takes.
#include <algorithm>
#include <cstdlib>
#include <map>

#include "hal/check/bench.h"
#include "hal/check/plan.h"

namespace pn::check {

namespace {

constexpr float kMark = 12345;  // no weight here is that large

struct Weight {
  std::string name;
  pn_weight info;
  std::vector<std::byte> source;
  std::vector<pn_layout_choice> choices;
};

pn_weight info_of(uint32_t role, uint32_t type, int64_t cols, int64_t rows, int64_t experts) {
  pn_weight w{};
  w.struct_size = sizeof w;
  w.role = role;
  w.source_type = type;
  const int64_t shape[] = {cols, rows, experts, 1};
  std::copy(shape, shape + 4, w.shape);
  w.bias = w.scale = w.adapter_a = w.adapter_b = PN_NO16;
  return w;
}

// Every role and type that rank takes; ragged row counts. Empty, and the bench told, without one.
Result<std::vector<Weight>> weights(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  std::vector<Weight> out;
  if (!side->layout()) {
    bench.unsupported("no pantheon.layout/1");
    return out;
  }
  const auto add = [&](uint32_t role, const TypeFacts& facts, int64_t rows,
                       int64_t experts) -> Result<void> {
    const int64_t cols = role == PN_ROLE_VECTOR ? 96 : facts.block == 256 ? 512 : 96;
    Weight w{fmt::format("role {} type {}", role, facts.name),
             info_of(role, facts.type, cols, rows, experts),
             random_blocks(facts.type, cols, rows * experts, bench.seed(facts.type)),
             {}};
    auto ranked = side->layout()->rank(w.info);
    if (!ranked && ranked.error().code == Code::unsupported) return {};
    if (!ranked) return tl::unexpected<Error>(ranked.error());
    w.choices = *std::move(ranked);
    out.push_back(std::move(w));
    return {};
  };
  for (const TypeFacts& facts : known_types()) {
    for (const uint32_t role : {PN_ROLE_MATRIX, PN_ROLE_TABLE, PN_ROLE_TIED})
      PN_TRY(add(role, facts, 53, 1));
    PN_TRY(add(PN_ROLE_EXPERTS, facts, 21, 3));
  }
  PN_TRY(add(PN_ROLE_VECTOR, *type_facts(PN_TYPE_F32), 1, 1));
  if (out.empty()) bench.unsupported("rank takes no type");
  return out;
}

uint64_t elements(const pn_weight& w) {
  return static_cast<uint64_t>(w.shape[0] * w.shape[1] * w.shape[2] * w.shape[3]);
}

Result<std::vector<std::byte>> converted(const hal::Layout& layout, const Weight& w,
                                         const pn_layout_choice& choice) {
  std::vector<std::byte> bytes(choice.tile_count * choice.tile_bytes);
  PN_TRY(layout.convert(w.info, choice, w.source.data(), bytes.data(), 0, choice.tile_count));
  return bytes;
}

Result<std::vector<float>> decoded(const hal::Layout& layout, const Weight& w,
                                   const pn_layout_choice& choice) {
  PN_TRY(const auto bytes, converted(layout, w, choice));
  std::vector<float> values(elements(w.info) + 16, kMark);
  PN_TRY(layout.decode(w.info, choice, bytes.data(), values.data(), 0, choice.tile_count));
  for (size_t i = elements(w.info); i < values.size(); ++i)
    if (values[i] != kMark)
      return fail(Code::failed, w.name + ": decode writes past the weight's rows");
  values.resize(elements(w.info));
  return values;
}

Result<void> rank(Bench& bench) {
  PN_TRY(const auto list, weights(bench));
  PN_TRY(Side * side, bench.subject());
  std::string names;
  for (const Weight& w : list) {
    bench.expect(!w.choices.empty(), "{}: rank gives no choice", w.name);
    for (const pn_layout_choice& c : w.choices) {
      bench.expect(c.name[0] != 0, "{}: a layout has no name", w.name);
      bench.expect(c.tile_count != 0 && c.tile_bytes != 0, "{}: {} tiles of {} bytes", w.name,
                   c.tile_count, c.tile_bytes);
      bench.expect(c.loss <= PN_LOSS_LOSSY && (c.loss == PN_LOSS_NONE || c.nmse_bound > 0),
                   "{}: loss {} without a bound", w.name, c.loss);
      bench.expect((c.alignment & (c.alignment - 1)) == 0, "{}: alignment {}", w.name, c.alignment);
      const bool source = (c.flags & 1) != 0;
      bench.expect(!source || c.tile_count * c.tile_bytes == w.source.size(),
                   "{}: says the source's bytes, and has another number of them", w.name);
      if (names.find(c.name) == std::string::npos) names += std::string(" ") + c.name;
    }
  }
  if (list.empty()) return {};
  const auto refuses = [&](const char* what, pn_weight w, uint64_t target) {
    uint32_t count = 0;
    pn_error err = new_error();
    const pn_status status =
        side->plugin().interface<pn_layout_api>()->rank(&w, target, &count, nullptr, &err);
    bench.expect(status == PN_UNSUPPORTED || status == PN_INVALID, "{}: status {}", what, status);
  };
  const uint64_t target = side->device().info().layout_target;
  refuses("type 4711", info_of(PN_ROLE_MATRIX, 4711, 64, 64, 1), target);
  refuses("a role of 99", info_of(99, PN_TYPE_F32, 64, 64, 1), target);
  refuses("33 columns of Q8_0", info_of(PN_ROLE_MATRIX, PN_TYPE_Q8_0, 33, 64, 1), target);
  refuses("no columns", info_of(PN_ROLE_MATRIX, PN_TYPE_F32, 0, 64, 1), target);
  bench.note("layouts:" + names);
  return {};
}

Result<void> round_trip(Bench& bench) {
  PN_TRY(const auto list, weights(bench));
  if (list.empty()) return {};
  PN_TRY(Side * ours, bench.subject());
  PN_TRY(Side * theirs, bench.reference());
  std::string alone;
  for (const Weight& w : list) {
    std::vector<float> want;
    auto ranked = theirs->layout() ? theirs->layout()->rank(w.info)
                                   : Result<std::vector<pn_layout_choice>>(fail(Code::failed, ""));
    if (!ranked) {
      alone += " " + w.name;
      continue;
    }
    PN_TRY(want, decoded(*theirs->layout(), w, ranked->front()));
    for (const pn_layout_choice& choice : w.choices) {
      PN_TRY(const auto got, decoded(*ours->layout(), w, choice));
      const Closeness c = compare(got, want);
      const bool exact = choice.loss == PN_LOSS_NONE;
      bench.expect(c.finite && c.nmse <= (exact ? 1e-12 : choice.nmse_bound),
                   "{} as {}: squared error {:.2e}, {:.2e} is promised; {}", w.name, choice.name,
                   c.nmse, exact ? 0.0 : choice.nmse_bound, c.text());
    }
  }
  if (!alone.empty()) bench.note("unknown to the reference:" + alone);
  return {};
}

// Ranges of 1, 2, 3 ... tiles from the back, each with a guard around it.
Result<void> tiles(Bench& bench) {
  PN_TRY(const auto list, weights(bench));
  if (list.empty()) return {};
  PN_TRY(Side * side, bench.subject());
  for (const Weight& w : list) {
    const pn_layout_choice& choice = w.choices.front();
    PN_TRY(const auto whole, converted(*side->layout(), w, choice));
    PN_TRY(const auto values, decoded(*side->layout(), w, choice));
    std::vector<float> parts;
    uint64_t end = choice.tile_count, size = 1;
    while (end > 0) {
      const uint64_t count = std::min(size++, end), first = end - count;
      const size_t bytes = count * choice.tile_bytes;
      std::vector<std::byte> range(bytes + 64, std::byte{0x5a});
      PN_TRY(side->layout()->convert(w.info, choice, w.source.data(), range.data() + 32, first,
                                     count));
      bench.expect(std::equal(range.begin() + 32, range.end() - 32,
                              whole.begin() + static_cast<int64_t>(first * choice.tile_bytes)),
                   "{}: tiles {} + {} differ from the whole", w.name, first, count);
      const auto marked = [](std::byte b) { return b == std::byte{0x5a}; };
      bench.expect(std::all_of(range.begin(), range.begin() + 32, marked) &&
                       std::all_of(range.end() - 32, range.end(), marked),
                   "{}: tiles {} + {}: writes outside them", w.name, first, count);
      std::vector<float> some(elements(w.info), kMark);
      PN_TRY(side->layout()->decode(w.info, choice, range.data() + 32, some.data(), first, count));
      while (!some.empty() && some.back() == kMark) some.pop_back();
      parts.insert(parts.begin(), some.begin(), some.end());  // whole source rows, in order
      end = first;
    }
    bench.expect(parts == values, "{}: ranges decode to other values than the whole", w.name);
  }
  return {};
}

Result<void> fingerprint(Bench& bench) {
  PN_TRY(const auto list, weights(bench));
  PN_TRY(Side * side, bench.subject());
  std::map<std::string, std::string> names;  // fingerprint -> layout and type
  for (const Weight& w : list) {
    PN_TRY(const auto again, side->layout()->rank(w.info));
    for (size_t i = 0; i < w.choices.size() && i < again.size(); ++i) {
      const std::string print(reinterpret_cast<const char*>(w.choices[i].fingerprint), 32);
      bench.expect(
          std::equal(again[i].fingerprint, again[i].fingerprint + 32, w.choices[i].fingerprint),
          "{}: another fingerprint the second time", w.name);
      bench.expect(print != std::string(32, '\0'), "{}: a fingerprint of zeros", w.name);
      const std::string what =
          fmt::format("{} from type {}", w.choices[i].name, w.info.source_type);
      const auto [at, fresh] = names.emplace(print, what);
      bench.expect(fresh || at->second == what, "{} and {} have one fingerprint", what, at->second);
    }
    bench.expect(again.size() == w.choices.size(), "{}: another number of choices", w.name);
  }
  return {};
}

Result<void> ranges(Bench& bench) {
  PN_TRY(const auto list, weights(bench));
  if (list.empty()) return {};
  PN_TRY(Side * side, bench.subject());
  const auto* api = side->plugin().interface<pn_layout_api>();
  const uint64_t target = side->device().info().layout_target;
  for (const Weight& w : list) {
    const pn_layout_choice& c = w.choices.front();
    std::vector<std::byte> bytes((c.tile_count + 2) * c.tile_bytes, std::byte{0x5a});
    std::vector<float> values(elements(w.info) * 3 + 4096);
    const std::pair<uint64_t, uint64_t> bad[] = {{0, c.tile_count + 1},
                                                 {c.tile_count, 1},
                                                 {c.tile_count + 1, 1},
                                                 {UINT64_MAX, 2},
                                                 {1, UINT64_MAX}};
    for (const auto& [first, count] : bad) {
      pn_error err = new_error();
      const pn_status in = api->convert(&w.info, target, c.layout, w.source.data(), bytes.data(),
                                        first, count, &err);
      bench.expect(in == PN_INVALID, "{}: convert of tiles {} + {} of {}: status {}", w.name, first,
                   count, c.tile_count, in);
      const pn_status out =
          api->decode(&w.info, target, c.layout, bytes.data(), values.data(), first, count, &err);
      bench.expect(out == PN_INVALID, "{}: decode of tiles {} + {} of {}: status {}", w.name, first,
                   count, c.tile_count, out);
    }
    pn_error err = new_error();
    const pn_status other =
        api->convert(&w.info, target, 0x7777777777, w.source.data(), bytes.data(), 0, 1, &err);
    bench.expect(other == PN_INVALID || other == PN_UNSUPPORTED, "{}: an unknown layout: status {}",
                 w.name, other);
  }
  return {};
}

Result<void> experts(Bench& bench) {
  PN_TRY(auto list, weights(bench));
  PN_TRY(Side * side, bench.subject());
  uint32_t stacks = 0;
  for (Weight& w : list) {
    if (w.info.role != PN_ROLE_EXPERTS) continue;
    ++stacks;
    const pn_layout_choice& c = w.choices.front();
    const auto parts = static_cast<uint64_t>(w.info.shape[2]);
    if (!bench.expect(c.tile_count % parts == 0, "{}: {} tiles for {} experts", w.name,
                      c.tile_count, parts))
      continue;
    PN_TRY(const auto before, converted(*side->layout(), w, c));
    const size_t source = w.source.size() / parts, bytes = before.size() / parts;
    std::fill_n(w.source.begin() + static_cast<int64_t>(source), source, std::byte{0x11});
    PN_TRY(const auto after, converted(*side->layout(), w, c));
    for (uint64_t e = 0; e < parts; ++e) {
      const auto at = static_cast<int64_t>(e * bytes), end = static_cast<int64_t>((e + 1) * bytes);
      const bool same = std::equal(before.begin() + at, before.begin() + end, after.begin() + at);
      bench.expect(same == (e != 1), "{}: expert {} {} when expert 1 changes", w.name, e,
                   same ? "stays" : "changes");
    }
  }
  if (!list.empty() && stacks == 0) bench.unsupported("rank takes no expert stacks");
  return {};
}

Result<void> targets(Bench& bench) {
  PN_TRY(Side * side, bench.subject());
  if (!side->layout()) return bench.unsupported("no pantheon.layout/1"), Result<void>{};
  const auto* api = side->plugin().interface<pn_layout_api>();
  uint32_t count = 0;
  pn_error err = new_error();
  pn_status status = api->targets(&count, nullptr, &err);
  if (!bench.expect(status == PN_OK, "targets: status {}", status)) return {};
  std::vector<pn_pair> pairs(count);
  if (count != 0) status = api->targets(&count, pairs.data(), &err);
  bench.expect(status == PN_OK, "targets: status {} with room for all", status);
  for (const pn_pair& pair : pairs) {
    if (!bench.expect(pair.key != nullptr && pair.value != nullptr && pair.key[0] != 0,
                      "a target without a name or a value"))
      continue;
    char* end = nullptr;
    const uint64_t target = std::strtoull(pair.value, &end, 10);
    bench.expect(end != pair.value && *end == 0, "target {}: \"{}\" is no decimal number", pair.key,
                 pair.value);
    const pn_weight w = info_of(PN_ROLE_VECTOR, PN_TYPE_F32, 64, 1, 1);
    uint32_t choices = 0;
    status = api->rank(&w, target, &choices, nullptr, &err);
    bench.expect(status == PN_OK, "rank for target {}: status {}", pair.key, status);
  }
  return {};
}

constexpr Case kCases[] = {
    {"layouts/rank", "layout.h", "choices are whole; what cannot be is refused", rank},
    {"layouts/round_trip", "layout.h", "decode(convert(x)) within the bound", round_trip},
    {"layouts/tiles", "layout.h", "ranges in any order equal the whole", tiles},
    {"layouts/fingerprint", "layout.h", "stable, and telling layouts and types apart", fingerprint},
    {"layouts/ranges", "layout.h", "ranges past tile_count are refused", ranges},
    {"layouts/experts", "layout.h", "equal tiles an expert, each on its own", experts},
    {"layouts/targets", "layout.h", "decimal numbers that rank takes", targets},
};

}  // namespace

std::span<const Case> layout_cases() { return kCases; }

}  // namespace pn::check
