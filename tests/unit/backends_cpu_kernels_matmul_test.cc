// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of every instruction set this machine has: close to exact arithmetic, the same
// bits however tokens and tiles are split, nothing written outside.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/unit/backends_cpu_kernels_data.h"

namespace pn::cpu::test {
namespace {

constexpr float kUntouched = 1234.5f;

struct Case {
  Tiled w;
  std::vector<float> x;  // (tokens, cols)
  int64_t tokens = 0;
};

Case make_case(const TypeFacts& f, int64_t rows, int64_t cols, int64_t tokens) {
  Random random{uint64_t(f.type * 1000 + rows + cols)};
  Case c;
  auto source = random_rows(f, rows, cols, random);
  c.w = convert(f, rows, cols, source.data());
  c.x = normal_rows(tokens * cols, random);
  c.tokens = tokens;
  return c;
}

// Rows [first, first + tokens) of the case's x, tiles [tile, end), y (tokens, rows + 3).
std::vector<float> product(const MatmulKernels& k, const Case& c, int64_t first, int64_t tokens,
                           int64_t tile, int64_t end) {
  const Matrix& w = c.w.m;
  Buffer panel = aligned(panel_bytes(w.type, w.cols, tokens));
  PanelSource source{c.x.data() + first * w.cols, w.cols, w.cols, tokens};
  k.prepare(w.type, source, panel.get(), 0, tokens / 2);
  k.prepare(w.type, source, panel.get(), tokens / 2, tokens);
  std::vector<float> y(size_t(tokens * (w.rows + 3)), kUntouched);
  k.matmul(w, panel.get(), tokens, y.data(), w.rows + 3, tile, end);
  return y;
}

std::vector<double> exact(const Case& c) {
  const Matrix& w = c.w.m;
  std::vector<double> y(size_t(c.tokens * w.rows));
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t r = 0; r < w.rows; ++r) {
    decode_row(w, r, row.data());
    for (int64_t t = 0; t < c.tokens; ++t) {
      double s = 0;
      for (int64_t k = 0; k < w.cols; ++k)
        s += double(row[size_t(k)]) * c.x[size_t(t * w.cols + k)];
      y[size_t(t * w.rows + r)] = s;
    }
  }
  return y;
}

double nmse(const std::vector<float>& y, const std::vector<double>& want, int64_t rows) {
  double error = 0, power = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    size_t t = i / size_t(rows), r = i % size_t(rows);
    double d = double(y[t * size_t(rows + 3) + r]) - want[i];
    error += d * d;
    power += want[i] * want[i];
  }
  return error / power;
}

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, size_t(n) * sizeof(float)) == 0;
}

std::vector<int64_t> widths(const TypeFacts& f) {
  if (f.block == 1) return {1, 32, 97, 1280};
  if (f.block == 32) return {32, 96, 256, 1280};
  return {256, 1280};
}

// Activations of 8 bits with a scale a block of 32: normal rows have amax of about 2.2 sigma, so a
// step is 2.2 / 127 sigma and its square over 12 about 2.5e-5 of the power. Twice that is a bug.
double bound(const TypeFacts& f) { return f.block == 1 ? 1e-12 : 5e-5; }

TEST_CASE("cpu kernels: products are within the error of 8-bit activations") {
  for (const TypeFacts& f : kTypes) {
    for (int64_t cols : widths(f)) {
      for (int64_t rows : {1, 17, 100}) {
        Case c = make_case(f, rows, cols, 9);
        auto want = exact(c);
        int64_t tiles = tile_count(rows);
        INFO(std::string(f.name), " ", rows, " x ", cols);
        CHECK(nmse(product(reference_matmul(), c, 0, 9, 0, tiles), want, rows) < 1e-12);
        for (Isa isa : available_isas()) {
          auto y = product(matmul_kernels(isa), c, 0, 9, 0, tiles);
          double e = nmse(y, want, rows);
          INFO(std::string(isa_name(isa)), " nmse ", e);
          // One short row has too few terms for an average.
          CHECK(e < bound(f) * (rows * cols < 2048 ? 10 : 1));
          for (int64_t t = 0; t < 9; ++t) {
            for (int64_t i = 0; i < 3; ++i)
              CHECK(y[size_t(t * (rows + 3) + rows + i)] == kUntouched);
          }
        }
      }
    }
  }
}

TEST_CASE("cpu kernels: integer weights and activations are multiplied exactly") {
  // Activations that quantise without loss (amax 127 a block) leave only f32 rounding.
  for (const TypeFacts& f : kTypes) {
    Case c = make_case(f, 33, f.block == 1 ? 100 : 3 * f.block, 5);
    Random random{3};
    for (size_t i = 0; i < c.x.size(); ++i) {
      c.x[i] = float(int(random.next() % 255) - 127);
      if (i % 32 == 0) c.x[i] = random.next() & 1 ? 127.0f : -127.0f;
    }
    auto want = exact(c);
    for (Isa isa : available_isas()) {
      double e = nmse(product(matmul_kernels(isa), c, 0, 5, 0, 3), want, 33);
      INFO(std::string(f.name), " ", std::string(isa_name(isa)), " nmse ", e);
      CHECK(e < 1e-12);
    }
  }
}

