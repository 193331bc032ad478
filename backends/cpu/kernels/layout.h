// SPDX-License-Identifier: Apache-2.0
//
// Where each byte of a tile and of an activation panel lies. Internal to the kernels.
//
// Owns: offsets and sizes. Must not know how anything is computed, and must hold constants only: it
// is included by translation units of several instruction sets.
// The one idea: a tile is a chain of units; a unit is 16 rows x unit_cols columns with everything
// that they need. Inside, quants lie as 64-byte vectors of 16 rows x 4 columns: byte 4 * row + i of
// vector g is column 4 * g + i, which serves one 512-bit, two 256-bit or four 128-bit registers.
//
//   F32    1 column    f32[16]
//   F16    2 columns   f16[2][16]
//   BF16   2 columns   bf16[16][2]
//   Q8_0   64          d f16[2][16], q [2 blocks][8 vectors]
//   Q4_0   64          d f16[2][16], a pair
//   Q4_1   64          d f16[2][16], m f16[2][16], a pair
//   Q5_0   64          as Q4_0          Q5_1   64   as Q4_1
//   Q4_K   256         d f16[16], dmin f16[16], scales and mins u8[12][16], 4 pairs
//   Q5_K   256         as Q4_K
//   Q6_K   256         d f16[16], 32 bytes unused, scales i8[16][16], 4 pairs
//
// Scales and mins of Q4_K and Q5_K stay packed as in GGUF, 6 bits each, byte i of all rows
// together: unpacking a unit's 256 takes some 20 instructions, and 64 bytes of 2368 are not read.
//
// A pair is two blocks of 32 columns: nibbles [8 vectors], block 0 low, block 1 high; then, for
//   5 bits  bit 4 [2 blocks]: bit g of byte p belongs to byte p of vector g
//   6 bits  bits 4-5 [2 blocks][2]: bits 2 * (g % 4) of byte p of half g / 4 belong to vector g
//
// An odd last block of a 64-column unit is followed by one of zeros.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pn::cpu::layout {

enum Type : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct Geometry {
  uint32_t type;
  int32_t block_cols;  // of the GGUF block
  int32_t block_bytes;
  int32_t unit_cols;   // of ours
  int32_t unit_bytes;  // 16 rows
};

inline constexpr Geometry kGeometry[] = {
    {kF32, 1, 4, 1, 64},          {kF16, 1, 2, 2, 64},          {kBF16, 1, 2, 2, 64},
    {kQ4_0, 32, 18, 64, 576},     {kQ4_1, 32, 20, 64, 640},     {kQ5_0, 32, 22, 64, 704},
    {kQ5_1, 32, 24, 64, 768},     {kQ8_0, 32, 34, 64, 1088},    {kQ4_K, 256, 144, 256, 2304},
    {kQ5_K, 256, 176, 256, 2816}, {kQ6_K, 256, 210, 256, 3392},
};

// Offsets inside a unit.
inline constexpr int32_t kScaleBytes = 64;  // d (and m) of a 64-column unit: f16[2][16]
inline constexpr int32_t kNibblesQ4_0 = 64;
inline constexpr int32_t kNibblesQ4_1 = 128;
inline constexpr int32_t kScalesK = 64;  // also Q6_K
inline constexpr int32_t kNibblesK = 256;
inline constexpr int32_t kNibblesQ6_K = 320;
inline constexpr int32_t kPairBytes4 = 512;  // two blocks: nibbles,
inline constexpr int32_t kPairBytes5 = 640;  // with their bit 4
inline constexpr int32_t kPairBytes6 = 768;  // or bits 4-5 behind them

}  // namespace pn::cpu::layout
