// SPDX-License-Identifier: Apache-2.0
//
// A small llama with experts in quantised types, through the CPU plugin: the bits of a row must
// depend on that row and its context alone, and nothing may allocate while it serves.
//
// Knows no formulas (the op tests do). The one idea: the same sequences are run in every company,
// cut, thread count and instruction set, and compared with memcmp.
#include <doctest/doctest.h>
#include <malloc.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "backends/cpu/kernels/matmul.h"
#include "tests/support/cpu_host.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PN_COUNTS_MALLOC 1
namespace {
std::atomic<uint64_t> g_mallocs{0};
}
// Every allocation of the process, the plugin's threads included, ends here.
extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* __libc_calloc(size_t count, size_t bytes);
extern "C" void* __libc_realloc(void* at, size_t bytes);
extern "C" void* malloc(size_t bytes) {
  g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
extern "C" void* calloc(size_t count, size_t bytes) {
  g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
extern "C" void* realloc(void* at, size_t bytes) {
  g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(at, bytes);
}
#endif

using namespace pn::test;

namespace {

constexpr uint32_t kWidth = 256, kHeads = 4, kKv = 2, kDim = 32, kFf = 256, kVocab = 300;
constexpr uint32_t kExperts = 4, kUsed = 2, kExpertFf = 64, kContext = 128, kPage = 16;
constexpr uint32_t kLanes = 8, kPages = kLanes * kContext / kPage;

// Random blocks of a type: random quants, scales that keep values near 1/16.
std::vector<std::byte> random_blocks(uint32_t type, int64_t values, uint64_t seed) {
  struct Form {
    uint32_t type, block, bytes, scale_at, second_at;
    uint16_t scale;  // f16
  };
  constexpr Form kForms[] = {{1, 1, 2, 0, 0, 0},
                             {8, 32, 34, 0, 0, 0x1000},          // d 2^-11
                             {12, 256, 144, 0, 2, 0x0400},       // d and dmin 2^-14
                             {14, 256, 210, 208, 208, 0x0200}};  // d 2^-15
  std::vector<std::byte> out;
  for (const Form& form : kForms) {
    if (form.type != type) continue;
    out.resize(static_cast<size_t>(values) / form.block * form.bytes);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (std::byte& b : out) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      b = static_cast<std::byte>(state >> 56);
    }
    if (type == 1) {
      for (size_t i = 1; i < out.size(); i += 2)  // exponents 2^-5 .. 2^-4, any sign
        out[i] = (out[i] & std::byte{0x83}) | std::byte{0x28};
      continue;
    }
    for (size_t i = 0; i < out.size(); i += form.bytes) {
      memcpy(&out[i + form.scale_at], &form.scale, 2);
      memcpy(&out[i + form.second_at], &form.scale, 2);
    }
  }
  return out;
}

struct Model {
  PlanBuilder plan;
  uint64_t seed = 0;

  uint16_t matrix(uint32_t type, int64_t cols, int64_t rows, int64_t experts = 1,
                  uint32_t role = PN_ROLE_MATRIX) {
    return plan.weight(experts > 1 ? PN_ROLE_EXPERTS : role, type, {cols, rows, experts},
                       random_blocks(type, cols * rows * experts, ++seed));
  }
  uint16_t norm(uint16_t in) {
    const uint16_t out = plan.slot(kWidth, 0, plan.slots[in].rows);
    const uint16_t w = plan.vector(random_values(kWidth, ++seed));
    pn_op& op = plan.op(PN_OP_NORM, pn_op_norm{0, PN_NORM_RMS, 0, 1e-5f});
    op.in[0] = in;
    op.out[0] = out;
    op.weight[0] = w;
    return out;
  }
  uint16_t linear(uint16_t in, uint16_t residual, uint16_t w, uint32_t width) {
    const uint16_t out = plan.slot(width, 0, plan.slots[in].rows);
    pn_op& op = plan.op(PN_OP_LINEAR, pn_op_linear{0, 0, 1, 0});
    op.in[0] = in;
    op.in[1] = residual;
    op.out[0] = out;
    op.weight[0] = w;
    return out;
  }
  uint16_t attention(uint16_t x, uint32_t layer, uint16_t rope) {
    const uint16_t in = norm(x), q = plan.slot(kHeads * kDim), out = plan.slot(kHeads * kDim);
    const uint16_t wq = matrix(12, kWidth, kHeads * kDim), wk = matrix(12, kWidth, kKv * kDim),
                   wv = matrix(14, kWidth, kKv * kDim);
    pn_op_qkv p = {};
    p.query_heads = kHeads;
    p.kv_heads = kKv;
    p.key_dim = p.value_dim = p.rope_dims = kDim;
    p.cache_layer = layer;
    p.rope_kind = PN_ROPE_NORM;
    p.rope_magnitude = 1;
    pn_op& qkv = plan.op(PN_OP_QKV, p);
    qkv.in[0] = in;
    qkv.out[0] = q;
    qkv.weight[0] = wq;
    qkv.weight[1] = wk;
    qkv.weight[2] = wv;
    qkv.weight[5] = rope;
    pn_op& op = plan.op(PN_OP_ATTENTION,
                        pn_op_attention{0, 0, kHeads, kKv, kDim, kDim, 0, layer, 0, 0, 0.2f, 0});
    op.in[0] = q;
    op.out[0] = out;
    return linear(out, x, matrix(8, kHeads * kDim, kWidth), kWidth);
  }
  uint16_t dense(uint16_t x) {
    const uint16_t in = norm(x), out = plan.slot(kWidth);
    const uint16_t gate = matrix(1, kWidth, kFf), up = matrix(1, kWidth, kFf),
                   down = matrix(14, kFf, kWidth);
    pn_op& op = plan.op(PN_OP_MLP, pn_op_mlp{0, 0, PN_ACT_SILU, 0, 0, 1});
    op.in[0] = in;
    op.in[1] = x;
    op.out[0] = out;
    op.weight[0] = gate;
    op.weight[1] = up;
    op.weight[2] = down;
    return out;
  }
  uint16_t experts(uint16_t x) {
    const uint16_t in = norm(x), routing = plan.slot(kUsed), out = plan.slot(kWidth);
    const uint16_t router = plan.matrix(kWidth, kExperts, random_values(kWidth * kExperts, ++seed));
    const uint16_t gate = matrix(8, kWidth, kExpertFf, kExperts),
                   up = matrix(8, kWidth, kExpertFf, kExperts),
                   down = matrix(8, kExpertFf, kWidth, kExperts);
    pn_op& route =
        plan.op(PN_OP_ROUTER, pn_op_router{0, PN_GATE_SOFTMAX, kExperts, kUsed, 1, 1e-9f, 1, 0});
    route.in[0] = in;
    route.out[0] = routing;
    route.weight[0] = router;
    pn_op& op = plan.op(PN_OP_EXPERTS, pn_op_mlp{0, 0, PN_ACT_SILU, 0, 0, 1});
    op.in[0] = in;
    op.in[1] = routing;
    op.in[2] = x;
    op.out[0] = out;
    op.weight[0] = gate;
    op.weight[1] = up;
    op.weight[2] = down;
    return out;
  }

  Model() {
    plan.lanes = kLanes;
    plan.shapes = {{1, 1, 1, kContext}, {8, 8, 8, kContext}, {200, 8, 64, kContext}};
    plan.caches = {{sizeof(pn_cache), PN_CACHE_PAGED, kPage, 2, PN_TYPE_F16, PN_TYPE_F16,
                    kContext / kPage, 0}};
    std::vector<float> freqs;
    for (uint32_t i = 0; i < kDim / 2; ++i) freqs.push_back(1.0f / static_cast<float>(i * i + 1));
    const uint16_t rope = plan.vector(freqs, PN_ROLE_ROPE);
    const uint16_t table = matrix(8, kWidth, kVocab, 1, PN_ROLE_TIED);
    uint16_t x = plan.slot(kWidth);
    pn_op& embed = plan.op(PN_OP_EMBED, pn_op_embed{0, 4});
    embed.out[0] = x;
    embed.weight[0] = table;
    x = dense(attention(x, 0, rope));
    x = experts(attention(x, 1, rope));
    const uint16_t rows = plan.slot(kWidth, 0, PN_ROWS_OUT);
    pn_op& pick = plan.op(PN_OP_ROWS);
    pick.in[0] = x;
    pick.out[0] = rows;
    const uint16_t logits = linear(norm(rows), PN_NO16, table, kVocab);
    plan.op(PN_OP_EMIT, pn_op_emit{0, kVocab}).in[0] = logits;
  }
};

std::vector<int32_t> prompt(uint32_t lane) {
  std::vector<int32_t> ids(lane * 5 + 9);
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * i * 7 + lane * 31 + i) % kVocab);
  return ids;
}

