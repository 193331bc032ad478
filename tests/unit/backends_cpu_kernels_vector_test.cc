// SPDX-License-Identifier: Apache-2.0
//
// The row kernels against the f64 reference, on every instruction set this machine has; lengths
// around the register widths, and attention's independence of grouping.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "backends/cpu/kernels/vector.h"
#include "tests/unit/backends_cpu_kernels_data.h"

namespace pn::cpu::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const int64_t kLengths[] = {1, 3, 4, 5, 8, 15, 16, 17, 31, 64, 65, 100, 2048, 2051};

double worst(const std::vector<float>& a, const std::vector<float>& b) {  // over max(1, |b|)
  double w = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double d = std::fabs(double(a[i]) - b[i]) / std::max(1.0, std::fabs(double(b[i])));
    if (!(d <= w)) w = d;
  }
  return w;
}

template <class Fn>
void each(Fn f) {
  for (Isa isa : available_isas()) {
    for (int64_t n : kLengths) {
      INFO(std::string(isa_name(isa)), " n ", n);
      f(vector_kernels(isa), n);
    }
  }
}

TEST_CASE("cpu vectors: exp is within 2 ulp, flushes below the normals, reaches infinity") {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.7f; v += 0.0137f) x.push_back(v);
  for (float v : {0.0f, -0.0f, 1e-30f, 88.72f, -87.33f}) x.push_back(v);
  for (Isa isa : available_isas()) {
    INFO(std::string(isa_name(isa)));
    std::vector<float> y(x.size());
    vector_kernels(isa).exp(x.data(), int64_t(x.size()), y.data());
    double ulp = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double want = std::exp(double(x[i]));
      double step = std::ldexp(1.0, std::ilogb(want) - 23);
      ulp = std::max(ulp, std::fabs(y[i] - want) / step);
    }
    CHECK(ulp <= 2.0);
    const float special[] = {-88.0f, -1000.0f, -kInf, 89.0f, 1000.0f, kInf, NAN, 0.0f};
    float out[8];
    vector_kernels(isa).exp(special, 8, out);
    for (int i = 0; i < 3; ++i) CHECK(out[i] == 0.0f);
    for (int i = 3; i < 6; ++i) CHECK(out[i] == kInf);
    CHECK(std::isnan(out[6]));
    CHECK(out[7] == 1.0f);
  }
}

TEST_CASE("cpu vectors: an element's bits do not depend on its place or the row's length") {
  Random random{5};
  auto x = normal_rows(100, random), up = normal_rows(100, random);
  for (Isa isa : available_isas()) {
    const VectorKernels& k = vector_kernels(isa);
    INFO(std::string(isa_name(isa)));
    for (auto f : {k.silu_mul, k.gelu_mul, k.add, k.mul}) {
      std::vector<float> all(100), part(100);
      f(x.data(), up.data(), 100, all.data());
      for (int64_t at : {0, 1, 13}) {
        f(x.data() + at, up.data() + at, 37, part.data());
        CHECK(std::memcmp(part.data(), all.data() + at, 37 * 4) == 0);
      }
    }
    auto a = x, b = x;
    k.rope_norm(a.data(), up.data(), up.data() + 50, 50);
    k.rope_norm(b.data() + 2, up.data() + 1, up.data() + 51, 21);
    CHECK(std::memcmp(a.data() + 2, b.data() + 2, 42 * 4) == 0);
  }
}

TEST_CASE("cpu vectors: gates, sums and products follow the reference") {
  const VectorKernels& ref = reference_vectors();
  each([&](const VectorKernels& k, int64_t n) {
    Random random{uint64_t(n)};
    auto a = normal_rows(n, random), b = normal_rows(n, random);
    std::vector<float> got(a.size()), want(a.size());
    auto compare = [&](auto f, auto g, const float* second) {
      (k.*f)(a.data(), second, n, got.data());
      (ref.*g)(a.data(), second, n, want.data());
      CHECK(worst(got, want) < 1e-6);
    };
    compare(&VectorKernels::silu_mul, &VectorKernels::silu_mul, b.data());
    compare(&VectorKernels::silu_mul, &VectorKernels::silu_mul, nullptr);
    compare(&VectorKernels::gelu_mul, &VectorKernels::gelu_mul, b.data());
    compare(&VectorKernels::add, &VectorKernels::add, b.data());
    compare(&VectorKernels::mul, &VectorKernels::mul, b.data());
    CHECK(k.dot(a.data(), b.data(), n) ==
          doctest::Approx(ref.dot(a.data(), b.data(), n)).epsilon(1e-5).scale(10));
    got = want = b;
    k.axpy(0.3f, a.data(), n, got.data());
    ref.axpy(0.3f, a.data(), n, want.data());
    CHECK(worst(got, want) < 1e-6);
    std::vector<uint16_t> h(a.size());
    k.to_f16(a.data(), n, h.data());
    CHECK(k.dot_f16(b.data(), h.data(), n) ==
          doctest::Approx(ref.dot_f16(b.data(), h.data(), n)).epsilon(1e-5).scale(10));
    got = want = b;
    k.axpy_f16(0.3f, h.data(), n, got.data());
    ref.axpy_f16(0.3f, h.data(), n, want.data());
    CHECK(worst(got, want) < 1e-6);
  });
}

