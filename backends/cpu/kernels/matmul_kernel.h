// SPDX-License-Identifier: Apache-2.0
//
// The matrix kernels of AVX2 and newer, written once over the struct Simd of the including unit.
//
// Owns: activation panels, the register tiles, and the loops over tiles and tokens. Knows nothing
// of threads. Everything is in an unnamed namespace and no standard header with code is included:
// an inline function of this unit must never be picked by the linker for a unit of an older
// machine.
//
// The one idea: weights are u8 (or s8), activations s8 with one f32 scale a 32-column block.
// Integer sums inside a block are exact, so only the order of the float operations over blocks
// decides a result's bits, and there is one such order a type (`legacy_blocks`, `k_blocks`,
// `float_columns`). Decode runs them on weights unpacked in registers; a prompt unpacks 256 columns
// of a tile once into L1 and runs the same code for up to 64 tokens. Hence equal bits for 1 and for
// 512 tokens.
//
// i16 sums: maddubs gives pairs of u8 x s8 with |s8| <= 127. 4-bit: 2 * 15 * 127 = 3810, eight of
// them fit; 5-bit: 7874, four; 6-bit: 16002, two; Q8_0: 32512, one.
#pragma once

#include "backends/cpu/kernels/matmul_weights.h"

namespace pn::cpu {
namespace {

// ---- one block ----------------------------------------------------------------------------------

template <int kT>
struct Sums {
  I v[kT][kParts];
};
template <int kT>
struct Acc {
  F v[kT][kParts];
};

#define PN_TILE(kT)                                      \
  _Pragma("GCC unroll 8") for (int t = 0; t < (kT); ++t) \
      _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p)

// Left alone, g++ collects all products of a block before it adds any of them, and spills most; a
// sum that an empty statement has touched stays where it is written.
PN_FORCE void keep(I& v) { __asm__ volatile("" : "+v"(v)); }

// Vectors kG .. kEnd of one block added up in i16 (never overflowing: see the top).
template <int kOdd, int kG, int kEnd, int kT, class W>
PN_FORCE void add_i16(const W& w, const Tokens& x, int block, Sums<kT>& a, bool first) {
  I wv[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    wv[p] = w.template quants<kOdd, kG>(block, p);
  }
  _Pragma("GCC unroll 8") for (int t = 0; t < kT; ++t) {
    I xv = x.quants(t, block, kG);
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      I m = Simd::madd8(wv[p], xv);
      a.v[t][p] = first ? m : Simd::add16(a.v[t][p], m);
      keep(a.v[t][p]);
    }
  }
  if constexpr (kG + 1 < kEnd) add_i16<kOdd, kG + 1, kEnd>(w, x, block, a, false);
}

// Q8_0 without dot4: every product pair is widened at once.
template <int kOdd, int kG, int kT, class W>
PN_FORCE void add_signed(const W& w, const Tokens& x, int block, Sums<kT>& sum) {
  Simd::Signed wv[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    wv[p] = Simd::split_sign(w.template quants<kOdd, kG>(block, p));
  }
  _Pragma("GCC unroll 8") for (int t = 0; t < kT; ++t) {
    I xv = x.quants(t, block, kG);
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      I m = Simd::madd16(Simd::madd8_signed(wv[p], xv), Simd::set16(1));
      sum.v[t][p] = kG == 0 ? m : Simd::add32(sum.v[t][p], m);
      keep(sum.v[t][p]);
    }
  }
  if constexpr (kG < 7) add_signed<kOdd, kG + 1>(w, x, block, sum);
}

// u8 x s8 -> i32 in one instruction.
template <int kOdd, int kG, int kEnd, int kT, class W>
PN_FORCE void add_dot4(const W& w, const Tokens& x, int block, Sums<kT>& sum) {
  I wv[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    wv[p] = w.template quants<kOdd, kG>(block, p);
  }
  _Pragma("GCC unroll 8") for (int t = 0; t < kT; ++t) {
    I xv = x.quants(t, block, kG);
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      sum.v[t][p] = Simd::dot4(sum.v[t][p], wv[p], xv);
    }
  }
  if constexpr (kG + 1 < kEnd) add_dot4<kOdd, kG + 1, kEnd>(w, x, block, sum);
}

