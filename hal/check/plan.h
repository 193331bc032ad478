// SPDX-License-Identifier: Apache-2.0
//
// Plans, steps and random data for cases.
//
// Owns the arrays that a pn_plan and a pn_step point to. Knows no plugin. The one idea: indices are
// handed out as the contract wants them, so a case reads like the plan that it makes.
#pragma once

#include <pantheon/hal.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pn::check {

// Uniform in [-scale, scale), from the seed alone.
std::vector<float> random_values(uint64_t count, uint64_t seed, float scale = 1);
uint64_t random_bits(uint64_t& state);  // splitmix64

// Element types in the file's own blocks.
struct TypeFacts {
  uint32_t type;
  const char* name;
  int64_t block;  // elements
  uint64_t block_bytes;
};
std::span<const TypeFacts> known_types();
const TypeFacts* type_facts(uint32_t type);
// A matrix of `rows` rows in that type: valid blocks, values of about 0.1 to 1.
std::vector<std::byte> random_blocks(uint32_t type, int64_t cols, int64_t rows, uint64_t seed);

struct Plan {
  std::vector<pn_op> ops;
  std::vector<pn_slot> slots;
  std::vector<pn_weight> weights;
  std::vector<std::vector<std::byte>> bytes;  // of each weight, as in a file
  std::vector<pn_cache> caches;
  std::vector<pn_shape> shapes;
  std::vector<std::vector<std::byte>> params;
  uint32_t lanes = 4, ids_depth = 1;

  uint16_t slot(uint32_t width, uint32_t kind = PN_SLOT_INTERNAL, uint32_t rows = PN_ROWS_TOKENS);
  uint16_t input(uint32_t width) { return slot(width, PN_SLOT_INPUT); }
  uint16_t output(uint32_t width) { return slot(width, PN_SLOT_OUTPUT); }
  uint16_t weight(uint32_t role, uint32_t type, std::vector<int64_t> shape,
                  std::vector<std::byte> data);
  // F32 data.
  uint16_t matrix(int64_t cols, int64_t rows, uint64_t seed, float scale = 1);
  uint16_t stack(int64_t cols, int64_t rows, int64_t experts, uint64_t seed);
  uint16_t vector(std::span<const float> values, uint32_t role = PN_ROLE_VECTOR);
  uint16_t random_vector(int64_t n, uint64_t seed, float scale = 1);
  uint16_t rope(uint32_t pairs, float base = 100.0f);
  uint16_t cache(uint32_t unit_tokens, uint32_t layers, uint32_t type, uint32_t units_per_lane);
  template <typename T>
  pn_op& op(uint16_t kind, T p) {
    p.struct_size = sizeof(T);
    const auto* raw = reinterpret_cast<const std::byte*>(&p);
    return add(kind, std::vector<std::byte>(raw, raw + sizeof(T)));
  }
  pn_op& op(uint16_t kind) { return add(kind, {}); }
  template <typename T>
  T& params_of(size_t op) {
    return *reinterpret_cast<T*>(params[op].data());
  }
  pn_plan view();  // points into this plan

 private:
  pn_op& add(uint16_t kind, std::vector<std::byte> p);
};

struct Steps {
  std::vector<int32_t> tokens;
  std::vector<pn_lane> lanes;
  std::vector<pn_pages> pages;
  std::vector<pn_entry> entries;
  std::vector<pn_row> rows;

  pn_step view() const;
  pn_entry& entry(uint32_t lane, uint32_t position, std::span<const int32_t> ids);
  pn_entry& entry(uint32_t lane, uint32_t position, uint32_t count);  // count zeros
  pn_row& row(uint32_t entry, uint32_t token, uint32_t flags);
  pn_lane& lane(uint32_t number, float temperature = 0);
  void page(uint32_t lane, uint32_t index, uint32_t page, uint32_t count = 1, uint32_t cache = 0);
};

}  // namespace pn::check
