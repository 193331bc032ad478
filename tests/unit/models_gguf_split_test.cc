// SPDX-License-Identifier: Apache-2.0
//
// Split sets: opened by the first part, joined, and refused when a part is missing or foreign.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "models/arch/plan.h"
#include "models/gguf/reader.h"
#include "tests/support/random_model.h"
#include "tests/support/scratch.h"

namespace {

namespace fs = std::filesystem;
using pn::test::GgufWriter;

GgufWriter model(uint64_t seed = 1) {
  pn::test::ModelSpec spec;
  spec.seed = seed;
  auto writer = pn::test::random_model(spec);
  REQUIRE(writer);
  return *writer;
}

std::string refused(const std::string& path, bool incomplete) {
  pn::gguf::Reader reader;
  auto file = reader.open(path);
  REQUIRE(!file);
  CHECK(reader.incomplete() == incomplete);
  return file.error().message;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a split set holds the same tensors as one file") {
  pn::test::Scratch scratch;
  GgufWriter w = model();
  std::vector<std::byte> image = w.image();
  auto one = pn::gguf::Reader().from_memory(image, "one");
  REQUIRE(one);
  for (bool empty_first : {false, true}) {
    auto paths = w.write_split(scratch.path(empty_first ? "e" : "f"), 3, empty_first);
    REQUIRE(paths);
    auto set = pn::gguf::File::open(paths->front());
    REQUIRE_MESSAGE(set, (set ? "" : set.error().message));
    CHECK((*set)->shards().size() == 3);
    REQUIRE((*set)->tensors().size() == (*one)->tensors().size());
    bool several = false;
    for (const pn::gguf::Tensor& t : (*set)->tensors()) {
      const pn::gguf::Tensor* same = (*one)->tensor(t.name);
      REQUIRE(same != nullptr);
      REQUIRE(same->bytes == t.bytes);
      CHECK(std::memcmp(same->data, t.data, t.bytes) == 0);
      const pn::gguf::Shard& shard = (*set)->shards()[t.shard];
      CHECK(t.data == shard.map + t.offset);
      several |= t.shard == 2;
      if (empty_first) CHECK(t.shard > 0);
    }
    CHECK(several);
    CHECK(pn::arch::Model::load(*set));
  }
}

TEST_CASE("a part that is missing, cut, foreign or out of place is named") {
  pn::test::Scratch scratch;
  auto paths = model().write_split(scratch.path("m"), 3);
  auto other = model(2).write_split(scratch.path("other"), 2);
  REQUIRE(paths);
  REQUIRE(other);
  const std::string &first = (*paths)[0], &second = (*paths)[1], &third = (*paths)[2];

  CHECK(has(refused(second, false), "part 2 of 3: open the first part"));
  fs::rename(third, scratch.path("away"));
  CHECK(has(refused(first, true), "part 3 of 3 is missing (" + third));
  fs::copy_file((*other)[1], third);
  CHECK(has(refused(first, false), "belongs to a set of 2 parts"));
  fs::copy_file(second, third, fs::copy_options::overwrite_existing);
  CHECK(has(refused(first, false), "says that it is part 2, but stands for part 3"));
  fs::rename(scratch.path("away"), third);
  CHECK(pn::gguf::File::open(first));
  fs::resize_file(third, fs::file_size(third) - 7);
  std::string cut = refused(first, true);
  CHECK(has(cut, third));
  CHECK(has(cut, "7 bytes are missing"));
}

TEST_CASE("a set whose parts do not add up is refused") {
  pn::test::Scratch scratch;
  GgufWriter w = model();
  auto paths = w.write_split(scratch.path("m"), 2);
  REQUIRE(paths);
  auto part_two = [&](const GgufWriter& tensors) {
    GgufWriter part;
    part.tensors = tensors.tensors;
    part.u16("split.no", 1).u16("split.count", 2).i32("split.tensors.count", 21);
    REQUIRE(part.write((*paths)[1]));
  };
  part_two(w);
  CHECK(has(refused((*paths)[0], false), "is also in an earlier part"));
  GgufWriter one;
  one.values("something.else", {4}, {1, 2, 3, 4});
  part_two(one);
  CHECK(has(refused((*paths)[0], false), "should hold 21 tensors"));
}

TEST_CASE("a first part under another name cannot find the others") {
  pn::test::Scratch scratch;
  auto paths = model().write_split(scratch.path("m"), 2);
  REQUIRE(paths);
  fs::rename((*paths)[0], scratch.path("renamed.gguf"));
  CHECK(has(refused(scratch.path("renamed.gguf"), false), "must end in -00001-of-00002.gguf"));
  GgufWriter alone = model();
  alone.u16("split.count", 1).u16("split.no", 0);  // a set of one is no set
  REQUIRE(alone.write(scratch.path("alone.gguf")));
  CHECK(pn::gguf::File::open(scratch.path("alone.gguf")));
}
