// SPDX-License-Identifier: Apache-2.0
//
// Models that cannot be planned are refused by the key or the tensor at fault.
#include <doctest/doctest.h>

#include "models/arch/plan.h"
#include "models/gguf/reader.h"
#include "tests/support/random_model.h"

namespace {

using pn::test::GgufWriter;

GgufWriter model(bool moe = false) {
  pn::test::ModelSpec spec;
  if (moe) spec.experts = 4, spec.experts_used = 2;
  auto writer = pn::test::random_model(spec);
  REQUIRE(writer);
  return *writer;
}

pn::Result<std::shared_ptr<const pn::arch::Model>> load(const GgufWriter& w) {
  // The File and so the Model point into it; models of this file are not used after the test.
  static std::vector<std::byte> image;
  image = w.image();
  auto file = pn::gguf::Reader().from_memory(image, "image");
  REQUIRE_MESSAGE(file, (file ? "" : file.error().message));
  return pn::arch::Model::load(*file);
}

pn::Error refused(const GgufWriter& w) {
  auto m = load(w);
  REQUIRE(!m);
  CHECK(m.error().message.find("image: ") == 0);
  CHECK(m.error().message.find(m.error().param) != std::string::npos);
  return m.error();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("required keys are named when they are missing") {
  for (const char* key : {"llama.context_length", "llama.embedding_length", "llama.block_count",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.layer_norm_rms_epsilon", "general.architecture"}) {
    pn::Error e = refused(model().erase(key));
    CHECK(e.param == key);
    CHECK(has(e.message, "missing"));
  }
  CHECK(load(model().erase("llama.rope.freq_base").erase("llama.rope.dimension_count")));
  CHECK(refused(model(true).erase("llama.expert_used_count")).param == "llama.expert_used_count");
}

TEST_CASE("impossible hyper-parameters are named") {
  const std::pair<const char*, uint32_t> cases[] = {{"llama.block_count", 0},
                                                    {"llama.block_count", 513},
                                                    {"llama.attention.head_count", 0},
                                                    {"llama.attention.head_count_kv", 0},
                                                    {"llama.attention.head_count_kv", 3},
                                                    {"llama.embedding_length", 0},
                                                    {"llama.context_length", 0},
                                                    {"llama.rope.dimension_count", 16},
                                                    {"llama.rope.dimension_count", 64},
                                                    {"llama.feed_forward_length", 1u << 30}};
  for (const auto& one : cases) {
    const auto key = one.first;
    const auto value = one.second;
    CAPTURE(key);
    CAPTURE(value);
    CHECK(refused(model().u32(key, value)).param == key);
  }
  const std::pair<const char*, float> floats[] = {{"llama.attention.layer_norm_rms_epsilon", -1},
                                                  {"llama.rope.freq_base", 0},
                                                  {"llama.rope.scaling.factor", -2}};
  for (auto [key, value] : floats) CHECK(refused(model().f32(key, value)).param == key);
  CHECK(refused(model(true).u32("llama.expert_used_count", 5)).param == "llama.expert_used_count");
  CHECK(refused(model(true).u32("llama.expert_count", 2000)).param == "llama.expert_count");
  CHECK(refused(model(true).u32("llama.expert_gating_func", 9)).param ==
        "llama.expert_gating_func");
  pn::Error kind = refused(model().text("llama.rope.scaling.type", "spiral"));
  CHECK(kind.code == pn::Code::unsupported);
  CHECK(has(kind.message, "'spiral'"));
  pn::Error type = refused(model().text("llama.block_count", "two"));
  CHECK(type.param == "llama.block_count");
}

TEST_CASE("per-layer arrays: equal numbers are one number, different ones are refused") {
  CHECK(load(model().i32s("llama.attention.head_count_kv", {4, 4})));
  pn::Error e = refused(model().i32s("llama.attention.head_count_kv", {4, 2}));
  CHECK(e.code == pn::Code::unsupported);
  CHECK(has(e.message, "differs between layers"));
  CHECK(refused(model().f32s("llama.feed_forward_length", {512, 512})).param ==
        "llama.feed_forward_length");
}

TEST_CASE("tensors: missing, of another shape, without a place") {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight",
                           "blk.0.ffn_norm.weight", "blk.1.ffn_down.weight"}) {
    pn::Error e = refused(model().erase_tensor(name));
    CHECK(e.param == name);
    CHECK(has(e.message, "missing"));
  }
  GgufWriter narrow = model();
  narrow.find("blk.1.attn_k.weight").shape = {256, 96};
  pn::Error e = refused(narrow);
  CHECK(e.param == "blk.1.attn_k.weight");
  CHECK(has(e.message, "{256, 96}"));
  CHECK(has(e.message, "{256, 128}"));
  GgufWriter stack = model();
  stack.find("blk.0.ffn_up.weight").shape = {256, 512, 2};
  CHECK(has(refused(stack).message, "{256, 512, 2}"));
  stack.find("blk.0.ffn_up.weight").shape = {256, 512, 1, 2};
  CHECK(has(refused(stack).message, "{256, 512, 1, 2}"));
  pn::Error extra =
      refused(model().values("blk.0.attn_q_norm.weight", {32}, std::vector<float>(32, 1)));
  CHECK(extra.param == "blk.0.attn_q_norm.weight");
  CHECK(extra.code == pn::Code::unsupported);
  pn::Error beyond = refused(model().u32("llama.block_count", 1));
  CHECK(has(beyond.message, "9 tensors in all"));
  CHECK(refused(model().u32("llama.block_count", 3)).param == "blk.2.attn_norm.weight");
  CHECK(refused(model(true).erase_tensor("blk.0.ffn_gate_inp.weight")).param ==
        "blk.0.ffn_gate_inp.weight");
}

TEST_CASE("a tokenizer larger than the embedding table is refused, a smaller one bounds the draw") {
  auto shrink = [](int64_t rows) {
    GgufWriter w = model();
    w.find("token_embd.weight").shape[1] = rows;
    w.find("output.weight").shape[1] = rows;
    return w;
  };
  CHECK(has(refused(shrink(500)).message, "512 tokens"));
  auto padded = load(shrink(640));
  REQUIRE(padded);
  CHECK((*padded)->params().vocab == 640);
  pn::arch::PlanOptions o;
  o.shapes = {{1, 1, 1, 1}};
  auto plan = (*padded)->plan(o);
  REQUIRE(plan);
  CHECK(static_cast<const pn_op_emit*>(plan->ops.back().params)->vocab == 512);
}

TEST_CASE("other architectures are refused with the list of known ones") {
  pn::Error e = refused(model().text("general.architecture", "mamba"));
  CHECK(e.code == pn::Code::unsupported);
  CHECK(e.param == "general.architecture");
  CHECK(has(e.message, "'mamba'"));
  for (const std::string& known : pn::arch::known_architectures()) CHECK(has(e.message, known));
}

TEST_CASE("plan options that cannot be are refused") {
  auto loaded = load(model());
  REQUIRE(loaded);
  pn::arch::PlanOptions good;
  good.shapes = {{8, 2, 2, 64}};
  CHECK((*loaded)->plan(good));
  auto param = [&](auto change) {
    pn::arch::PlanOptions o = good;
    change(o);
    auto plan = (*loaded)->plan(o);
    REQUIRE(!plan);
    return plan.error().param;
  };
  CHECK(param([](auto& o) { o.lanes = 0; }) == "lanes");
  CHECK(param([](auto& o) { o.context = 1025; }) == "context");
  CHECK(param([](auto& o) { o.page_tokens = 48; }) == "page_tokens");
  CHECK(param([](auto& o) { o.shapes.clear(); }) == "shapes");
  CHECK(param([](auto& o) { o.shapes[0].entries = 5; }) == "shapes");
  CHECK(param([](auto& o) { o.shapes[0].context = 2000; }) == "shapes");
}
