// SPDX-License-Identifier: Apache-2.0
//
// The pool behind random rows.
//
// Owns generation and encoding of the pool. Pools are shared by (type, sigma): a model has few
// pairs.
#include "tests/support/random_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "models/gguf/file.h"
#include "models/quant/dequantise.h"

namespace pn::test {
namespace {

// Elements of a pool: 2^18 normals take about 3 ms.
constexpr uint64_t kPool = uint64_t{1} << 18;
// Elements that are copied together, a block at least.
constexpr uint64_t kUnit = 64;

struct Pool {
  uint32_t block_bytes = 0;
  uint64_t blocks = 0;
  std::vector<std::byte> bytes;
};

std::shared_ptr<const Pool> pool_of(uint32_t type, float sigma) {
  static std::map<std::pair<uint32_t, float>, std::shared_ptr<const Pool>> pools;
  auto& pool = pools[{type, sigma}];
  if (pool) return pool;
  const gguf::TypeInfo* info = gguf::type_info(type);
  auto made = std::make_shared<Pool>();
  made->block_bytes = info->block_bytes;
  made->blocks = kPool / info->block;
  made->bytes.resize(made->blocks * info->block_bytes);
  std::vector<float> values = random_values(kPool, 0, sigma, type + 1);
  if (!quant::quantise(type, values, made->bytes.data())) return nullptr;
  return pool = made;
}

}  // namespace

uint64_t Random::next() {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float Random::uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

float Random::normal() {
  uint64_t bits = next();
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xffff) * 0x1p-16f;
  return (sum - 2) * 1.7320508f;  // four uniforms have variance 1/3
}

GgufWriter::Rows random_rows(uint32_t type, uint64_t width, float sigma, uint64_t seed) {
  std::shared_ptr<const Pool> pool = pool_of(type, sigma);
  uint64_t blocks = width / gguf::type_info(type)->block;
  uint64_t unit = std::max<uint64_t>(1, kUnit / gguf::type_info(type)->block);
  return [pool, blocks, unit, seed](uint64_t first, uint64_t count, std::byte* out) {
    uint64_t places = pool->blocks - unit + 1;
    for (uint64_t row = first; row < first + count; ++row) {
      Random random{seed * 0x2545f4914f6cdd1du + row};  // rows do not depend on the chunking
      // The first unit walks through all places before one comes again (a prime above `places`), so
      // even rows of a single block differ.
      uint64_t place = (seed + row * 1000003) % places;
      for (uint64_t at = 0; at < blocks; at += unit) {
        uint64_t n = std::min(unit, blocks - at) * pool->block_bytes;
        std::memcpy(out, pool->bytes.data() + place * pool->block_bytes, n);
        out += n;
        place = random.next() % places;
      }
    }
  };
}

std::vector<float> random_values(size_t count, float mean, float sigma, uint64_t seed) {
  Random random{seed};
  std::vector<float> values(count);
  for (float& v : values) v = mean + sigma * random.normal();
  return values;
}

}  // namespace pn::test