// i32 sums of a block, K types: times the block's integer scale.
template <uint32_t kType, int kOdd, int kStart, int kT, class W>
PN_FORCE void add_steps(const W& w, const Tokens& x, int block, Sums<kT>& sum) {
  using T = Traits<kType>;
  Sums<kT> a;
  add_i16<kOdd, kStart, kStart + T::kStep>(w, x, block, a, true);
  I scale[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
    scale[p] = T::kSuper ? w.scale16(block, kType == kQ6_K ? kStart / 4 : 0, p) : Simd::set16(1);
  }
  PN_TILE(kT) {
    I m = Simd::madd16(a.v[t][p], scale[p]);
    sum.v[t][p] = kStart == 0 ? m : Simd::add32(sum.v[t][p], m);
  }
  if constexpr (kStart + T::kStep < 8) add_steps<kType, kOdd, kStart + T::kStep>(w, x, block, sum);
}

// ---- the float order ----------------------------------------------------------------------------

// acc += d * scale * sum, then + min * (scale * block sum), blocks ascending.
template <uint32_t kType, int kOdd, int kT, class W>
PN_FORCE void legacy_block(const W& w, const Tokens& x, int block, Acc<kT>& acc) {
  using T = Traits<kType>;
  Sums<kT> sum;
  w.prefetch(block);
  if constexpr (Simd::kDot4) {
    PN_TILE(kT) sum.v[t][p] = T::kZero ? x.whole(t, block) : Simd::zero();
    add_dot4<kOdd, 0, 8>(w, x, block, sum);
  } else if constexpr (kType == kQ8_0) {
    add_signed<kOdd, 0>(w, x, block, sum);
  } else {
    add_steps<kType, kOdd, 0>(w, x, block, sum);
    if constexpr (T::kZero != 0) {
      PN_TILE(kT) sum.v[t][p] = Simd::add32(sum.v[t][p], x.whole(t, block));
    }
  }
  PN_TILE(kT) {
    F factor = Simd::fmul(w.template d<kOdd>(block, p), x.scale(t, block));
    acc.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), factor, acc.v[t][p]);
    if constexpr (T::kMins)
      acc.v[t][p] = Simd::fma(w.template min<kOdd>(block, p), x.sum(t, block), acc.v[t][p]);
  }
}

template <uint32_t kType, int kT, class W>
PN_FORCE void legacy_blocks(const W& w, const Tokens& x, int blocks, Acc<kT>& acc) {
  for (int b = 0; b < blocks; b += 2) {
    legacy_block<kType, 0>(w, x, b, acc);
    legacy_block<kType, 1>(w, x, b + 1, acc);
  }
}

// part += scale * (integer scale * sum), blocks ascending.
template <uint32_t kType, int kOdd, int kT, class W>
PN_FORCE void k_block(const W& w, const Tokens& x, int block, Acc<kT>& part) {
  Sums<kT> sum;
  w.prefetch(block);
  if constexpr (Simd::kDot4) {
    constexpr int kHalves = kType == kQ6_K ? 2 : 1;
    PN_TILE(kT) sum.v[t][p] = kType == kQ6_K ? x.whole(t, block) : Simd::zero();
    add_dot4<kOdd, 0, 8 / kHalves>(w, x, block, sum);
    PN_TILE(kT) {
      F factor = Simd::fmul(w.scale_float(block, 0, p), x.scale(t, block));
      part.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), factor, part.v[t][p]);
    }
    if constexpr (kType == kQ6_K) {
      PN_TILE(kT) sum.v[t][p] = x.whole(t, block, 1);
      add_dot4<kOdd, 4, 8>(w, x, block, sum);
      PN_TILE(kT) {
        F factor = Simd::fmul(w.scale_float(block, 1, p), x.scale(t, block));
        part.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), factor, part.v[t][p]);
      }
    }
  } else {
    add_steps<kType, kOdd, 0>(w, x, block, sum);
    if constexpr (kType == kQ6_K) {
      PN_TILE(kT) {
        I zero = Simd::madd16(w.scale_pair(block, p), x.whole(t, block));
        sum.v[t][p] = Simd::sub32_times32(sum.v[t][p], zero);
      }
    }
    PN_TILE(kT) {
      part.v[t][p] = Simd::fma(Simd::to_float(sum.v[t][p]), x.scale(t, block), part.v[t][p]);
    }
  }
}

