// SPDX-License-Identifier: Apache-2.0
//
// The list of architectures.
//
// Owns the two functions that make an architecture: hyper-parameters from a file, and a plan from
// both. Knows no formula. The one idea: load() builds one plan and throws it away, so the tensors
// are named and their shapes are stated in one place, the build function.
#pragma once

#include "models/arch/plan.h"

namespace pn::arch {

struct Architecture {
  const char* name;  // general.architecture
  Result<HyperParams> (*read)(const gguf::File& file);
  Result<Plan> (*build)(const Model& model, const PlanOptions& options);
};

// One an architecture file; model.cc lists them.
extern const Architecture kLlama;

}  // namespace pn::arch
