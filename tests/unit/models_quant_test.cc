// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats bit by bit, blocks made by hand, and round trips within half a step.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "models/gguf/file.h"
#include "models/quant/dequantise.h"
#include "models/quant/half.h"
#include "tests/support/random_rows.h"

namespace {

using namespace pn::quant;

struct Block {
  std::vector<uint8_t> bytes;
  explicit Block(size_t n) : bytes(n) {}
  Block& half(size_t at, float v) {
    uint16_t bits = f32_to_f16(v);
    std::memcpy(&bytes[at], &bits, 2);
    return *this;
  }
  std::vector<float> decode(uint32_t type) const {
    const pn::gguf::TypeInfo* info = pn::gguf::type_info(type);
    REQUIRE(bytes.size() == info->block_bytes);
    std::vector<float> out(info->block);
    REQUIRE(dequantise(type, reinterpret_cast<const std::byte*>(bytes.data()), out));
    return out;
  }
};

std::vector<std::byte> encode(uint32_t type, const std::vector<float>& in) {
  const pn::gguf::TypeInfo* info = pn::gguf::type_info(type);
  std::vector<std::byte> row(in.size() / info->block * info->block_bytes);
  REQUIRE(quantise(type, in, row.data()));
  return row;
}

// Greatest error over greatest value.
double error(uint32_t type, const std::vector<float>& in) {
  std::vector<float> out(in.size());
  REQUIRE(dequantise(type, encode(type, in).data(), out));
  double worst = 0, top = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    worst = std::max(worst, std::fabs(double{in[i]} - out[i]));
    top = std::max(top, std::fabs(double{in[i]}));
  }
  return worst / top;
}

}  // namespace

TEST_CASE("all F16 values survive the way through F32; ties go to even") {
  for (uint32_t h = 0; h < 65536; ++h) {
    auto bits = static_cast<uint16_t>(h);
    float f = f16_to_f32(bits);
    if (std::isnan(f))
      CHECK(std::isnan(f16_to_f32(f32_to_f16(f))));
    else
      CHECK(f32_to_f16(f) == bits);
  }
  CHECK(f16_to_f32(0x3c00) == 1.0f);
  CHECK(f16_to_f32(0x0001) == 0x1p-24f);
  CHECK(f16_to_f32(0x7bff) == 65504.0f);
  CHECK(std::isinf(f16_to_f32(0xfc00)));
  for (uint32_t h = 0; h < 0x7bff; ++h) {  // between two neighbours, subnormal ones included
    float low = f16_to_f32(static_cast<uint16_t>(h)),
          high = f16_to_f32(static_cast<uint16_t>(h + 1));
    float middle = (low + high) / 2;
    CHECK(f32_to_f16(middle) == (h % 2 ? h + 1 : h));
    CHECK(f32_to_f16(std::nextafter(middle, low)) == h);
    CHECK(f32_to_f16(std::nextafter(middle, high)) == h + 1);
  }
  CHECK(f32_to_f16(65519.9f) == 0x7bff);
  CHECK(f32_to_f16(65520.0f) == 0x7c00);
  CHECK(f32_to_f16(1e30f) == 0x7c00);
  CHECK(f32_to_f16(-1e30f) == 0xfc00);
  CHECK(f32_to_f16(-1e-30f) == 0x8000);
}