template <uint32_t kType, int kT, class W>
PN_FORCE void k_blocks(const W& w, const Tokens& x, Acc<kT>& acc) {
  Acc<kT> part;
  PN_TILE(kT) part.v[t][p] = Simd::fzero();
  for (int b = 0; b < 8; b += 2) {
    k_block<kType, 0>(w, x, b, part);
    k_block<kType, 1>(w, x, b + 1, part);
  }
  PN_TILE(kT) acc.v[t][p] = Simd::fma(w.template d<0>(0, p), part.v[t][p], acc.v[t][p]);
  if constexpr (Traits<kType>::kMins) {
    PN_TILE(kT) part.v[t][p] = Simd::fzero();
    for (int b = 0; b < 8; ++b) {
      PN_TILE(kT) part.v[t][p] = Simd::fma(w.template min<0>(b, p), x.sum(t, b), part.v[t][p]);
    }
    PN_TILE(kT) acc.v[t][p] = Simd::fnma(w.template d<1>(1, p), part.v[t][p], acc.v[t][p]);
  }
}

template <uint32_t kType, int kT, class W>
PN_FORCE void all_blocks(const W& w, const Tokens& x, int blocks, Acc<kT>& acc) {
  if constexpr (Traits<kType>::kSuper) {
    k_blocks<kType>(w, x, acc);
  } else {
    legacy_blocks<kType>(w, x, blocks, acc);
  }
}

// Float weights: even and odd columns are summed apart (two chains hide the latency of fma).
template <uint32_t kType>
PN_FORCE F float_weight(const uint8_t* unit, int odd, int part) {
  if constexpr (kType == kF32) {
    return Simd::fload(reinterpret_cast<const float*>(unit + 64 * odd) + kLanes * part);
  } else if constexpr (kType == kF16) {
    return Simd::half(unit + 32 * odd + 2 * kLanes * part);
  } else {
    unit += kVectorBytes * part;
    return odd ? Simd::bf16_odd(unit) : Simd::bf16_even(unit);
  }
}

template <uint32_t kType, int kT>
PN_FORCE void add_column(const uint8_t* w, int odd, const float* x, Acc<kT>& acc) {
  F v[kParts];
  _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) v[p] = float_weight<kType>(w, odd, p);
  _Pragma("GCC unroll 8") for (int t = 0; t < kT; ++t) {
    F xv = Simd::fbroadcast(x + t * kChunkCols);
    _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
      acc.v[t][p] = Simd::fma(v[p], xv, acc.v[t][p]);
    }
  }
}

// `cols` columns of a chunk, kT tokens.
template <uint32_t kType, int kT>
PN_FORCE void float_columns(const uint8_t* w, const uint8_t* record, int cols, Acc<kT>& even,
                            Acc<kT>& odd) {
  constexpr int kBytes = kType == kF32 ? 128 : 64;
  const float* x = reinterpret_cast<const float*>(record);
  // A last odd column has no partner in a tile of F32; the others pad with zeros.
  int pairs = kType == kF32 ? cols / 2 : (cols + 1) / 2;
  for (int i = 0; i < pairs; ++i, w += kBytes, x += 2) {
    add_column<kType>(w, 0, x, even);
    add_column<kType>(w, 1, x + 1, odd);
  }
  if (kType == kF32 && cols % 2) add_column<kType>(w, 0, x, even);
}

// 256 columns of F16 or BF16 as F32.
template <uint32_t kType>
__attribute__((noinline)) void widen_columns(const uint8_t* w, int cols, float (*out)[16]) {
  for (int c = 0; c < cols; c += 2, w += 64) {
    for (int p = 0; p < kParts; ++p) {
      Simd::fstore(out[c] + kLanes * p, float_weight<kType>(w, 0, p));
      Simd::fstore(out[c + 1] + kLanes * p, float_weight<kType>(w, 1, p));
    }
  }
}

// ---- loops over tiles and tokens ----------------------------------------------------------------

constexpr int kBlockTokens = 64;  // tokens that share one unpacking

struct Job {
  const uint8_t* tiles;
  const uint8_t* panel;
  float* y;
  int64_t tile_bytes, rows, cols, tokens, y_stride, first, last;
};

template <int kT>
PN_FORCE void write_out(const Job& job, int64_t tile, int64_t token, const Acc<kT>& acc) {
  int64_t left = job.rows - tile * kTileRows;
  for (int t = 0; t < kT; ++t) {
    float* y = job.y + (token + t) * job.y_stride + tile * kTileRows;
    if (left >= kTileRows) {
      for (int p = 0; p < kParts; ++p) Simd::fstore(y + kLanes * p, acc.v[t][p]);
    } else {
      alignas(64) float all[kTileRows];
      for (int p = 0; p < kParts; ++p) Simd::fstore(all + kLanes * p, acc.v[t][p]);
      for (int64_t r = 0; r < left; ++r) y[r] = all[r];
    }
  }
}