void open_lane(Steps* steps, uint32_t lane) {
  steps->lane(lane).flags = PN_LANE_RESET;
  const uint32_t pages = kContext / kPage;
  for (uint32_t i = 0; i < pages; ++i)
    steps->pages.push_back({0, lane, i, (i * kLanes + lane) * 5 % kPages, 1, 0});
}

using Logits = std::vector<float>;  // (tokens of a prompt, vocab)

// One lane's prompt by itself, in pieces of `chunk`.
Logits run_alone(CpuProgram& program, uint32_t lane, uint32_t chunk) {
  const std::vector<int32_t> ids = prompt(lane);
  Logits out;
  for (uint32_t at = 0; at < ids.size(); at += chunk) {
    const auto count = std::min(chunk, static_cast<uint32_t>(ids.size()) - at);
    Steps steps;
    if (at == 0) open_lane(&steps, lane);
    steps.entry(lane, at, {ids.begin() + at, ids.begin() + at + count});
    for (uint32_t i = 0; i < count; ++i)
      steps.row(0, i, PN_ROW_LOGITS, program.results().slice(i * 2048, 2048));
    std::string message;
    const pn_status status = program.run(steps.view(), count == 1 ? 0 : 2, &message);
    REQUIRE_MESSAGE(status == PN_OK, message);
    for (uint32_t i = 0; i < count; ++i) {
      const auto* row = reinterpret_cast<const float*>(program.results().host + i * 2048);
      out.insert(out.end(), row, row + kVocab);
    }
  }
  return out;
}