TEST_CASE("cpu kernels: extreme quants and activations do not overflow") {
  for (const TypeFacts& f : kTypes) {
    if (f.block == 1) continue;
    const int64_t rows = 16, cols = 512;
    for (int pattern : {0x00, 0x7f, 0x80, 0xff}) {
      Random random{4};
      auto source = random_rows(f, rows, cols, random);
      for (size_t i = 0; i < source.size(); ++i) {
        int at = int(i % size_t(f.bytes));
        bool half = at / 2 * 2 == f.half_at[0] || at / 2 * 2 == f.half_at[1];
        if (!half) source[i] = uint8_t(pattern);
      }
      Case c;
      c.w = convert(f, rows, cols, source.data());
      c.tokens = 4;
      c.x.resize(size_t(4 * cols));
      for (size_t i = 0; i < c.x.size(); ++i) {
        size_t t = i / size_t(cols);
        c.x[i] = t == 0 ? 127.0f : t == 1 ? -127.0f : t == 2 ? (i % 2 ? 127.0f : -126.0f) : 1.0f;
      }
      auto want = exact(c);
      for (Isa isa : available_isas()) {
        double e = nmse(product(matmul_kernels(isa), c, 0, 4, 0, 1), want, rows);
        INFO(std::string(f.name), " ", std::string(isa_name(isa)), " pattern ", pattern, " nmse ",
             e);
        bool all_zero = std::isnan(e);  // 0 / 0: every weight is zero
        CHECK((all_zero || e < 1e-10));
      }
    }
  }
}

TEST_CASE("cpu kernels: a row's bits do not depend on how many tokens share the call") {
  const int64_t rows = 35, tokens = 512;
  for (const TypeFacts& f : kTypes) {
    int64_t cols = f.block == 1 ? 355 : f.block == 32 ? 352 : 768;
    Case c = make_case(f, rows, cols, tokens);
    for (Isa isa : available_isas()) {
      const MatmulKernels& k = matmul_kernels(isa);
      auto all = product(k, c, 0, tokens, 0, 3);
      std::vector<float> alone(size_t(tokens * rows));
      for (int64_t t = 0; t < tokens; ++t) {
        auto one = product(k, c, t, 1, 0, 3);
        std::memcpy(&alone[size_t(t * rows)], one.data(), size_t(rows) * 4);
      }
      auto check = [&](const std::vector<float>& y, int64_t first, int64_t n) {
        bool same = true;
        for (int64_t t = 0; t < n; ++t) {
          same = same &&
                 same_bits(&y[size_t(t * (rows + 3))], &alone[size_t((first + t) * rows)], rows);
        }
        INFO(std::string(f.name), " ", std::string(isa_name(isa)), " tokens ", n);
        CHECK(same);
      };
      check(all, 0, tokens);
      for (int64_t n : {2, 3, 4, 5, 6, 7, 8, 9, 15, 31, 33, 64, 65, 100}) {
        check(product(k, c, 7, n, 0, 3), 7, n);
      }
    }
  }
}

TEST_CASE("cpu kernels: tile ranges are independent and write only their rows") {
  const int64_t rows = 100, tokens = 11, stride = rows + 3;
  for (const TypeFacts& f : kTypes) {
    Case c = make_case(f, rows, f.block == 1 ? 64 : 2 * f.block, tokens);
    for (Isa isa : available_isas()) {
      const MatmulKernels& k = matmul_kernels(isa);
      auto all = product(k, c, 0, tokens, 0, 7);
      const int64_t cuts[] = {0, 1, 4, 4, 6, 7};
      for (int i = 0; i < 5; ++i) {
        auto part = product(k, c, 0, tokens, cuts[i], cuts[i + 1]);
        bool good = true;
        for (int64_t j = 0; j < tokens * stride; ++j) {
          int64_t row = j % stride;
          bool inside = row >= 16 * cuts[i] && row < std::min(16 * cuts[i + 1], rows);
          float want = inside ? all[size_t(j)] : kUntouched;
          good = good && same_bits(&part[size_t(j)], &want, 1);
        }
        INFO(std::string(f.name), " ", std::string(isa_name(isa)), " tiles ", cuts[i], " .. ",
             cuts[i + 1]);
        CHECK(good);
      }
    }
  }
}

TEST_CASE("cpu kernels: what is not a number reaches the result, tiny rows become zero") {
  for (const TypeFacts& f : kTypes) {
    const int64_t cols = f.block == 1 ? 64 : 2 * f.block;
    Case c = make_case(f, 16, cols, 4);
    float* x = c.x.data();
    x[5] = std::numeric_limits<float>::quiet_NaN();
    x[cols + 6] = std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < cols; ++i) x[2 * cols + i] = 1e-40f;
    for (int64_t i = 0; i < cols; ++i) x[3 * cols + i] = 0;
    for (Isa isa : available_isas()) {
      auto y = product(matmul_kernels(isa), c, 0, 4, 0, 1);
      INFO(std::string(f.name), " ", std::string(isa_name(isa)));
      CHECK(std::isnan(y[0]));
      CHECK_FALSE(std::isfinite(y[19]));
      CHECK(std::fabs(y[2 * 19]) < 1e-36f);
      CHECK(y[3 * 19] == 0);
    }
  }
}

TEST_CASE("cpu kernels: the best instruction set is available and has a name") {
  CHECK(isa_available(Isa::baseline));
  CHECK(isa_available(best_isa()));
  CHECK(std::string_view(isa_name(Isa::avx512vnni)) == "avx512vnni");
  if (isa_available(Isa::avx512)) CHECK(isa_available(Isa::avx2));
}

}  // namespace
}  // namespace pn::cpu::test
