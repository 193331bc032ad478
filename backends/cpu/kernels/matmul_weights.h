// SPDX-License-Identifier: Apache-2.0
//
// Where a kernel's weights come from: registers unpacked from a tile, or a chunk unpacked before.
//
// Owns: unpacking. Must not do arithmetic on results: both sources give the same integers and
// factors to the same code, which is why decode and prompt agree bit by bit.
#pragma once

#include "backends/cpu/kernels/matmul_panel.h"

namespace pn::cpu {
namespace {

// ---- weights ------------------------------------------------------------------------------------

// Scales and mins, one byte each: Q4_K, Q5_K [2][8 blocks][16 rows]. Q6_K's lie unpacked in the
// tile.
struct KScales {
  alignas(64) uint8_t v[2][128];
};

// From GGUF's 12 bytes a row, kept 16 rows abreast: 4 + 4 blocks a vector.
PN_FORCE void unpack_k_scales(const uint8_t* packed, KScales& out) {
  const I six = Simd::set8(63), low = Simd::set8(15), top = Simd::set8(0x30);
  for (int p = 0; p < kParts; ++p) {
    int at = p * kVectorBytes;
    I a = Simd::load(packed + at), b = Simd::load(packed + 64 + at);
    I c = Simd::load(packed + 128 + at);
    Simd::store(out.v[0] + at, Simd::and_(a, six));
    Simd::store(out.v[1] + at, Simd::and_(b, six));
    Simd::store(out.v[0] + 64 + at, Simd::merge(Simd::and_(c, low), Simd::shift16<2>(a), top));
    Simd::store(out.v[1] + 64 + at,
                Simd::merge(Simd::and_(Simd::shift16<4>(c), low), Simd::shift16<2>(b), top));
  }
}

// A chunk's weights as they lie in the tile, unpacked on the way into a register. kOdd: block % 2.
// kAhead: memory is being streamed (decode), so fetch early.
template <uint32_t kType, bool kAhead>
struct Direct {
  using T = Traits<kType>;
  static constexpr int kChunkBytes = T::kUnitBytes * kChunkBlocks / T::kUnitBlocks;
  // The processor's own prefetch is slow to follow the steps between nibbles, high bits and scales
  // (Q6_K decode on an EPYC 7003 core: 8 GB/s without ours, 23 with). On two such cores Q8_0 had 38
  // GB/s at 2 KiB ahead, 34 at 4 KiB; for the others the two did not differ beyond the noise.
  static constexpr int kAheadBytes = kType == kQ8_0 ? 2048 : 4096;
  const uint8_t* unit;
  const uint8_t* scales = nullptr;  // of K types; mins 128 bytes on

