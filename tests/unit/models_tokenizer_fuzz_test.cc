// SPDX-License-Identifier: Apache-2.0
//
// Runs the fuzz entry on a few seeds and their random mutants: it traps when a promise is broken.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// A literal with the zero bytes inside it.
template <size_t N>
std::string bytes(const char (&text)[N]) {
  return std::string(text, N - 1);
}

}  // namespace

TEST_CASE("the fuzz entry holds on seeds and mutants") {
  const std::string seeds[] = {
      std::string(),
      bytes("\x01\x03\x02\x0A<|im_end|>\x03\x07<think>\x04\x03"
            "a bx<|im_end|>\xF8<think>ab"),
      bytes("\x80\x02\x00\x05\xE2\x96\x81"
            "ab\x00\x02"
            "ab ab\xF8 ab</s>\xFF\xE2"),
      bytes("\x27\x01\x00\x03"
            "a b aaaa 12345 \n\n don't"),
  };
  std::mt19937 random(17);
  int runs = 0;
  for (const std::string& seed : seeds) {
    for (int round = 0; round < 400; round++) {
      std::string input = seed;
      for (int n = round % 8; n > 0 && !input.empty(); n--) {
        size_t at = random() % input.size();
        if (random() % 3 == 0) {
          input.insert(at, 1, char(random()));
        } else {
          input[at] = char(random());
        }
      }
      CHECK(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()) ==
            0);
      runs++;
    }
  }
  CHECK(runs == 1600);
}
