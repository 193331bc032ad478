// SPDX-License-Identifier: Apache-2.0
//
// How fast the CPU kernels are on this machine: decode in GB/s beside the memory's own read rate,
// prompts in GMAC/s.
//
// Owns: its buffers and threads. Knows of the kernels only their public header. Not a test: prints
// a table, and judges nothing. The one idea: weights lie in huge pages and are larger than the last
// cache, so a decode line that comes near the first line cannot be improved by better arithmetic.
//
// Times are the slowest thread's processor time, median and best of the calls.
//
//   kernels_bench [type|all] [isa|best] [threads] [cols] [MiB] [seconds a line]
#include <emmintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/kernels/matmul.h"

namespace {

using namespace pn::cpu;

struct TypeName {
  uint32_t type;
  const char* name;
};
constexpr TypeName kTypes[] = {{8, "q8_0"}, {2, "q4_0"},  {3, "q4_1"},  {6, "q5_0"},
                               {7, "q5_1"}, {12, "q4_k"}, {13, "q5_k"}, {14, "q6_k"},
                               {1, "f16"},  {30, "bf16"}, {0, "f32"}};

struct Options {
  std::string type = "all", isa = "best";
  int threads = 1;
  int64_t cols = 2048, mib = 256;
  double seconds = 0.5;
};

std::byte* huge_pages(size_t bytes) {
  size_t size = (bytes + (2 << 20)) >> 21 << 21;
  void* p = std::aligned_alloc(2 << 20, size);
  madvise(p, size, MADV_HUGEPAGE);
  std::memset(p, 1, size);
  return static_cast<std::byte*>(p);
}

// Seconds of processor time that the calling thread has used: on a busy machine a call's own time
// says more than the clock on the wall.
double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct Times {
  double median, best;
};

// f(thread) on every thread; the slowest thread's processor time a call.
Times measure(const Options& o, const std::function<void(int)>& f) {
  std::vector<double> used(static_cast<size_t>(o.threads));
  auto timed = [&](int i) {
    double start = thread_seconds();
    f(i);
    used[size_t(i)] = thread_seconds() - start;
  };
  auto once = [&] {
    std::vector<std::thread> others;
    for (int i = 1; i < o.threads; ++i) others.emplace_back(timed, i);
    timed(0);
    for (auto& t : others) t.join();
    return *std::max_element(used.begin(), used.end());
  };
  once();
  std::vector<double> all;
  double total = 0;
  while (total < o.seconds || all.size() < 5) {
    all.push_back(once());
    total += all.back();
  }
  std::sort(all.begin(), all.end());
  return {all[all.size() / 2], all[0]};
}

void read_rate(const Options& o) {
  size_t bytes = size_t(o.mib) << 20, part = bytes / size_t(o.threads) / 4096 * 4096;
  std::byte* p = huge_pages(bytes);
  std::vector<uint64_t> sums(size_t(o.threads) * 8);
  Times t = measure(o, [&](int i) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p + size_t(i) * part);
    __m128i s[8] = {};
    for (size_t k = 0; k + 8 <= part / 16; k += 8) {
      for (size_t l = 0; l < 8; ++l) s[l] = _mm_xor_si128(s[l], q[k + l]);
    }
    for (int l = 1; l < 8; ++l) s[0] = _mm_xor_si128(s[0], s[l]);
    sums[size_t(i) * 8] += uint64_t(_mm_cvtsi128_si64(s[0]));
  });
  double bytes_read = double(part * size_t(o.threads)) / 1e9;
  std::printf("memory threads %d  read GB/s: median %.2f best %.2f  (%llx)\n", o.threads,
              bytes_read / t.median, bytes_read / t.best, static_cast<unsigned long long>(sums[0]));
  std::free(p);
}

Matrix make_matrix(const Options& o, uint32_t type) {
  uint64_t bytes = tile_bytes(type, o.cols);
  int64_t tiles = std::max<int64_t>(1, (o.mib << 20) / int64_t(bytes));
  std::byte* p = huge_pages(uint64_t(tiles) * bytes);
  // Bytes 0x3c of a scale are a number near 1, whatever the type; speed does not depend on values.
  std::memset(p, 0x2c, uint64_t(tiles) * bytes);
  return {type, tiles * kTileRows, o.cols, p};
}

void bench(const Options& o, const TypeName& t, Isa isa) {
  const MatmulKernels& k = matmul_kernels(isa);
  Matrix w = make_matrix(o, t.type);
  int64_t tiles = tile_count(w.rows);
  std::vector<float> x(size_t(512 * o.cols), 0.5f);
  for (int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
    // A prompt takes as many rows as a layer has; decode the whole buffer.
    int64_t used = tokens < 16 ? tiles : std::min<int64_t>(tiles, tokens < 512 ? 1024 : 128);
    std::byte* panel =
        static_cast<std::byte*>(std::aligned_alloc(64, panel_bytes(t.type, o.cols, tokens)));
    k.prepare(t.type, {x.data(), o.cols, o.cols, tokens}, panel, 0, tokens);
    std::vector<float> y(size_t(tokens * used * kTileRows));
    int64_t stride = used * kTileRows;
    Times s = measure(o, [&](int i) {
      int64_t first = used * i / o.threads, last = used * (i + 1) / o.threads;
      k.matmul(w, panel, tokens, y.data(), stride, first, last);
    });
    double gb = double(uint64_t(used) * tile_bytes(t.type, o.cols)) / 1e9;
    double gmac = double(stride) * double(o.cols) * double(tokens) / 1e9;
    std::printf(
        "%-6s %-10s threads %d tokens %4lld  GB/s: median %6.2f best %6.2f  "
        "GMAC/s: median %7.2f best %7.2f\n",
        t.name, isa_name(isa), o.threads, static_cast<long long>(tokens), gb / s.median,
        gb / s.best, gmac / s.median, gmac / s.best);
    std::fflush(stdout);
    std::free(panel);
  }
  Times s = measure(o, [&](int) {
    static std::byte* panel = huge_pages(panel_bytes(t.type, o.cols, 512));
    k.prepare(t.type, {x.data(), o.cols, o.cols, 512}, panel, 0, 512);
  });
  std::printf("%-6s %-10s prepare %.3f us a row of %lld\n", t.name, isa_name(isa),
              s.median * 1e6 / 512, static_cast<long long>(o.cols));
  std::free(const_cast<std::byte*>(w.tiles));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (argc > 1) o.type = argv[1];
  if (argc > 2) o.isa = argv[2];
  if (argc > 3) o.threads = std::max(1, std::atoi(argv[3]));
  if (argc > 4) o.cols = std::max(256, std::atoi(argv[4]) / 256 * 256);
  if (argc > 5) o.mib = std::max(1, std::atoi(argv[5]));
  if (argc > 6) o.seconds = std::atof(argv[6]);
  read_rate(o);
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512vnni}) {
    bool wanted = o.isa == "best" ? isa == best_isa() : o.isa == "all" || o.isa == isa_name(isa);
    if (!wanted) continue;
    if (!isa_available(isa)) {
      std::printf("%s is not available on this machine\n", isa_name(isa));
      continue;
    }
    for (const TypeName& t : kTypes) {
      if (o.type == "all" || o.type == t.name) bench(o, t, isa);
    }
  }
}
