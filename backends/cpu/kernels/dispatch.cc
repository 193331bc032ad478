// SPDX-License-Identifier: Apache-2.0
//
// Which instruction sets this machine may use, and the kernel tables of each.
//
// Owns: the question to cpuid and xgetbv. Knows nothing of the kernels but their tables.
// The one idea: an instruction set counts only if the processor has all of its parts and the
// operating system saves the registers that they use.
#include <cpuid.h>

#include <initializer_list>

#include "backends/cpu/kernels/tile.h"

namespace pn::cpu {
namespace {

struct Features {
  bool avx2 = false, avx512 = false, vnni = false;
};

bool bit(uint32_t word, int n) { return word >> n & 1; }

uint64_t saved_state() {  // XCR0, only asked where OSXSAVE is set
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

Features ask() {
  Features f;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  bool fma = bit(c, 12), osxsave = bit(c, 27), avx = bit(c, 28), f16c = bit(c, 29);
  if (!osxsave || !avx) return f;
  uint64_t state = saved_state();
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6;
  if ((state & kYmm) != kYmm || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  f.avx2 = fma && f16c && bit(b, 5) && bit(b, 8);                    // AVX2, BMI2
  bool wide = bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);  // F, DQ, BW, VL
  f.avx512 = f.avx2 && wide && (state & kZmm) == kZmm;
  bool vnni = bit(c, 11);
  uint32_t a1 = 0, b1, c1, d1;
  if (a >= 1) __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
  f.vnni = f.avx512 && vnni && bit(a1, 5);  // VNNI, BF16
  return f;
}

const Features& features() {
  static const Features f = ask();
  return f;
}

}  // namespace

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return features().avx2;
    case Isa::avx512:
      return features().avx512;
    case Isa::avx512vnni:
      return features().vnni;
  }
  return false;
}

Isa best_isa() {
  for (Isa isa : {Isa::avx512vnni, Isa::avx512, Isa::avx2}) {
    if (isa_available(isa)) return isa;
  }
  return Isa::baseline;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512vnni:
      return "avx512vnni";
  }
  return "unknown";
}

const MatmulKernels& matmul_kernels(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      break;
    case Isa::avx2:
      return kMatmulAvx2;
    case Isa::avx512:
      return kMatmulAvx512;
    case Isa::avx512vnni:
      return kMatmulAvx512Vnni;
  }
  return kMatmulBaseline;
}

const VectorKernels& vector_kernels(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      break;
    case Isa::avx2:
      return kVectorAvx2;
    case Isa::avx512:
    case Isa::avx512vnni:
      return kVectorAvx512;
  }
  return kVectorBaseline;
}

}  // namespace pn::cpu
