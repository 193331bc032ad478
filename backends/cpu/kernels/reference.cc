// SPDX-License-Identifier: Apache-2.0
//
// The oracle of the matrix kernels: plain f32 arithmetic in a written order.
//
// Owns: reference_matmul(). Must not share arithmetic with the kernels it judges; compiled for the
// oldest machine without contraction, so that its bits are the same on every machine.
// The one idea: column k goes to partial sum k % 8, columns ascending; the sums combine pairwise,
// ((0+1)+(2+3)) + ((4+5)+(6+7)).
#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/tile.h"

namespace pn::cpu {
namespace {

constexpr int64_t kSpan = 256;   // columns decoded at a time
constexpr int64_t kTokens = 64;  // tokens that share them

void prepare(uint32_t, const PanelSource& source, std::byte* panel, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; ++t) {
    std::memcpy(panel + t * panel_stride_bytes(source.cols), source.x + t * source.stride,
                size_t(source.cols) * sizeof(float));
  }
}

void add_span(const float* w, const float* x, int64_t n, float (&sums)[8]) {
  for (int64_t k = 0; k < n; ++k) sums[k % 8] += w[k] * x[k];  // kSpan is a multiple of 8
}

float combine(const float (&s)[8]) {
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

struct Output {
  float* y;
  int64_t stride;
};

void one_row(const Matrix& w, int64_t row, const std::byte* panel, int64_t tokens, Output out) {
  const uint64_t stride = panel_stride_bytes(w.cols);
  float sums[kTokens][8] = {};
  float weights[kSpan];
  for (int64_t k = 0; k < w.cols; k += kSpan) {
    int64_t n = std::min(kSpan, w.cols - k);
    decode_span(w, row, {k, n}, weights);
    for (int64_t t = 0; t < tokens; ++t) {
      add_span(weights, reinterpret_cast<const float*>(panel + t * stride) + k, n, sums[t]);
    }
  }
  for (int64_t t = 0; t < tokens; ++t) out.y[t * out.stride + row] = combine(sums[t]);
}

void matmul(const Matrix& w, const std::byte* panel, int64_t tokens, float* y, int64_t y_stride,
            int64_t first, int64_t last) {
  int64_t end = std::min(last * kTileRows, w.rows);
  for (int64_t t = 0; t < tokens; t += kTokens) {
    for (int64_t row = first * kTileRows; row < end; ++row) {
      one_row(w, row, panel + t * panel_stride_bytes(w.cols), std::min(kTokens, tokens - t),
              {y + t * y_stride, y_stride});
    }
  }
}

const MatmulKernels kReference = {prepare, matmul};

}  // namespace

const MatmulKernels& reference_matmul() { return kReference; }

}  // namespace pn::cpu