  // `room` must live as long as the result.
  PN_FORCE Direct make(const uint8_t* unit, KScales& room) {
    if constexpr (kType == kQ4_K || kType == kQ5_K) {
      unpack_k_scales(unit + kScalesK, room);
      return {unit, room.v[0]};
    }
    return {unit, unit + kScalesK};
  }
  // Where a pair of blocks begins; types of 64-column units have one in each.
  __attribute__((always_inline)) const uint8_t* pair(int block) const {
    return unit + (T::kSuper ? T::kPairBytes : T::kUnitBytes) * (block >> 1);
  }
  template <int kOdd, int kG>
  __attribute__((always_inline)) I quants(int block, int part) const {
    const uint8_t* p = pair(block) + part * kVectorBytes;
    if constexpr (kType == kQ8_0) {
      // Too little arithmetic stands between the loads for fetches in a bunch: one for each vector.
      if (kAhead && part == 0) {
        __builtin_prefetch(p + kScaleBytes + 512 * kOdd + 64 * kG + kAheadBytes);
      }
      return Simd::flip_top(Simd::load(p + kScaleBytes + 512 * kOdd + 64 * kG));
    } else {
      p += T::kNibbles;
      I n = Simd::load(p + 64 * kG);
      n = Simd::and_(Simd::shift16<4 * kOdd>(n), Simd::set8(15));
      if constexpr (T::kFiveBits) {
        I h = Simd::load(p + kPairBytes4 + 64 * kOdd);
        n = Simd::merge(n, Simd::shift16<kG - 4>(h), Simd::set8(0x10));
      } else if constexpr (kType == kQ6_K) {
        I h = Simd::load(p + kPairBytes4 + 128 * kOdd + 64 * (kG / 4));
        n = Simd::merge(n, Simd::shift16<2 * (kG % 4) - 4>(h), Simd::set8(0x30));
      }
      return n;
    }
  }
  __attribute__((always_inline)) void prefetch(int block) const {
    if constexpr (kAhead && kType == kQ8_0) {
      __builtin_prefetch(pair(block) + kAheadBytes);  // the scales
    } else if constexpr (kAhead) {
      constexpr int kShare = kChunkBytes / kChunkBlocks;
      const uint8_t* p = unit + kAheadBytes + block * kShare;
      _Pragma("GCC unroll 16") for (int i = 0; i < (kShare + 63) / 64; ++i) {
        __builtin_prefetch(p + 64 * i);
      }
    }
  }
  template <int kOdd>  // Q4_K, Q5_K: 0 is d, 1 dmin
  __attribute__((always_inline)) F d(int block, int part) const {
    return Simd::half((T::kSuper ? unit : pair(block)) + 32 * kOdd + 2 * kLanes * part);
  }
  template <int kOdd>
  __attribute__((always_inline)) F min(int block, int part) const {
    if constexpr (T::kSuper) return Simd::float_u8(scales + 128 + 16 * block + kLanes * part);
    return Simd::half(pair(block) + kScaleBytes + 32 * kOdd + 2 * kLanes * part);
  }
  __attribute__((always_inline)) I scale16(int block, int half, int part) const {
    if constexpr (kType == kQ6_K) {
      return Simd::twice_s8(scales + 32 * block + 16 * half + kLanes * part);
    }
    return Simd::twice_u8(scales + 16 * block + kLanes * part);
  }
  __attribute__((always_inline)) I scale_pair(int block, int part) const {  // Q6_K
    const uint8_t* p = scales + 32 * block + kLanes * part;
    return Simd::pair_s8(p, p + 16);
  }
  __attribute__((always_inline)) F scale_float(int block, int half, int part) const {
    if constexpr (kType == kQ6_K) {
      return Simd::float_s8(scales + 32 * block + 16 * half + kLanes * part);
    }
    return Simd::float_u8(scales + 16 * block + kLanes * part);
  }
};

// 256 columns of a tile unpacked: what a prompt reads again for every register tile of tokens.
struct alignas(64) Unpacked {
  uint8_t q[kChunkBlocks][8][64];
  float d[kChunkBlocks][16];
  float m[kChunkBlocks][16];
  uint8_t scale[2 * kChunkBlocks][64];  // i16 pairs, or f32 where dot4 exists
  uint8_t pair[kChunkBlocks][64];       // Q6_K: i16
};

struct FromUnpacked {
  const Unpacked* u;
  __attribute__((always_inline)) void prefetch(int) const {}
  template <int, int kG>
  __attribute__((always_inline)) I quants(int block, int part) const {
    return Simd::load(u->q[block][kG] + part * kVectorBytes);
  }
  template <int>
  __attribute__((always_inline)) F d(int block, int part) const {
    return Simd::fload(u->d[block] + kLanes * part);
  }
  template <int>
  __attribute__((always_inline)) F min(int block, int part) const {
    return Simd::fload(u->m[block] + kLanes * part);
  }
  __attribute__((always_inline)) I scale16(int block, int half, int part) const {
    return Simd::load(u->scale[2 * block + half] + part * kVectorBytes);
  }
  __attribute__((always_inline)) I scale_pair(int block, int part) const {
    return Simd::load(u->pair[block] + part * kVectorBytes);
  }
  __attribute__((always_inline)) F scale_float(int block, int half, int part) const {
    return Simd::fload(reinterpret_cast<const float*>(u->scale[2 * block + half]) + kLanes * part);
  }
};

template <uint32_t kType, int kOdd, int kG>
PN_FORCE void unpack_vectors(const Direct<kType, false>& from, int block, Unpacked& u) {
  for (int p = 0; p < kParts; ++p) {
    Simd::store(u.q[block][kG] + p * kVectorBytes, from.template quants<kOdd, kG>(block, p));
  }
  if constexpr (kG < 7) unpack_vectors<kType, kOdd, kG + 1>(from, block, u);
}

template <uint32_t kType>
PN_FORCE void unpack_scales(const Direct<kType, false>& from, int block, int p, Unpacked& u) {
  for (int h = 0; h < (kType == kQ6_K ? 2 : 1); ++h) {
    uint8_t* out = u.scale[2 * block + h] + p * kVectorBytes;
    if constexpr (Simd::kDot4) {
      Simd::fstore(reinterpret_cast<float*>(out), from.scale_float(block, h, p));
    } else {
      Simd::store(out, from.scale16(block, h, p));
    }
  }
  if constexpr (kType == kQ6_K && !Simd::kDot4) {
    Simd::store(u.pair[block] + p * kVectorBytes, from.scale_pair(block, p));
  }
}

template <uint32_t kType>
__attribute__((noinline)) void unpack_chunk(const uint8_t* unit, int blocks, Unpacked& u) {
  using T = Traits<kType>;
  KScales room;
  auto from = Direct<kType, false>::make(unit, room);
  for (int b = 0; b < blocks; b += 2) {
    unpack_vectors<kType, 0, 0>(from, b, u);
    unpack_vectors<kType, 1, 0>(from, b + 1, u);
    for (int p = 0; p < kParts; ++p) {
      if (!T::kSuper || b == 0) {
        Simd::fstore(u.d[b] + kLanes * p, from.template d<0>(b, p));
        Simd::fstore(u.d[b + 1] + kLanes * p, from.template d<1>(b + 1, p));
      }
      if constexpr (T::kMins) {
        Simd::fstore(u.m[b] + kLanes * p, from.template min<0>(b, p));
        Simd::fstore(u.m[b + 1] + kLanes * p, from.template min<1>(b + 1, p));
      }
      if constexpr (T::kSuper) {
        unpack_scales(from, b, p, u);
        unpack_scales(from, b + 1, p, u);
      }
    }
  }
}

}  // namespace
}  // namespace pn::cpu
