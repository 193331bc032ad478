// SPDX-License-Identifier: Apache-2.0
//
// logits PLUGIN.so MODEL.gguf OUT.f32 [key=value ...]: raw logits of token ids read from stdin.
//
// For quality checks in separate processes, since one process loads a plugin with one set of
// options. `kv=f16` is taken here, every other pair goes to the plugin. OUT: (tokens, vocab) F32.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "engine/service/evaluate.h"

namespace {

int failed(const pn::Error& error) {
  std::fprintf(stderr, "logits: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: logits PLUGIN.so MODEL.gguf OUT.f32 [key=value ...] < ids\n");
    return 2;
  }
  pn::hal::LoadRequest request;
  request.plugin = argv[1];
  pn::engine::EvaluateConfig config;
  config.file = argv[2];
  for (int i = 4; i < argc; ++i) {
    const std::string pair = argv[i];
    const size_t mark = pair.find('=');
    if (pair == "kv=f16") {
      config.kv_type = PN_TYPE_F16;
      continue;
    }
    request.options.emplace_back(pair.substr(0, mark), pair.substr(mark + 1));
  }
  auto plugin = pn::hal::Plugin::load(request);
  if (!plugin) return failed(plugin.error());
  config.plugin = *plugin;
  std::vector<int32_t> ids;
  for (int32_t id; std::cin >> id;) ids.push_back(id);
  auto evaluator = pn::engine::Evaluator::open(config);
  if (!evaluator) return failed(evaluator.error());
  const auto logits = (*evaluator)->logits(ids);
  if (!logits) return failed(logits.error());
  std::FILE* out = std::fopen(argv[3], "wb");
  const size_t wrote = out ? std::fwrite(logits->data(), sizeof(float), logits->size(), out) : 0;
  if (out) std::fclose(out);
  return wrote == logits->size() ? 0 : 1;
}