TEST_CASE("BF16 rounds to even and keeps NaN") {
  CHECK(f32_to_bf16(1.0f) == 0x3f80);
  CHECK(bf16_to_f32(0x4049) == 3.140625f);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3f808001u)) == 0x3f81);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x7f7fffffu)) == 0x7f80);
  CHECK(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("blocks of 32 by hand") {
  Block q4(18);
  q4.half(0, 0.5f);
  q4.bytes[2] = 0xf0;   // element 0: 0 - 8, element 16: 15 - 8
  q4.bytes[17] = 0x19;  // element 15: 9 - 8, element 31: 1 - 8
  auto x = q4.decode(kQ4_0);
  CHECK(x[0] == -4.0f);
  CHECK(x[16] == 3.5f);
  CHECK(x[15] == 0.5f);
  CHECK(x[31] == -3.5f);
  CHECK(x[1] == -4.0f);

  Block q41(20);
  q41.half(0, 0.25f).half(2, -1);
  q41.bytes[4] = 0xa3;
  x = q41.decode(kQ4_1);
  CHECK(x[0] == -0.25f);
  CHECK(x[16] == 1.5f);
  CHECK(x[5] == -1.0f);

  Block q5(22);
  q5.half(0, 2);
  q5.bytes[2] = 0x01;  // fifth bit of element 0
  q5.bytes[5] = 0x80;  // of element 31
  q5.bytes[6] = 0x07;
  q5.bytes[21] = 0x40;
  x = q5.decode(kQ5_0);
  CHECK(x[0] == 14.0f);    // 2 * (7 + 16 - 16)
  CHECK(x[31] == 8.0f);    // 2 * (4 + 16 - 16)
  CHECK(x[16] == -32.0f);  // 2 * (0 - 16)

  Block q51(24);
  q51.half(0, 2).half(2, 3);
  q51.bytes[6] = 0x02;  // fifth bit of element 17
  q51.bytes[9] = 0x50;
  x = q51.decode(kQ5_1);
  CHECK(x[17] == 2 * 21 + 3.0f);
  CHECK(x[1] == 3.0f);

  Block q8(34);
  q8.half(0, -0.5f);
  q8.bytes[2] = 0x80;
  q8.bytes[33] = 0x7f;
  x = q8.decode(kQ8_0);
  CHECK(x[0] == 64.0f);
  CHECK(x[31] == -63.5f);
}

TEST_CASE("blocks of 256 by hand: scales of both halves, fifth and sixth bits") {
  Block q4(144);
  q4.half(0, 1).half(2, 0.5f);
  uint8_t* s = &q4.bytes[4];
  s[1] = 0x80 | 5;                // scale of 1 is 5; top bits 2 of scale 5
  s[5] = 0x40 | 3;                // min of 1 is 3; top bits 1 of min 5
  s[9] = 0x20 | 9;                // scale of 5: 9 + 2 * 16, min of 5: 2 + 1 * 16
  q4.bytes[16 + 7] = 0xb0;        // element 32 + 7: 11
  q4.bytes[16 + 64 + 31] = 0x40;  // element 5 * 32 + 31: 4
  auto x = q4.decode(kQ4_K);
  CHECK(x[39] == 5 * 11 - 0.5f * 3);
  CHECK(x[32] == -1.5f);
  CHECK(x[5 * 32 + 31] == 41 * 4 - 0.5f * 18);
  CHECK(x[0] == 0);

  Block q5(176);
  q5.half(0, 1).half(2, 1);
  q5.bytes[4 + 3] = 2, q5.bytes[4 + 7] = 1;  // sub-block 3
  q5.bytes[16 + 9] = 1 << 3;                 // fifth bit of element 3 * 32 + 9
  q5.bytes[48 + 32 + 9] = 0x60;
  x = q5.decode(kQ5_K);
  CHECK(x[3 * 32 + 9] == 2 * 22 - 1.0f);
  CHECK(x[3 * 32 + 8] == -1.0f);

  Block q6(210);
  q6.half(208, 0.5f);
  for (int k = 0; k < 16; ++k) q6.bytes[192 + static_cast<size_t>(k)] = 1;
  q6.bytes[192 + 13] = 0xfe;              // -2: elements 208 to 223
  q6.bytes[64 + 32 + 20] = 0xd2;          // h 1, l 20: s 1 low nibble 2, s 3 high nibble 13
  q6.bytes[128 + 32 + 20] = 0x04 | 0xc0;  // sixth bits: s 1 is 1, s 3 is 3
  x = q6.decode(kQ6_K);
  CHECK(x[128 + 32 + 20] == 0.5f * (18 - 32));
  CHECK(x[128 + 96 + 20] == 0.5f * (61 - 32));
  CHECK(x[210] == 0.5f * -2 * -32);
  CHECK(x[0] == 0.5f * -32);
}

TEST_CASE("round trips stay within about half a step of the scale") {
  std::vector<float> normal = pn::test::random_values(4096, 0, 1, 3);
  std::vector<float> shifted = pn::test::random_values(4096, 2, 0.5f, 4);
  CHECK(error(kF32, normal) == 0);
  CHECK(error(kF16, normal) < 0x1p-11);
  CHECK(error(kBF16, normal) < 0x1p-8);
  // Levels over [-max, max]: step 1 / half, half a step, and the asymmetric end costs one more
  // half.
  CHECK(error(kQ8_0, normal) < 0.6 / 127);
  CHECK(error(kQ4_0, normal) < 1.05 / 8);
  CHECK(error(kQ5_0, normal) < 1.05 / 16);
  CHECK(error(kQ4_1, shifted) < 0.6 / 15);
  CHECK(error(kQ5_1, shifted) < 0.6 / 31);
  CHECK(error(kQ4_K, normal) < 1.5 / 15);
  CHECK(error(kQ5_K, normal) < 1.5 / 31);
  CHECK(error(kQ6_K, normal) < 1.5 / 32);
}

TEST_CASE("decoded values encode to themselves: both sides agree on the layout") {
  std::vector<float> in = pn::test::random_values(2048, 0, 1, 5);
  for (uint32_t type : {kQ8_0, kQ4_0, kQ5_0, kQ6_K}) {
    CAPTURE(type);
    std::vector<float> once(in.size()), twice(in.size());
    REQUIRE(dequantise(type, encode(type, in).data(), once));
    CHECK(error(type, once) < 1e-3);
  }
}

TEST_CASE("zeros decode to zeros in every type, and odd lengths and types are refused") {
  for (uint32_t type : decodable_types()) {
    CAPTURE(type);
    std::vector<float> zeros(512, 0), out(512, 1);
    REQUIRE(dequantise(type, encode(type, zeros).data(), out));
    CHECK(out == zeros);
    CHECK(decodable(type));
  }
  std::vector<float> out(33);
  std::vector<std::byte> row(400);
  CHECK(!dequantise(kQ8_0, row.data(), out));
  CHECK(!quantise(kQ8_0, out, row.data()));
  auto refused = dequantise(39, row.data(), std::span(out).first(32));
  REQUIRE(!refused);
  CHECK(refused.error().code == pn::Code::unsupported);
  CHECK(refused.error().message.find("MXFP4") != std::string::npos);
  CHECK(!decodable(39));
}
