// SPDX-License-Identifier: Apache-2.0
//
// A few thousand mutated seeds through the fuzz entry: nothing may crash or leave the image.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/random_model.h"
#include "tests/support/random_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using pn::test::Random;

// A model of a few KiB: most bytes are structure, so most mutations hit structure.
std::vector<std::byte> seed(bool moe, pn::test::VocabularyKind kind) {
  pn::test::ModelSpec spec;
  spec.embed = 32, spec.heads = 2, spec.kv_heads = 1, spec.ff = 32, spec.layers = 1;
  spec.vocab = 512;
  spec.type = "Q4_0";
  spec.vocabulary = kind;
  spec.biases = true;
  spec.rope_scaling = moe ? pn::test::RopeScaling::longrope : pn::test::RopeScaling::llama3;
  if (moe) spec.experts = 4, spec.experts_used = 2;
  auto writer = pn::test::random_model(spec);
  REQUIRE(writer);
  return writer->image();
}

// Numbers that break sums, products and comparisons.
constexpr uint64_t kEvil[] = {0,
                              1,
                              31,
                              33,
                              127,
                              255,
                              65535,
                              1u << 31,
                              0xffffffff,
                              uint64_t{1} << 32,
                              uint64_t{1} << 61,
                              uint64_t{1} << 63,
                              ~uint64_t{0}};

void mutate(std::vector<uint8_t>& bytes, Random& random) {
  for (uint64_t n = 1 + random.next() % 3; n > 0 && bytes.size() > 16; --n) {
    // Structure comes first in a file: half of the hits go into its first KiB.
    uint64_t range = random.next() % 2 ? bytes.size() : std::min<uint64_t>(bytes.size(), 1024);
    uint64_t at = random.next() % (range - 8);
    uint64_t evil = kEvil[random.next() % std::size(kEvil)];
    switch (random.next() % 5) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1u << random.next() % 8);
        break;
      case 1:
        std::memcpy(&bytes[at], &evil, 4);
        break;
      case 2:
        std::memcpy(&bytes[at], &evil, 8);
        break;
      case 3:
        bytes.resize(at + 8);
        break;
      default:
        bytes.erase(bytes.begin() + static_cast<long>(at),
                    bytes.begin() + static_cast<long>(at + 1 + random.next() % 7));
    }
  }
}

}  // namespace

TEST_CASE("mutated models neither crash nor leave the image") {
  Random random{20261129};
  const std::vector<std::byte> seeds[] = {seed(false, pn::test::VocabularyKind::spm),
                                          seed(true, pn::test::VocabularyKind::bpe),
                                          seed(true, pn::test::VocabularyKind::none)};
  for (int i = 0; i < 4000; ++i) {
    const std::vector<std::byte>& from = seeds[i % std::size(seeds)];
    const auto* first = reinterpret_cast<const uint8_t*>(from.data());
    std::vector<uint8_t> bytes(first, first + from.size());
    if (i >= 3) mutate(bytes, random);
    bytes.shrink_to_fit();  // so that a sanitizer sees the end
    CHECK(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()) == 0);
  }
}
