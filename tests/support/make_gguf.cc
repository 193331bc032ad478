// SPDX-License-Identifier: Apache-2.0
//
// make_gguf PRESET TYPE OUT [options]: writes a model with random weights.
//
// Owns the words of this command. Knows no bytes: random_model.h does the work.
//   make_gguf tiny F16 tiny.gguf
//   make_gguf minicpm5 Q4_K_M m.gguf
//   make_gguf 8b Q8_0 set --parts 3
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "tests/support/random_model.h"

namespace {

struct Options {
  std::string preset, type, out, rope = "none", vocabulary;
  uint32_t parts = 1;
  bool tied = false, biases = false, fused_qkv = false;
  uint32_t layers = 0, vocab = 0, key_dim = 0, context = 0, experts = 0, experts_used = 0;
  uint64_t seed = 1;
};

const std::map<std::string, pn::test::RopeScaling> kRope = {
    {"none", pn::test::RopeScaling::none},
    {"linear", pn::test::RopeScaling::linear},
    {"llama3", pn::test::RopeScaling::llama3},
    {"yarn", pn::test::RopeScaling::yarn},
    {"longrope", pn::test::RopeScaling::longrope}};
const std::map<std::string, pn::test::VocabularyKind> kVocabulary = {
    {"none", pn::test::VocabularyKind::none},
    {"spm", pn::test::VocabularyKind::spm},
    {"bpe", pn::test::VocabularyKind::bpe}};

pn::Result<void> run(const Options& o) {
  PN_TRY(pn::test::ModelSpec spec, pn::test::preset(o.preset));
  spec.type = o.type;
  spec.tied = o.tied;
  spec.biases = o.biases;
  spec.fused_qkv = o.fused_qkv;
  spec.seed = o.seed;
  spec.rope_scaling = kRope.at(o.rope);
  if (!o.vocabulary.empty()) spec.vocabulary = kVocabulary.at(o.vocabulary);
  if (o.layers) spec.layers = o.layers;
  if (o.vocab) spec.vocab = o.vocab;
  if (o.key_dim) spec.key_dim = o.key_dim;
  if (o.context) spec.context = o.context;
  if (o.experts) spec.experts = o.experts;
  if (o.experts_used) spec.experts_used = o.experts_used;
  PN_TRY(pn::test::GgufWriter writer, pn::test::random_model(spec));
  if (o.parts == 1) return writer.write(o.out);
  PN_TRY(auto paths, writer.write_split(o.out, o.parts));
  for (const std::string& p : paths) fmt::print("{}\n", p);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Write a GGUF model of architecture llama with random weights.");
  Options o;
  app.add_option("preset", o.preset, fmt::format("{}", fmt::join(pn::test::preset_names(), ", ")))
      ->required();
  app.add_option("type", o.type, "F32, F16, BF16, Q8_0, Q4_0 ... Q6_K, or Q4_K_M, Q5_K_M")
      ->required();
  app.add_option("out", o.out, "path; with --parts the prefix of the set")->required();
  app.add_option("--parts", o.parts, "files of a split set")->check(CLI::Range(1u, 99999u));
  app.add_option("--rope", o.rope, "rope scaling")->check(CLI::IsMember(kRope));
  app.add_option("--vocabulary", o.vocabulary, "kind")->check(CLI::IsMember(kVocabulary));
  app.add_flag("--tied", o.tied, "the embedding table is the head");
  app.add_flag("--biases", o.biases, "biases on every matrix of a layer");
  app.add_flag("--fused-qkv", o.fused_qkv, "one tensor for q, k and v");
  app.add_option("--layers", o.layers);
  app.add_option("--vocab", o.vocab, "tokens");
  app.add_option("--key-dim", o.key_dim, "of one head");
  app.add_option("--context", o.context);
  app.add_option("--experts", o.experts);
  app.add_option("--experts-used", o.experts_used);
  app.add_option("--seed", o.seed);
  CLI11_PARSE(app, argc, argv);
  auto done = run(o);
  if (done) return 0;
  std::fprintf(stderr, "make_gguf: %s\n", done.error().message.c_str());
  return 1;
}
