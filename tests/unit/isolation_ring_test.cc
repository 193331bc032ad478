// SPDX-License-Identifier: Apache-2.0
//
// The step path's parts: records through a ring of shared memory, and submits as records.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "hal/proxy/ring.h"
#include "hal/proxy/step_wire.h"
#include "hal/proxy/wire.h"

using namespace pn;
using namespace pn::proxy;

TEST_CASE("ring: records of every size arrive whole and in order") {
  auto ring = Ring::create();
  REQUIRE(ring);
  constexpr uint32_t kRecords = 3000;
  std::thread producer([&] {
    std::mt19937 random(7);
    for (uint32_t i = 0; i < kRecords; ++i) {
      const uint32_t bytes = i % 50 == 0 ? kRecordMax - random() % 100 : 8 + random() % 20000;
      std::byte* to = nullptr;
      while ((to = ring->reserve(bytes)) == nullptr) std::this_thread::yield();
      std::memset(to, static_cast<int>(i % 251), bytes);
      std::memcpy(to, &bytes, sizeof bytes);
      std::memcpy(to + 4, &i, sizeof i);
      ring->publish();
    }
  });
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < kRecords; ++i) {
    std::byte* at = nullptr;
    while ((at = ring->next(1'000'000'000)) == nullptr) {
    }
    uint32_t bytes = 0, number = 0;
    std::memcpy(&bytes, at, sizeof bytes);
    std::memcpy(&number, at + 4, sizeof number);
    wrong += number != i;
    for (uint32_t b = 8; b < bytes; b += 997)
      wrong += at[b] != static_cast<std::byte>(i % 251) ? 1 : 0;
    if (bytes > 8) wrong += at[bytes - 1] != static_cast<std::byte>(i % 251) ? 1 : 0;
    ring->pop();
  }
  producer.join();
  CHECK(wrong == 0);
}

TEST_CASE("ring: eight small records fit beside each other at any place") {
  auto ring = Ring::create();
  REQUIRE(ring);
  for (int round = 0; round < 3000; ++round) {
    for (int i = 0; i < 8; ++i) {
      REQUIRE(ring->reserve(600) != nullptr);
      ring->publish();
    }
    for (int i = 0; i < 8; ++i) {
      REQUIRE(ring->next(0) != nullptr);
      ring->pop();
    }
  }
}

TEST_CASE("ring: full is said, an empty ring takes the largest record at any place") {
  auto ring = Ring::create();
  REQUIRE(ring);
  int taken = 0;
  while (ring->reserve(kRecordMax - 64) != nullptr) {
    ring->publish();
    ++taken;
  }
  CHECK(taken >= 2);
  while (taken-- > 0) {
    REQUIRE(ring->next(0) != nullptr);
    ring->pop();
  }
  CHECK(ring->next(0) == nullptr);
  for (uint64_t bytes : {uint64_t{100}, kRecordMax, uint64_t{64}, kRecordMax, kRecordMax / 2,
                         kRecordMax, uint64_t{1}, kRecordMax}) {
    REQUIRE(ring->reserve(bytes) != nullptr);
    ring->publish();
    REQUIRE(ring->next(0) != nullptr);
    ring->pop();
  }
}

TEST_CASE("ring: the first failure counts, and wakes who waits") {
  auto ring = Ring::create();
  REQUIRE(ring);
  std::thread waiter([&] {
    while (ring->words().state.load() == PN_QUEUE_OK)
      ring->await_change(ring->words().bell.load(), 1'000'000'000);
  });
  pn_error error = no_error();
  set_error(&error, PN_FAILED, "first");
  ring->advance(3);
  ring->fail(PN_QUEUE_FAILED, error);
  set_error(&error, PN_DEVICE_LOST, "second");
  ring->fail(PN_QUEUE_LOST, error);
  waiter.join();
  CHECK(ring->words().completed.load() == 3);
  CHECK(ring->words().state.load() == PN_QUEUE_FAILED);
  CHECK(std::string(ring->words().error.message) == "first");
}

TEST_CASE("records: a submit comes back as it was") {
  const std::vector<int32_t> tokens = {5, 6, 7};
  std::vector<pn_lane> lanes(2);
  for (pn_lane& lane : lanes) lane.struct_size = sizeof lane;
  lanes[1].seed = 99;
  const pn_pages page = {0, 1, 2, 3, 4, 0};
  const pn_entry entries[] = {{0, 3, 0, 0, PN_NONE, PN_NONE, 0, 0},
                              {1, 1, 0, 9, PN_NONE, PN_NONE, 0, PN_ENTRY_FEED}};
  pn_row row{};
  row.top = 4;
  row.target = {{77}, 8, 16};
  pn_step steps[2]{};
  steps[0] = {sizeof(pn_step), 3, 2, 1, 2, 1, tokens.data(), lanes.data(), &page, entries, &row};
  steps[1].struct_size = sizeof(pn_step);
  const pn_point wait = {{5}, 6};
  pn_command command{};
  command.kind = PN_CMD_RUN;
  command.step = 1;
  const pn_submit submit = {sizeof(pn_submit), 1, 1, 2, 42, &wait, &command, steps};
  const char* unknown = "";
  const uint64_t bytes = record_bytes(submit, &unknown);
  REQUIRE(bytes > 0);
  std::vector<uint64_t> record(bytes / 8 + 1, 0xeeeeeeeeeeeeeeee);
  write_record(submit, reinterpret_cast<std::byte*>(record.data()));
  CHECK(record[bytes / 8] == 0xeeeeeeeeeeeeeeee);
  const pn_submit& back = *open_record(reinterpret_cast<std::byte*>(record.data()));
  CHECK(back.value == 42);
  CHECK(back.waits[0].value == 6);
  CHECK(back.commands[0].step == 1);
  REQUIRE(back.step_count == 2);
  CHECK(back.steps[0].tokens[2] == 7);
  CHECK(back.steps[0].lanes[1].seed == 99);
  CHECK(back.steps[0].pages[0].page == 3);
  CHECK(std::memcmp(back.steps[0].entries, entries, sizeof entries) == 0);
  CHECK(std::memcmp(back.steps[0].rows, &row, sizeof row) == 0);
  CHECK(back.steps[1].tokens == nullptr);
}

TEST_CASE("records: what this build does not know is refused by name") {
  struct Grown {
    pn_step step;
    uint64_t more;
  } grown{};
  grown.step.struct_size = sizeof grown;
  const pn_submit submit = {sizeof(pn_submit), 0, 0, 1, 1, nullptr, nullptr, &grown.step};
  const char* unknown = "";
  CHECK(record_bytes(submit, &unknown) == sizeof(pn_submit) + sizeof(pn_step));
  grown.more = 1;
  CHECK(record_bytes(submit, &unknown) == 0);
  CHECK(std::string(unknown) == "pn_step");
  grown.step.struct_size = 8;
  CHECK(record_bytes(submit, &unknown) == 0);
}

TEST_CASE("messages: a reader never leaves what it was given") {
  Writer out;
  out.text("hello");
  out.pod<uint32_t>(7);
  const std::vector<uint16_t> numbers = {1, 2, 3};
  out.list(numbers.data(), numbers.size());
  const std::span<const std::byte> all = out.view();
  Reader in(all);
  CHECK(in.text() == "hello");
  CHECK(in.pod<uint32_t>() == 7);
  CHECK(in.list<uint16_t>() == numbers);
  CHECK(in.ok());
  CHECK(in.pod<uint64_t>() == 0);
  CHECK_FALSE(in.ok());
  for (size_t cut = 0; cut + 2 < all.size(); ++cut) {  // the last two bytes are padding
    Reader part(all.first(cut));
    part.text();
    part.pod<uint32_t>();
    part.list<uint16_t>();
    CHECK_FALSE(part.ok());
  }
  Writer huge;
  huge.pod<uint64_t>(UINT64_MAX);
  Reader lies(huge.view());
  CHECK(lies.list<uint64_t>().empty());
  CHECK_FALSE(lies.ok());
}
