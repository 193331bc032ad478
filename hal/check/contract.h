// SPDX-License-Identifier: Apache-2.0
//
// What the cases of group contract share: a plan that any plugin has, structs of other sizes, and
// the calls that must fail.
//
// Owns no rule. The one idea: a struct that is longer or shorter than ours is a word array with the
// bytes of ours, so all sizes are tried in the same way.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "hal/check/rig.h"

namespace pn::check {

// The simplest plan that the side can do: one op from input slot 0 to output slot 1. Code::
// unsupported with the reasons when there is none.
Result<Plan> simple_plan(Side& side);
// A rig of it on the plugin under test; empty, and the bench told, when there is none.
Result<std::unique_ptr<Rig>> simple_rig(Bench& bench);
// A rig of the small llama; empty, and the bench told, when it cannot.
Result<std::unique_ptr<Rig>> model_rig(Bench& bench);
Steps simple_steps(uint32_t tokens = 4);

enum class Size { shorter, zero_tail, said_tail };
const char* to_string(Size size);
constexpr uint32_t kTail = 24;

// `count` structs in a row with another struct_size.
template <typename T>
std::vector<uint64_t> resized(const T* from, size_t count, Size size) {
  const uint32_t bytes = size == Size::shorter ? 8 : static_cast<uint32_t>(sizeof(T)) + kTail;
  std::vector<uint64_t> out(count * bytes / 8);
  for (size_t i = 0; i < count; ++i) {
    char* at = reinterpret_cast<char*>(out.data()) + i * bytes;
    std::memcpy(at, from + i, std::min<size_t>(bytes, sizeof(T)));
    std::memcpy(at, &bytes, 4);
    if (size == Size::said_tail) at[sizeof(T) + 9] = 1;
  }
  return out;
}
template <typename T>
const T* as(const std::vector<uint64_t>& words) {
  return reinterpret_cast<const T*>(words.data());
}

// A function that fills structs: one, or a list by the two-call idiom.
struct Output {
  const char* name;
  uint32_t size;
  bool list;
  bool stable;  // the same answer each time
  std::function<pn_status(uint32_t* count, void* to, pn_error*)> call;
};
Result<std::vector<Output>> outputs(Bench& bench, Rig* rig);

// A call that must fail, and as what.
struct Failing {
  const char* name;
  pn_status wanted;
  std::function<pn_status(pn_error*)> call;
};
Result<std::vector<Failing>> failing_calls(Bench& bench, Rig* rig);

}  // namespace pn::check