// All eight lanes at once, prompts whole, then the last tokens one by one together.
std::vector<Logits> run_together(CpuProgram& program, uint32_t single) {
  std::vector<Logits> out(kLanes);
  const auto take = [&](const Steps& steps, uint32_t shape) {
    REQUIRE(program.run(steps.view(), shape) == PN_OK);
    for (size_t r = 0; r < steps.rows.size(); ++r) {
      const auto* row = reinterpret_cast<const float*>(program.results().host + r * 2048);
      Logits& lane = out[steps.entries[steps.rows[r].entry].lane];
      lane.insert(lane.end(), row, row + kVocab);
    }
  };
  Steps first;
  for (uint32_t n = 0; n < kLanes; ++n) {
    const uint32_t lane = (n * 3 + 1) % kLanes;
    open_lane(&first, lane);
    std::vector<int32_t> ids = prompt(lane);
    ids.resize(ids.size() - single);
    first.entry(lane, 0, ids);
    first.row(n, static_cast<uint32_t>(ids.size()) - 1, PN_ROW_LOGITS,
              program.results().slice(n * 2048, 2048));
  }
  take(first, 2);
  for (uint32_t s = 0; s < single; ++s) {
    Steps next;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const std::vector<int32_t> ids = prompt(lane);
      const auto at = static_cast<uint32_t>(ids.size()) - single + s;
      next.entry(lane, at, {ids[at]});
      next.row(lane, 0, PN_ROW_LOGITS, program.results().slice(lane * 2048, 2048));
    }
    take(next, 1);
  }
  return out;
}

