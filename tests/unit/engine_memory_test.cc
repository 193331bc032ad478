// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a refusal, to the word, and the shapes that a copy is compiled for. No device
// takes part.
#include "engine/plan/memory.h"

#include <doctest/doctest.h>

#include "engine/plan/shapes.h"

using namespace pn;
using namespace pn::engine;

namespace {

constexpr uint64_t kMiB = 1 << 20;

pn_memory_status free_memory(uint64_t bytes) {
  pn_memory_status status{};
  status.quality = 2;
  status.free_now = bytes;
  return status;
}

}  // namespace

TEST_CASE("memory: a refusal says what is needed, what is free, and what would fit") {
  // 4 slots x 8192 tokens of 64 a page: 512 pages of 1 MiB.
  MemoryNeed need{.weights = 1000 * kMiB, .page_bytes = kMiB, .pages = 512, .scratch = 20 * kMiB};
  MemoryQuestion q{"m", "cpu:0", 8192, 4, 64, 0};
  CHECK(check_memory(need, free_memory(1532 * kMiB), q).has_value());
  Result<void> refused = check_memory(need, free_memory(1531 * kMiB), q);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == Code::out_of_memory);
  CHECK(refused.error().message ==
        "m needs 1.50 GiB on cpu:0 (1000.0 MiB weights, 512.0 MiB cache for 4 x 8192 tokens, "
        "20.0 MiB work space), 1.50 GiB may be taken: context 8128 with 4 slots would fit, or "
        "context 8192 with 3 slots");
  refused = check_memory(need, free_memory(1022 * kMiB), q);
  CHECK(refused.error().message.find("context 128 with 1 slot would fit") != std::string::npos);
  refused = check_memory(need, free_memory(1020 * kMiB), q);
  CHECK(refused.error().message.find("without any context it takes 1020.0 MiB") !=
        std::string::npos);
}

TEST_CASE("memory: a budget counts what other copies on the die hold") {
  MemoryNeed need{.weights = 100 * kMiB, .page_bytes = kMiB, .pages = 1};
  MemoryQuestion q{"m", "cpu:0", 64, 1, 64, 200 * kMiB};
  pn_memory_status status = free_memory(10000 * kMiB);
  CHECK(check_memory(need, status, q).has_value());
  status.used_by_us = 100 * kMiB;
  CHECK_FALSE(check_memory(need, status, q).has_value());
  status = {};  // a die that cannot say
  q.budget = 0;
  CHECK(check_memory(need, status, q).has_value());
}

TEST_CASE("shapes: decode buckets, a mixed one and a prompt chunk, smallest first") {
  std::vector<pn_shape> shapes = step_shapes(6, 8192);
  std::vector<uint32_t> tokens;
  for (const pn_shape& shape : shapes) tokens.push_back(shape.tokens);
  CHECK(tokens == std::vector<uint32_t>{1, 2, 4, 6, 160, 512});
  CHECK(shapes[2].rows == 4);
  CHECK(shapes[4].entries == 6);
  CHECK(shapes[0].context == 8192);
  CHECK(step_shapes(1, 64).back().tokens == 64);
  CHECK(step_shapes(8, 4).back().tokens == 8);
}
