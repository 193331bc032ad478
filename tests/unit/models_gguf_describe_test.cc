// SPDX-License-Identifier: Apache-2.0
//
// show, list and verify: right facts of a good file, and every finding with what, where and fix.
#include "models/gguf/describe.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/gguf/reader.h"
#include "tests/support/random_model.h"
#include "tests/support/scratch.h"

namespace {

namespace fs = std::filesystem;
using pn::gguf::State;
using pn::test::GgufWriter;

GgufWriter model(const std::string& type) {
  pn::test::ModelSpec spec;
  spec.type = type;
  auto writer = pn::test::random_model(spec);
  REQUIRE(writer);
  return *writer;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("show: the facts of a model") {
  std::vector<std::byte> image = model("Q4_K_M").image();
  auto file = pn::gguf::Reader().from_memory(image, "dir/m.gguf");
  REQUIRE(file);
  pn::gguf::Summary s = pn::gguf::summarise(*file);
  CHECK(s.name == "random tiny");
  CHECK(s.architecture == "llama");
  CHECK(s.parameters == 1443072);
  CHECK(s.tensors == 21);
  CHECK(s.context == 1024);
  CHECK(s.tokenizer == "llama, default");
  CHECK(s.tokens == 512);
  CHECK(s.chat_template);
  CHECK(s.bytes == image.size());
  CHECK(s.state == State::ok);
  REQUIRE(s.params);
  CHECK(s.params->kv_heads == 4);
  CHECK(s.kv_bytes_per_token == 2 * 2 * 4 * 64);
  REQUIRE(s.types.size() == 3);
  CHECK(s.types[0].type == "Q4_K");
  CHECK(s.types[0].elements * 144 / 256 == s.types[0].bytes);
  CHECK(s.types[1].type == "Q6_K");
  CHECK(s.types[1].tensors == 3);  // output, and attn_v and ffn_down of one layer in two
  CHECK(s.types[2].type == "F32");
  CHECK(s.types[2].tensors == 5);
  nlohmann::ordered_json j = pn::gguf::to_json(s);
  CHECK(j["parameters"] == 1443072);
  CHECK(j["types"][1]["type"] == "Q6_K");
  CHECK(j["state"] == "ok");
  CHECK(j["layers"] == 2);
}

TEST_CASE("show: a model that this build cannot run says why, and still shows its facts") {
  GgufWriter w = model("F16");
  w.text("general.architecture", "mamba").erase("general.name");
  std::vector<std::byte> image = w.image();
  auto file = pn::gguf::Reader().from_memory(image, "dir/m.gguf");
  REQUIRE(file);
  pn::gguf::Summary s = pn::gguf::summarise(*file);
  CHECK(s.name == "m");
  CHECK(s.state == State::unsupported);
  CHECK(has(s.refusal, "'mamba'"));
  CHECK(!s.params);
  GgufWriter rare = model("F16");
  rare.find("blk.1.ffn_up.weight").type = 39;
  rare.find("blk.1.ffn_up.weight").rows = {};
  image = rare.image();
  file = pn::gguf::Reader().from_memory(image, "dir/m.gguf");
  REQUIRE(file);
  s = pn::gguf::summarise(*file);
  CHECK(s.state == State::unsupported);
  CHECK(has(s.refusal, "type MXFP4"));
}

TEST_CASE("list: ok, incomplete, broken, unsupported; split sets once") {
  pn::test::Scratch scratch;
  fs::create_directories(scratch.path("sub/deep"));
  GgufWriter w = model("Q8_0");
  REQUIRE(w.write(scratch.path("sub/a.gguf")));
  REQUIRE(w.write(scratch.path("b.gguf")));
  fs::resize_file(scratch.path("b.gguf"), fs::file_size(scratch.path("b.gguf")) - 1);
  std::ofstream(scratch.path("c.gguf")) << "hello hello hello";
  std::ofstream(scratch.path("notes.txt")) << "no model";
  GgufWriter other = w;
  other.text("general.architecture", "mamba");
  REQUIRE(other.write(scratch.path("d.gguf")));
  REQUIRE(w.write_split(scratch.path("sub/deep/e"), 3));
  REQUIRE(w.write_split(scratch.path("f"), 2));
  fs::remove(scratch.path("f-00001-of-00002.gguf"));
  GgufWriter inconsistent = w;
  inconsistent.u32("llama.embedding_length", 128);
  REQUIRE(inconsistent.write(scratch.path("g.gguf")));

  auto files = pn::gguf::list(scratch.folder());
  REQUIRE(files);
  std::vector<std::pair<std::string, State>> wanted = {
      {"b.gguf", State::incomplete},
      {"c.gguf", State::broken},
      {"d.gguf", State::unsupported},
      {"f-00002-of-00002.gguf", State::incomplete},
      {"g.gguf", State::broken},
      {"sub/a.gguf", State::ok},
      {"sub/deep/e-00001-of-00003.gguf", State::ok}};
  REQUIRE(files->size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(wanted[i].first);
    const pn::gguf::Listed& l = (*files)[i];
    CHECK(l.path == scratch.path(wanted[i].first));
    CHECK(l.state == wanted[i].second);
    CHECK(l.reason.empty() == (l.state == State::ok));
  }
  uint64_t set_bytes = 0;
  for (int n = 1; n <= 3; ++n)
    set_bytes +=
        fs::file_size(scratch.path("sub/deep/e-0000" + std::to_string(n) + "-of-00003.gguf"));
  CHECK((*files)[6].bytes == set_bytes);
  CHECK((*files)[6].summary->parts == 3);
  CHECK(pn::gguf::to_json(*files)[0]["state"] == "incomplete");
  auto none = pn::gguf::list(scratch.path("nowhere"));
  REQUIRE(!none);
  CHECK(none.error().code == pn::Code::not_found);
}

TEST_CASE("verify: a good file has no problem, and every byte was looked at") {
  pn::test::Scratch scratch;
  REQUIRE(model("Q5_K_M").write(scratch.path("m.gguf")));
  uint64_t last = 0, wanted = 0;
  pn::gguf::VerifyOptions options;
  options.progress = [&](uint64_t done, uint64_t total) {
    CHECK(done > last);
    last = done;
    wanted = total;
    return true;
  };
  auto problems = pn::gguf::verify(scratch.path("m.gguf"), options);
  CHECK(problems.empty());
  CHECK(last == wanted);
  CHECK(last > 900000);
}

TEST_CASE("verify: NaN, holes, unknown types, damage") {
  pn::test::Scratch scratch;
  std::string path = scratch.path("m.gguf");
  auto problems_of = [&](const GgufWriter& w) {
    REQUIRE(w.write(path));
    auto problems = pn::gguf::verify(path, {});
    for (const pn::gguf::Problem& p : problems) {
      CHECK(!p.what.empty());
      CHECK(!p.where.empty());
      CHECK(!p.fix.empty());
    }
    return problems;
  };
  GgufWriter nan = model("F16");
  auto& t = nan.find("blk.0.ffn_up.weight");
  t.rows = [rows = t.rows](uint64_t first, uint64_t count, std::byte* out) {
    rows(first, count, out);
    uint16_t bits = 0x7c01;
    if (first <= 7 && 7 < first + count) std::memcpy(out + (7 - first) * 512 + 6, &bits, 2);
  };
  auto found = problems_of(nan);
  REQUIRE(found.size() == 1);
  CHECK(found[0].fatal);
  CHECK(found[0].where == "blk.0.ffn_up.weight");
  CHECK(has(found[0].what, "1 values that are NaN or infinite, element 1795 first"));

  GgufWriter hole = model("F16");
  hole.find("blk.1.ffn_down.weight").rows = {};
  found = problems_of(hole);
  REQUIRE(found.size() == 1);
  CHECK(!found[0].fatal);
  CHECK(found[0].where == "blk.1.ffn_down.weight");
  CHECK(has(found[0].what, "262144 bytes"));

  GgufWriter rare = model("F16");
  rare.find("blk.1.ffn_up.weight").type = 39;
  rare.find("blk.1.ffn_up.weight").rows = [](uint64_t, uint64_t count, std::byte* out) {
    std::fill_n(out, count * 136, std::byte{0x77});
  };
  found = problems_of(rare);
  REQUIRE(found.size() == 1);
  CHECK(has(found[0].what, "1 of 21 tensors"));

  GgufWriter ids = model("F16");
  ids.u32("tokenizer.ggml.eot_token_id", 5000);
  found = problems_of(ids);
  REQUIRE(found.size() == 1);
  CHECK(!found[0].fatal);

  REQUIRE(model("F16").write(path));
  fs::resize_file(path, fs::file_size(path) - 100);
  auto cut = pn::gguf::verify(path, {});
  REQUIRE(cut.size() == 1);
  CHECK(has(cut[0].fix, "resume"));
  CHECK(pn::gguf::to_json(cut)[0]["fatal"] == true);
}