bool same_tail(const Logits& whole, const Logits& tail) {
  return tail.size() <= whole.size() &&
         memcmp(whole.data() + (whole.size() - tail.size()), tail.data(), tail.size() * 4) == 0;
}

}  // namespace

TEST_CASE("cpu model: alone, in a batch of 8, in chunks of 1, 7 and 64, on 1 to 5 threads") {
  for (const char* numerics : {"fast", "reference"}) {
    std::vector<Logits> want;
    for (const char* threads : {"1", "2", "5"}) {
      CpuHost host(HostOptions{{"threads", threads}, {"numerics", numerics}});
      Model model;
      CpuProgram program(host, model.plan, kPages);
      if (want.empty()) {
        for (uint32_t lane = 0; lane < kLanes; ++lane) want.push_back(run_alone(program, lane, 64));
        for (float v : want[0]) CHECK(std::abs(v) < 1e6f);
        CHECK(want[0] != want[1]);
        CHECK(run_alone(program, 7, 1) == want[7]);
        CHECK(run_alone(program, 7, 7) == want[7]);
      }
      CHECK(run_alone(program, 4, 9) == want[4]);
      const std::vector<Logits> together = run_together(program, 4);
      for (uint32_t lane = 0; lane < kLanes; ++lane) CHECK(same_tail(want[lane], together[lane]));
    }
  }
}

TEST_CASE("cpu model: reference numerics are bit-equal on every instruction set, fast ones close") {
  Logits oracle;
  for (pn::cpu::Isa isa : {pn::cpu::Isa::baseline, pn::cpu::Isa::avx2, pn::cpu::Isa::avx512,
                           pn::cpu::Isa::avx512vnni}) {
    if (!pn::cpu::isa_available(isa)) continue;
    for (const char* numerics : {"reference", "fast"}) {
      CpuHost host(
          HostOptions{{"threads", "2"}, {"isa", pn::cpu::isa_name(isa)}, {"numerics", numerics}});
      Model model;
      CpuProgram program(host, model.plan, kPages);
      const Logits got = run_alone(program, 3, 64);
      if (oracle.empty()) oracle = got;
      double error = 0, power = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - oracle[i]) * (got[i] - oracle[i]);
        power += oracle[i] * oracle[i];
      }
      if (numerics[0] == 'r')
        CHECK(got == oracle);
      else
        CHECK(error / power < 2e-3);
    }
  }
}

TEST_CASE("cpu model: nothing is allocated after load") {
#ifdef PN_COUNTS_MALLOC
  CpuHost host(HostOptions{{"threads", "2"}});
  Model model;
  CpuProgram program(host, model.plan, kPages);
  run_alone(program, 0, 64);
  Steps open, step;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    open_lane(&open, lane);
    open.lanes.back().temperature = 1;
    open.lanes.back().penalty_tokens = 8;
    open.lanes.back().presence_penalty = 0.1f;
    step.entry(lane, 0, {5, 6});
    step.row(lane, 1, PN_ROW_SAMPLE, program.results().slice(lane * 2048, 2048)).id_slot = 0;
    step.rows.back().top = 3;
  }
  step.lanes = open.lanes;
  step.pages = open.pages;
  const pn_step view = step.view();
  REQUIRE(program.run(view, 2) == PN_OK);
  const uint64_t before = g_mallocs.load();
  CHECK(before > 0);
  pn_status worst = PN_OK;
  for (int i = 0; i < 20; ++i) worst = std::min(worst, program.run(view, 2));
  const uint64_t after = g_mallocs.load();
  CHECK(worst == PN_OK);
  CHECK(after == before);
#else
  MESSAGE("skipped: the sanitizer owns malloc");
#endif
}
