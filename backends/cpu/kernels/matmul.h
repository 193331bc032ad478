// SPDX-License-Identifier: Apache-2.0
//
// Weight matrices in their tiled layout, and the product of one with a few or many rows.
//
// Owns: the layout of every weight type (one layout a type, the same for every instruction set),
// the panel that activations are prepared into, and the kernels picked at run time. Knows nothing
// of plans, queues or threads: callers split tiles and tokens between threads as they like. The one
// idea: a tile is 16 output rows over all columns, read front to back once, so decode streams
// memory and a prompt reuses each tile from cache for many rows.
//
// Batch invariance: the bits of y[t][row] depend on x[t] and that row only, never on the number of
// tokens, on the tile range of a call, or on the thread that ran it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pn::cpu {

inline constexpr int64_t kTileRows = 16;

enum class Isa : uint32_t { baseline, avx2, avx512, avx512vnni };

// One weight matrix (or one expert of a stack): tile t holds rows [16t, 16t+16), zero rows at the
// end.
struct Matrix {
  uint32_t type = 0;  // GGUF type number: 0 F32, 1 F16, 2 Q4_0, 3 Q4_1, 6 Q5_0, 7 Q5_1, 8 Q8_0,
                      // 12 Q4_K, 13 Q5_K, 14 Q6_K, 30 BF16
  int64_t rows = 0;   // outputs
  int64_t cols = 0;   // inputs
  const std::byte* tiles = nullptr;  // tile_count(rows) * tile_bytes(type, cols), 64-byte aligned
};

bool type_supported(uint32_t type);
int64_t tile_count(int64_t rows);
uint64_t tile_bytes(uint32_t type, int64_t cols);        // a multiple of 64
uint64_t source_row_bytes(uint32_t type, int64_t cols);  // GGUF's bytes of one row

// Tiles [first, first + count) from GGUF rows. `source` is the whole tensor's first byte (any
// alignment), `out` the first byte of tile `first`. Pure, any thread.
void convert_tiles(const Matrix& shape, const std::byte* source, std::byte* out, int64_t first,
                   int64_t count);
// One row back to f32: out (cols). Exact GGUF dequantisation, the same bits for every isa.
void decode_row(const Matrix& w, int64_t row, float* out);

// Rows of activations as the kernels of one weight type read them.
uint64_t panel_bytes(uint32_t type, int64_t cols, int64_t tokens);  // a multiple of 64
struct PanelSource {
  const float* x = nullptr;  // (tokens, cols) rows `stride` floats apart
  int64_t stride = 0;
  int64_t cols = 0;
  int64_t tokens = 0;
};

// The kernels of one instruction set. All functions are thread-safe and allocate nothing.
struct MatmulKernels {
  // Prepares tokens [first, last) of the source into the panel (64-byte aligned, panel_bytes long).
  void (*prepare)(uint32_t type, const PanelSource& source, std::byte* panel, int64_t first,
                  int64_t last);
  // y[t][16*tile + r] for tiles [first, last) and all `tokens` of the panel, which are those of the
  // source that it was prepared from (a token's place depends on it); y (tokens, rows), rows
  // `y_stride` floats apart. Rows past w.rows are not written. F32 accumulate.
  void (*matmul)(const Matrix& w, const std::byte* panel, int64_t tokens, float* y,
                 int64_t y_stride, int64_t first, int64_t last);
};

bool isa_available(Isa isa);  // by cpuid and the operating system's saved state
Isa best_isa();
const char* isa_name(Isa isa);  // "baseline", "avx2", "avx512", "avx512vnni"
const MatmulKernels& matmul_kernels(Isa isa);
// The oracle: weights decoded to f32, one f32 dot in a fixed order (column 0 upwards, 8 partial
// sums combined pairwise), no contraction; the same bits on every machine. Panel: plain f32 rows.
const MatmulKernels& reference_matmul();

}  // namespace pn::cpu
