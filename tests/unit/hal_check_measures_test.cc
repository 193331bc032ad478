// SPDX-License-Identifier: Apache-2.0
//
// What the plugin check measures with: closeness, random weights, spread tokens, kept results.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "hal/check/case.h"
#include "hal/check/compare.h"
#include "hal/check/results.h"
#include "hal/check/trial.h"
#include "tests/support/scratch.h"

using namespace pn::check;

TEST_CASE("check: closeness sees a dropped bias, one wrong row and another scale") {
  const std::vector<float> want = random_values(1000, 1);
  CHECK(compare(want, want).within(0));
  std::vector<float> off = want;
  for (float& v : off) v += 0.05f;
  CHECK(compare(off, want).correlation > 0.999999);  // blind to it
  CHECK(!compare(off, want).within(1e-2));
  off = want;
  off[777] += 0.5f;
  CHECK(compare(off, want).correlation > 0.999);
  CHECK(!compare(off, want).within(1e-2));
  CHECK(compare(off, want).worst_at == 777);
  off = want;
  for (float& v : off) v *= 1.01f;
  CHECK(!compare(off, want).within(1e-3));
  CHECK(compare(off, want).within(2e-2));
  const std::vector<float> other = random_values(1000, 2);
  CHECK(std::fabs(compare(other, want).correlation) < 0.1);
}

TEST_CASE("check: closeness of what is not finite, of nothing, and of constants") {
  const float inf = INFINITY;
  CHECK(compare(std::vector<float>{1, NAN}, std::vector<float>{1, NAN}).within(0));
  CHECK(compare(std::vector<float>{-inf, 1}, std::vector<float>{-inf, 1}).within(0));
  CHECK(!compare(std::vector<float>{NAN, 1}, std::vector<float>{0, 1}).within(1));
  CHECK(!compare(std::vector<float>{inf, 1}, std::vector<float>{2, 1}).within(1));
  CHECK(!compare(std::vector<float>{1}, std::vector<float>{1, 2}).within(1));
  CHECK(compare(std::vector<float>{}, std::vector<float>{}).within(0));
  CHECK(compare(std::vector<float>{3, 3}, std::vector<float>{3, 3}).within(0));
  CHECK(!compare(std::vector<float>{3, 4}, std::vector<float>{3, 3}).within(1e-2));
}

TEST_CASE("check: random weights fill whole blocks, and a seed says all") {
  for (const TypeFacts& facts : known_types()) {
    const int64_t cols = facts.block * 3;
    const auto bytes = random_blocks(facts.type, cols, 5, 7);
    CHECK(bytes.size() == 15 * facts.block_bytes);
    CHECK(bytes == random_blocks(facts.type, cols, 5, 7));
    CHECK(bytes != random_blocks(facts.type, cols, 5, 8));
    if (facts.block > 1) CHECK(random_blocks(facts.type, cols + 1, 5, 7).empty());
  }
  CHECK(random_blocks(4711, 32, 1, 1).empty());
  for (const float v : random_values(1000, 3, 2)) CHECK((v >= -2 && v < 2));
}

TEST_CASE("check: tokens are spread over lanes once each, and pages dealt to one lane each") {
  for (const uint32_t tokens : {1u, 2u, 3u, 7u, 16u, 33u}) {
    std::vector<uint32_t> position(4, 10);
    const Steps steps = spread(tokens, &position, 50, 1);
    uint32_t total = 0;
    std::set<uint32_t> lanes;
    for (const pn_entry& e : steps.entries) {
      CHECK(e.position == 10);
      CHECK(position[e.lane] == 10 + e.count);
      CHECK(lanes.insert(e.lane).second);
      total += e.count;
    }
    CHECK(total == tokens);
    CHECK(steps.tokens.size() == tokens);
  }
  Plan plan;
  plan.cache(16, 2, PN_TYPE_F16, 6);
  Steps steps;
  deal_pages(plan, &steps);
  std::set<uint32_t> pages;
  for (const pn_pages& p : steps.pages) {
    CHECK(p.page < 24);
    CHECK(p.page == dealt_page(plan, p.cache, p.lane, p.index));
    CHECK(pages.insert(p.page).second);
  }
  CHECK(pages.size() == 24);
}

TEST_CASE("check: case names are unique, grouped and stable in form") {
  const std::set<std::string> groups = {"static", "probe",  "contract", "ops", "layouts",
                                        "async",  "memory", "fault",    "perf"};
  std::set<std::string> names, seen;
  for (const Case& c : all_cases()) {
    CHECK(names.insert(c.name).second);
    CHECK(groups.count(c.group()) == 1);
    seen.insert(c.group());
    CHECK(std::string(c.what).size() > 5);
  }
  CHECK(seen == groups);
}

TEST_CASE("check: a result is kept by build id, and says what it was") {
  const pn::test::Scratch scratch;
  pn::hal::Note note;
  note.build_id = "abc123";
  const std::string cache = scratch.folder();
  CHECK(read_conformance(cache, note).text() == "not checked");
  Conformance c;
  c.passed = 88;
  c.unsupported = 3;
  c.date = "2026-11-30";
  c.seed = 9;
  REQUIRE(write_conformance(cache, note, c));
  CHECK(read_conformance(cache, note).text() == "passed 88/88 on 2026-11-30");
  CHECK(read_conformance(cache, note).seed == 9);
  c.failed = {"ops/norm", "async/early"};
  REQUIRE(write_conformance(cache, note, c));
  CHECK(read_conformance(cache, note).text() == "failed: ops/norm, async/early");
  note.build_id = "another";
  CHECK(read_conformance(cache, note).text() == "not checked");
  CHECK(!write_conformance("", note, c));
}