TEST_CASE("cpu vectors: norm, rotary embedding and softmax follow the reference") {
  const VectorKernels& ref = reference_vectors();
  each([&](const VectorKernels& k, int64_t n) {
    Random random{uint64_t(n) + 7};
    auto x = normal_rows(2 * n, random), w = normal_rows(n, random);
    std::vector<float> got(static_cast<size_t>(n)), want(got.size());
    for (const float* weight :
         {static_cast<const float*>(w.data()), static_cast<const float*>(nullptr)}) {
      k.rms_norm(x.data(), weight, 1e-5f, n, got.data());
      ref.rms_norm(x.data(), weight, 1e-5f, n, want.data());
      CHECK(worst(got, want) < 2e-6);
    }
    std::vector<float> cos(got.size()), sin(got.size());
    for (size_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(0.1f * float(i));
      sin[i] = std::sin(0.1f * float(i));
    }
    for (auto rope : {&VectorKernels::rope_norm, &VectorKernels::rope_neox}) {
      auto a = x, b = x;
      (k.*rope)(a.data(), cos.data(), sin.data(), n);
      (ref.*rope)(b.data(), cos.data(), sin.data(), n);
      CHECK(worst(a, b) < 1e-6);
    }
    auto a = x, b = x;
    a[0] = b[0] = -kInf;
    k.softmax(a.data(), n + 1);
    ref.softmax(b.data(), n + 1);
    CHECK(worst(a, b) < 1e-6);
    CHECK(a[0] == 0.0f);
    CHECK(a[size_t(n + 1) % a.size()] == b[size_t(n + 1) % b.size()]);
    std::vector<float> none(got.size(), -kInf);
    k.softmax(none.data(), n);
    CHECK(none == std::vector<float>(none.size(), 0.0f));
  });
}

TEST_CASE("cpu vectors: half formats round to nearest even for every pattern") {
  for (Isa isa : available_isas()) {
    INFO(std::string(isa_name(isa)));
    const VectorKernels& k = vector_kernels(isa);
    std::vector<uint16_t> h(65536), back(65536);
    for (size_t i = 0; i < h.size(); ++i) h[i] = uint16_t(i);
    std::vector<float> x(h.size());
    k.from_f16(h.data(), 65536, x.data());
    int64_t wrong = 0;
    for (size_t i = 0; i < h.size(); ++i) {
      int e = int(i >> 10 & 31), m = int(i & 1023);
      double v = e == 31 ? (m ? NAN : kInf) : std::ldexp(e ? 1024 + m : m, e ? e - 25 : -24);
      if (i & 0x8000) v = -v;
      wrong += std::isnan(v) ? !std::isnan(x[i]) : double(x[i]) != v;
    }
    CHECK(wrong == 0);
    // Halfway between neighbours, and a step to either side.
    std::vector<float> y;
    for (size_t i = 0; i + 1 < 0x7c00; ++i) {
      float mid = float((double(x[i]) + x[i + 1]) / 2);
      y.insert(y.end(), {mid, std::nextafter(mid, 0.0f), std::nextafter(mid, kInf)});
    }
    back.resize(y.size());
    k.to_f16(y.data(), int64_t(y.size()), back.data());
    for (size_t i = 0; i < y.size(); ++i) {
      uint16_t low = uint16_t(i / 3);
      uint16_t want = i % 3 == 1 ? low : i % 3 == 2 ? low + 1 : low + (low & 1);
      wrong += back[i] != want;
    }
    CHECK(wrong == 0);
    const float edge[] = {65519.9f, 65520.0f, -kInf, NAN};
    k.to_f16(edge, 4, back.data());
    CHECK(back[0] == 0x7bff);
    CHECK(back[1] == 0x7c00);
    CHECK(back[2] == 0xfc00);
    CHECK((back[3] & 0x7fff) > 0x7c00);
    const float b[] = {1.0f, 1.00390625f, 1.01171875f, NAN};  // exact, tie to even down, up
    k.to_bf16(b, 4, back.data());
    CHECK(back[0] == 0x3f80);
    CHECK(back[1] == 0x3f80);
    CHECK(back[2] == 0x3f82);
    CHECK((back[3] & 0x7fff) > 0x7f80);
    k.from_bf16(back.data(), 3, x.data());
    CHECK(x[2] == 1.015625f);
  }
}

// ---- attention ----------------------------------------------------------------------------------

struct Attention {
  int rows, context, dk, dv;
  uint32_t kv_type;
  std::vector<float> q;
  std::vector<float> k32, v32;
  std::vector<uint16_t> k16, v16;
  float softcap = 0;
  int window = 0;  // 0: none
};