template <uint32_t kType>
struct Chunks {
  using T = Traits<kType>;
  static constexpr int kRecord = T::kFloat ? kFloatRecordBytes : kRecordBytes;
  static constexpr int kBytes =
      T::kFloat ? (kType == kF32 ? 64 : 32) * kChunkCols : Direct<kType, false>::kChunkBytes;
};

PN_FORCE int chunk_cols(const Job& job, int64_t c) {
  int64_t left = job.cols - c * kChunkCols;
  return int(left < kChunkCols ? left : kChunkCols);
}

// A whole tile for kT tokens, weights straight from memory.
template <uint32_t kType, int kT>
__attribute__((noinline)) void direct_tile(const Job& job, int64_t tile, int64_t token) {
  using C = Chunks<kType>;
  const uint8_t* w = job.tiles + tile * job.tile_bytes;
  const uint8_t* x = job.panel + token * C::kRecord;
  const int64_t chunks = chunk_count(job.cols);
  Acc<kT> acc;
  PN_TILE(kT) acc.v[t][p] = Simd::fzero();
  if constexpr (Traits<kType>::kFloat) {
    Acc<kT> odd = acc;
    for (int64_t c = 0; c < chunks; ++c, w += C::kBytes, x += job.tokens * C::kRecord) {
      float_columns<kType>(w, x, chunk_cols(job, c), acc, odd);
    }
    PN_TILE(kT) acc.v[t][p] = Simd::fadd(acc.v[t][p], odd.v[t][p]);
  } else {
    for (int64_t c = 0; c < chunks; ++c, w += C::kBytes, x += job.tokens * C::kRecord) {
      KScales room;
      auto weights = Direct<kType, true>::make(w, room);
      all_blocks<kType>(weights, Tokens{x}, chunk_blocks(job.cols, c), acc);
    }
  }
  write_out(job, tile, token, acc);
}

// What a token's row of a tile has come to between chunks: float types keep two sums.
struct alignas(64) Rest {
  float v[kBlockTokens][2][16];
};

template <int kT>
PN_FORCE void load_acc(const Rest& rest, int64_t token, int odd, Acc<kT>& acc) {
  PN_TILE(kT) acc.v[t][p] = Simd::fload(rest.v[token + t][odd] + kLanes * p);
}
template <int kT>
PN_FORCE void store_acc(Rest& rest, int64_t token, int odd, const Acc<kT>& acc) {
  PN_TILE(kT) Simd::fstore(rest.v[token + t][odd] + kLanes * p, acc.v[t][p]);
}

// kT tokens over a chunk.
template <uint32_t kType, int kT, class W>
__attribute__((noinline)) void chunk_tokens(const W& w, const uint8_t* x, int blocks, int64_t token,
                                            Rest& rest) {
  Acc<kT> acc;
  load_acc(rest, token, 0, acc);
  all_blocks<kType>(w, Tokens{x}, blocks, acc);
  store_acc(rest, token, 0, acc);
}

template <uint32_t kType, int kT>
__attribute__((noinline)) void chunk_tokens_float(const uint8_t* w, const uint8_t* x, int cols,
                                                  int64_t token, Rest& rest) {
  Acc<kT> even, odd;
  load_acc(rest, token, 0, even);
  load_acc(rest, token, 1, odd);
  float_columns<kType>(w, x, cols, even, odd);
  store_acc(rest, token, 0, even);
  store_acc(rest, token, 1, odd);
}

// f<register tile>(token) over [from, n): the largest tiles first.
template <int kT, class Fn>
PN_FORCE void token_groups(int64_t from, int64_t n, Fn f) {
  for (; from + kT <= n; from += kT) f.template operator()<kT>(from);
  if constexpr (kT > 1) token_groups<kT / 2>(from, n, f);
}

