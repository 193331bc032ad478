// SPDX-License-Identifier: Apache-2.0
//
// What the kernels' translation units share beside the public header: panel geometry, tables.
//
// Owns: the size of a panel row and the names of each instruction set's table. Like layout.h it
// must stay free of anything that could emit code into a shared symbol.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/layout.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/vector.h"

namespace pn::cpu {

const layout::Geometry* find_geometry(uint32_t type);

struct Span {
  int64_t first = 0;
  int64_t count = 0;
};
// Columns [first, first + count) of a row; a multiple of 32 each for quantised types.
void decode_span(const Matrix& w, int64_t row, Span span, float* out);

// Room for a row of a panel: its columns as f32, rounded up to 256. The plain panels (baseline,
// reference) use it as their stride; the odd number of cache lines keeps equal columns of many
// tokens from falling into few cache sets.
static constexpr uint64_t panel_stride_bytes(int64_t cols) {
  uint64_t lines = (uint64_t(cols) + 255) / 256 * 16;
  return (lines | 1) * 64;
}

extern const MatmulKernels kMatmulBaseline, kMatmulAvx2, kMatmulAvx512, kMatmulAvx512Vnni;
extern const VectorKernels kVectorBaseline, kVectorAvx2, kVectorAvx512;

}  // namespace pn::cpu
