// SPDX-License-Identifier: Apache-2.0
//
// What matrix ops share: rows made into panels (through a folded norm), and the columns that a
// thread's tiles wrote finished with scale and bias.
//
// Owns no data. The one idea: for one or two rows each thread prepares a panel of its own, because
// norming and packing 2048 floats (1 us) costs less than a barrier at which one thread may be late;
// with more rows they share the work and one panel.
#pragma once

#include "backends/cpu/ops.h"

namespace pn::cpu {

inline constexpr int64_t kPrivateRows = 2;
inline constexpr int64_t kNormBlock = 8;  // rows normed at a time before they are packed

// One row through a norm (RMS, LAYER, L2); w and bias (n) or nullptr.
struct NormRow {
  uint32_t kind = PN_NORM_RMS;
  float eps = 0;
  const float* w = nullptr;
  const float* bias = nullptr;
  int64_t n = 0;
};
void norm_row(const VectorKernels& vectors, const NormRow& norm, const float* x, float* out);
NormRow norm_of(const Run& run, uint16_t weight, const pn_op_norm& params, int64_t n);

class Panels {
 public:
  // weights: those that read the rows (PN_NO16 skipped). slot: where the rows come from when it is
  // a slot, so that a norm folded into it is applied; PN_NO16 for rows of the op's own.
  void plan(Builder& b, uint16_t slot, const uint16_t* weights, uint32_t count, int64_t rows_max);

  // Where run() put them: the panel for a weight type.
  struct Made {
    const std::byte* panel[4] = {};
    const uint32_t* types = nullptr;
    const std::byte* of(uint32_t type) const {
      for (uint32_t i = 0; i < 4; ++i)
        if (panel[i] != nullptr && types[i] == type) return panel[i];
      return nullptr;
    }
  };
  // Every thread calls it; afterwards each sees panels of all n rows.
  Made run(const Run& run, uint32_t thread, const Rows& rows, int64_t n) const;
  // The same for the slot given to plan().
  Made run(const Run& run, uint32_t thread, int64_t n) const {
    return this->run(run, thread, run.slot(source_), n);
  }
  // One row of the slot, normed; in the thread's own buffer, valid until its next call here.
  const float* row(const Run& run, uint32_t thread, int64_t i) const;

 private:
  void fill(const Run& run, uint32_t thread, const Rows& rows, const PanelSource& shape,
            std::byte* const* panels, Range part) const;

  uint16_t source_ = PN_NO16;
  FoldedNorm norm_;
  int64_t cols_ = 0;
  uint32_t type_count_ = 0;
  uint32_t types_[4] = {};
  uint64_t shared_[4] = {};        // work offsets
  uint64_t private_[4] = {};       // of thread 0
  uint64_t private_step_[4] = {};  // to the next thread's
  uint64_t buffer_ = 0;            // kNormBlock rows a thread
  uint64_t buffer_step_ = 0;
};

// y = scale * y + bias over rows [first, last) of the weight, for n rows of y.
struct Columns {
  float* y = nullptr;  // (n, stride); column c is output row c of the weight
  int64_t stride = 0;
  int64_t n = 0;
  int64_t first = 0, last = 0;
};
void finish_columns(const Run& run, const Weight& w, uint64_t expert, const Columns& columns);

// The tiles of a matrix that a thread has, as output rows.
Range columns_of(const Range& tiles, int64_t rows);

// The rows [first_row, first_row + rows) of a matrix, first_row a multiple of 16.
Matrix rows_of(const Matrix& w, int64_t first_row, int64_t rows);

float activate(uint32_t activation, float x);
// gate = act(gate) * up, over n values. up nullptr: 1. False kinds were refused at build.
struct Activation {
  uint32_t kind = PN_ACT_SILU;
  float limit = 0;
  float alpha = 0;
};
bool activation_known(uint32_t kind);
void gate_rows(const VectorKernels& vectors, const Activation& act, const float* up, int64_t n,
               float* gate);

}  // namespace pn::cpu
