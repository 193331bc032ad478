// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a model file.
//
// Owns the fuzz entry: parse, then use everything that the parser promises to be in bounds. Knows
// no mutation (libFuzzer's, or the unit test's). What may not happen: a crash, a sanitizer report,
// a tensor outside the image.
#include <cstdlib>
#include <span>

#include "models/arch/plan.h"
#include "models/gguf/reader.h"
#include "models/gguf/vocabulary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span image(reinterpret_cast<const std::byte*>(data), size);
  auto file = pn::gguf::Reader().from_memory(image, "fuzz");
  if (!file) {
    if (file.error().message.empty()) std::abort();
    return 0;
  }
  unsigned sum = 0;
  for (const pn::gguf::Tensor& t : (*file)->tensors()) {
    if (t.bytes == 0) continue;
    if (t.data < image.data() || t.data + t.bytes > image.data() + image.size()) std::abort();
    sum += std::to_integer<unsigned>(t.data[0]) + std::to_integer<unsigned>(t.data[t.bytes - 1]);
  }
  std::vector<std::string> warnings;
  (void)pn::gguf::read_vocabulary(**file, &warnings);
  if (auto model = pn::arch::Model::load(*file)) {
    pn::arch::PlanOptions options;
    options.shapes = {{1, 1, 1, 1}};
    auto plan = (*model)->plan(options);
    if (!plan || plan->sources.size() != plan->weights.size()) std::abort();
  }
  return static_cast<int>(sum & 0);
}
