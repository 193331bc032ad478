// SPDX-License-Identifier: Apache-2.0
//
// Block decoding by the format's formulas.
//
// Owns one function a type, block in, floats out. Knows no tensor. The one idea: products are made
// in the order of the formulas, so that the result is the same float everywhere.
#include "models/quant/dequantise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "models/gguf/file.h"
#include "models/gguf/text.h"
#include "models/quant/blocks.h"
#include "models/quant/half.h"

namespace pn::quant {
namespace {

constexpr uint32_t kTypes[] = {kF32,  kF16,  kQ4_0, kQ4_1, kQ5_0, kQ5_1,
                               kQ8_0, kQ4_K, kQ5_K, kQ6_K, kBF16};

float half_at(const uint8_t* p) { return f16_to_f32(load<uint16_t>(p)); }

// Element e of 32 packed nibbles: the low half of byte e, then the high halves.
int nibble(const uint8_t* q, int e) { return e < 16 ? q[e] & 15 : q[e - 16] >> 4; }

int fifth(uint32_t high, int e) { return static_cast<int>(high >> e & 1u) << 4; }

void f32(const uint8_t* b, float* x) { *x = load<float>(b); }
void f16(const uint8_t* b, float* x) { *x = half_at(b); }
void bf16(const uint8_t* b, float* x) { *x = bf16_to_f32(load<uint16_t>(b)); }

void q4_0(const uint8_t* b, float* x) {
  float d = half_at(b);
  for (int e = 0; e < 32; ++e) x[e] = d * static_cast<float>(nibble(b + 2, e) - 8);
}

void q4_1(const uint8_t* b, float* x) {
  float d = half_at(b), m = half_at(b + 2);
  for (int e = 0; e < 32; ++e) x[e] = d * static_cast<float>(nibble(b + 4, e)) + m;
}

void q5_0(const uint8_t* b, float* x) {
  float d = half_at(b);
  auto high = load<uint32_t>(b + 2);
  for (int e = 0; e < 32; ++e)
    x[e] = d * static_cast<float>((nibble(b + 6, e) | fifth(high, e)) - 16);
}

void q5_1(const uint8_t* b, float* x) {
  float d = half_at(b), m = half_at(b + 2);
  auto high = load<uint32_t>(b + 4);
  for (int e = 0; e < 32; ++e) x[e] = d * static_cast<float>(nibble(b + 8, e) | fifth(high, e)) + m;
}

void q8_0(const uint8_t* b, float* x) {
  float d = half_at(b);
  for (int e = 0; e < 32; ++e) x[e] = d * static_cast<float>(static_cast<int8_t>(b[2 + e]));
}

void q4_k(const uint8_t* b, float* x) {
  float d = half_at(b), least = half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    auto [scale, min] = k_scale(b + 4, j);
    float dc = d * static_cast<float>(scale), dm = least * static_cast<float>(min);
    const uint8_t* q = b + 16 + 32 * (j / 2);
    int down = j % 2 * 4;
    for (int l = 0; l < 32; ++l) x[32 * j + l] = dc * static_cast<float>(q[l] >> down & 15) - dm;
  }
}

void q5_k(const uint8_t* b, float* x) {
  float d = half_at(b), least = half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    auto [scale, min] = k_scale(b + 4, j);
    float dc = d * static_cast<float>(scale), dm = least * static_cast<float>(min);
    const uint8_t *high = b + 16, *q = b + 48 + 32 * (j / 2);
    int down = j % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      int v = (q[l] >> down & 15) + 16 * (high[l] >> j & 1);
      x[32 * j + l] = dc * static_cast<float>(v) - dm;
    }
  }
}

void q6_k(const uint8_t* b, float* x) {
  float d = half_at(b + 208);
  for (int k = 0; k < 16; ++k) {  // 16 elements share a scale, a nibble half and a pair of bits
    int h = k / 8, s = k % 8 / 2, l = k % 2 * 16;
    const uint8_t *low = b + 64 * h + l + 32 * (s & 1), *high = b + 128 + 32 * h + l;
    float dc = d * static_cast<float>(static_cast<int8_t>(b[192 + k]));
    int down = s < 2 ? 0 : 4;
    for (int i = 0; i < 16; ++i) {
      int v = ((low[i] >> down & 15) | (high[i] >> 2 * s & 3) << 4) - 32;
      x[16 * k + i] = dc * static_cast<float>(v);
    }
  }
}

using Decode = void (*)(const uint8_t* block, float* out);

Decode decoder(uint32_t type) {
  switch (type) {
    case kF32:
      return f32;
    case kF16:
      return f16;
    case kBF16:
      return bf16;
    case kQ4_0:
      return q4_0;
    case kQ4_1:
      return q4_1;
    case kQ5_0:
      return q5_0;
    case kQ5_1:
      return q5_1;
    case kQ8_0:
      return q8_0;
    case kQ4_K:
      return q4_k;
    case kQ5_K:
      return q5_k;
    case kQ6_K:
      return q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

std::span<const uint32_t> decodable_types() { return kTypes; }

bool decodable(uint32_t type) { return decoder(type) != nullptr; }

Error undecodable(uint32_t type, const std::string& tensor) {
  const gguf::TypeInfo* info = gguf::type_info(type);
  std::string names;
  for (uint32_t t : kTypes)
    names += std::string(names.empty() ? "" : " ") + gguf::type_info(t)->name;
  return {Code::unsupported,
          fmt::format("tensor {} has type {}, which GGUF knows and this build cannot decode (it "
                      "decodes {}): take the model in one of these types",
                      gguf::quoted(tensor), info ? info->name : std::to_string(type), names),
          tensor};
}

Result<void> dequantise(uint32_t type, const std::byte* row, std::span<float> out) {
  Decode decode = decoder(type);
  if (decode == nullptr) return tl::make_unexpected(undecodable(type, "(row)"));
  const gguf::TypeInfo* info = gguf::type_info(type);
  if (out.size() % info->block != 0)
    return fail(Code::invalid, fmt::format("{} elements are no whole blocks of {} ({} each)",
                                           out.size(), info->name, info->block));
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  for (size_t at = 0; at < out.size(); at += info->block, block += info->block_bytes)
    decode(block, out.data() + at);
  return {};
}

}  // namespace pn::quant