Attention make_attention(int rows, int context, int dk, int dv, uint32_t kv_type) {
  Random random{uint64_t(rows * 7 + context + dk)};
  Attention a{rows, context, dk, dv, kv_type, {}, {}, {}, {}, {}};
  a.q = normal_rows(rows * dk, random);
  a.k32 = normal_rows(context * dk, random);
  a.v32 = normal_rows(context * dv, random);
  a.k16.resize(a.k32.size());
  a.v16.resize(a.v32.size());
  reference_vectors().to_f16(a.k32.data(), int64_t(a.k32.size()), a.k16.data());
  reference_vectors().to_f16(a.v32.data(), int64_t(a.v32.size()), a.v16.data());
  return a;
}

// Rows [first, first + n): row r sees positions up to context - rows + r (causal, one token a row).
std::vector<float> attend(const VectorKernels& k, const Attention& a, int first, int n,
                          const float* sinks = nullptr) {
  std::vector<float> max(static_cast<size_t>(n)), sum(max), acc(size_t(n * a.dv)), out(acc);
  AttendState state{max.data(), sum.data(), acc.data()};
  attend_begin(state, n, a.dv);
  int longest = a.context - a.rows + first + n;
  for (int at = 0; at < longest; at += 64) {
    AttendBlock b;
    b.q = a.q.data() + first * a.dk;
    b.q_stride = a.dk;
    int size = a.kv_type == 0 ? 4 : 2;
    auto bytes = [&](const auto& f32, const auto& f16) {
      return a.kv_type == 0 ? reinterpret_cast<const std::byte*>(f32.data())
                            : reinterpret_cast<const std::byte*>(f16.data());
    };
    b.k_stride = a.dk * size;
    b.v_stride = a.dv * size;
    b.k = bytes(a.k32, a.k16) + at * b.k_stride;
    b.v = bytes(a.v32, a.v16) + at * b.v_stride;
    b.kv_type = a.kv_type;
    b.rows = n;
    b.count = std::min(64, longest - at);
    b.dk = a.dk;
    b.dv = a.dv;
    b.scale = 1 / std::sqrt(float(a.dk));
    b.softcap = a.softcap;
    std::vector<int32_t> begin(max.size()), end(max.size());
    for (int r = 0; r < n; ++r) {
      int seen = a.context - a.rows + first + r + 1;
      end[size_t(r)] = std::clamp(seen - at, 0, b.count);
      begin[size_t(r)] = a.window ? std::clamp(seen - a.window - at, 0, b.count) : 0;
    }
    b.begin = begin.data();
    b.end = end.data();
    k.attend_block(b, state);
  }
  attend_finish(state, {out.data(), a.dv, n, a.dv, sinks});
  return out;
}

TEST_CASE("cpu vectors: attention follows the reference and is independent of grouping") {
  for (uint32_t kv : {0u, 1u}) {
    for (int dk : {64, 80, 100, 128}) {
      for (int rows : {1, 2, 3, 4, 7, 12}) {
        Attention a = make_attention(rows, 150, dk, dk == 100 ? 37 : dk, kv);
        a.softcap = rows == 3 ? 20.0f : 0.0f;
        a.window = rows == 4 ? 70 : rows == 7 ? 5 : 0;
        std::vector<float> sinks(size_t(rows), 0.5f);
        const float* sink = rows == 12 ? sinks.data() : nullptr;
        auto want = attend(reference_vectors(), a, 0, rows, sink);
        for (Isa isa : available_isas()) {
          INFO(std::string(isa_name(isa)), " kv ", kv, " dk ", dk, " rows ", rows);
          auto got = attend(vector_kernels(isa), a, 0, rows, sink);
          CHECK(worst(got, want) < 3e-6);
          for (int r = 0; r < rows; ++r) {
            auto one = attend(vector_kernels(isa), a, r, 1, sink);
            CHECK(std::memcmp(one.data(), &got[size_t(r * a.dv)], size_t(a.dv) * 4) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("cpu vectors: the reference attention is a softmax over what a row sees") {
  Attention a = make_attention(2, 70, 16, 8, 0);
  auto got = attend(reference_vectors(), a, 0, 2);
  for (int r = 0; r < 2; ++r) {
    int seen = 69 + r;
    std::vector<double> s(static_cast<size_t>(seen));
    double total = 0;
    for (int t = 0; t < seen; ++t) {
      double dot = 0;
      for (int d = 0; d < 16; ++d)
        dot += double(a.q[size_t(r * 16 + d)]) * a.k32[size_t(t * 16 + d)];
      total += s[size_t(t)] = std::exp(dot / 4);
    }
    for (int d = 0; d < 8; ++d) {
      double want = 0;
      for (int t = 0; t < seen; ++t) want += s[size_t(t)] / total * a.v32[size_t(t * 8 + d)];
      CHECK(got[size_t(r * 8 + d)] == doctest::Approx(want).epsilon(1e-5));
    }
  }
}

}  // namespace
}  // namespace pn::cpu::test