// Chunk c of a tile for tokens [0, n) of x.
template <uint32_t kType>
PN_FORCE void run_chunk(const Job& job, const uint8_t* w, const uint8_t* x, int64_t c, int64_t n,
                        Rest& rest) {
  using C = Chunks<kType>;
  if constexpr (kType == kF32) {
    token_groups<Simd::kTokensFloat>(0, n, [&]<int kN>(int64_t t) {
      chunk_tokens_float<kF32, kN>(w, x + t * C::kRecord, chunk_cols(job, c), t, rest);
    });
  } else if constexpr (C::T::kFloat) {
    alignas(64) float wide[kChunkCols][16];
    widen_columns<kType>(w, chunk_cols(job, c), wide);
    token_groups<Simd::kTokensFloat>(0, n, [&]<int kN>(int64_t t) {
      chunk_tokens_float<kF32, kN>(reinterpret_cast<const uint8_t*>(wide), x + t * C::kRecord,
                                   chunk_cols(job, c), t, rest);
    });
  } else if constexpr (kType == kQ8_0) {  // nothing to unpack
    token_groups<Simd::kTokens>(0, n, [&]<int kN>(int64_t t) {
      chunk_tokens<kType, kN>(Direct<kType, false>{w}, x + t * C::kRecord,
                              chunk_blocks(job.cols, c), t, rest);
    });
  } else {
    Unpacked u;
    int blocks = chunk_blocks(job.cols, c);
    unpack_chunk<kType>(w, blocks, u);
    token_groups<Simd::kTokens>(0, n, [&]<int kN>(int64_t t) {
      chunk_tokens<kType, kN>(FromUnpacked{&u}, x + t * C::kRecord, blocks, t, rest);
    });
  }
}

// One tile for tokens [token, token + n), n <= kBlockTokens.
template <uint32_t kType>
void chunked_tile(const Job& job, int64_t tile, int64_t token, int64_t n) {
  using C = Chunks<kType>;
  Rest rest;
  const uint8_t* w = job.tiles + tile * job.tile_bytes;
  const uint8_t* x = job.panel + token * C::kRecord;
  __builtin_memset(&rest, 0, size_t(n) * sizeof(rest.v[0]));
  for (int64_t c = 0; c < chunk_count(job.cols); ++c) {
    run_chunk<kType>(job, w, x, c, n, rest);
    w += C::kBytes;
    x += job.tokens * C::kRecord;
  }
  for (int64_t t = 0; t < n; ++t) {
    Acc<1> acc, odd;
    load_acc(rest, t, 0, acc);
    load_acc(rest, t, 1, odd);
    if constexpr (C::T::kFloat) {
      _Pragma("GCC unroll 2") for (int p = 0; p < kParts; ++p) {
        acc.v[0][p] = Simd::fadd(acc.v[0][p], odd.v[0][p]);
      }
    }
    write_out(job, tile, token + t, acc);
  }
}

template <uint32_t kType>
void run(const Job& job) {
  using T = Traits<kType>;
  if (job.tokens < T::kChunkedTokens) {
    constexpr int kT = T::kFloat ? Simd::kTokensFloat : Simd::kTokens;
    for (int64_t tile = job.first; tile < job.last; ++tile) {
      token_groups<kT>(0, job.tokens,
                       [&]<int kN>(int64_t token) { direct_tile<kType, kN>(job, tile, token); });
    }
    return;
  }
  for (int64_t token = 0; token < job.tokens; token += kBlockTokens) {
    int64_t n = job.tokens - token < kBlockTokens ? job.tokens - token : kBlockTokens;
    for (int64_t tile = job.first; tile < job.last; ++tile) {
      chunked_tile<kType>(job, tile, token, n);
    }
  }
}

#define PN_TYPES(X) \
  X(kF32) X(kF16) X(kBF16) X(kQ8_0) X(kQ4_0) X(kQ4_1) X(kQ5_0) X(kQ5_1) X(kQ4_K) X(kQ5_K) X(kQ6_K)

void prepare(uint32_t type, const PanelSource& source, std::byte* panel, int64_t first,
             int64_t last) {
  auto* out = reinterpret_cast<uint8_t*>(panel);
  switch (type) {
#define PN_CASE(name)                             \
  case name:                                      \
    prepare_rows<name>(source, out, first, last); \
    break;
    PN_TYPES(PN_CASE)
#undef PN_CASE
    default:
      break;
  }
}

void matmul(const Matrix& w, const std::byte* panel, int64_t tokens, float* y, int64_t y_stride,
            int64_t first, int64_t last) {
  Job job{reinterpret_cast<const uint8_t*>(w.tiles),
          reinterpret_cast<const uint8_t*>(panel),
          y,
          int64_t(tile_bytes(w.type, w.cols)),
          w.rows,
          w.cols,
          tokens,
          y_stride,
          first,
          last};
  switch (w.type) {
#define PN_CASE(name) \
  case name:          \
    run<name>(job);   \
    break;
    PN_TYPES(PN_CASE)
#undef PN_CASE
    default:
      break;
  }
}

}  // namespace
}  // namespace pn::cpu
