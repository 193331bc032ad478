// SPDX-License-Identifier: Apache-2.0
//
// What a model computes, as data: hyper-parameters, and the plan that a plugin compiles.
//
// Owns the arrays behind a pn_plan and, for each weight, where its bytes come from. Knows the HAL's
// op list and GGUF tensors; knows no device. The one idea: an architecture is a function from a
// file to this data, so the engine, `pantheon plan` and every plugin read the same thing.
#pragma once

#include <pantheon/hal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hal/host/result.h"
#include "models/gguf/file.h"

namespace pn::arch {

struct HyperParams {
  std::string architecture;  // general.architecture
  uint32_t context = 0;      // tokens the model was trained for
  uint32_t embed = 0;        // D
  uint32_t layers = 0;
  uint32_t ff = 0;     // per expert when experts > 0
  uint32_t heads = 0;  // H, query heads
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;  // of one head
  uint32_t value_dim = 0;
  uint32_t vocab = 0;    // rows of token_embd
  uint32_t experts = 0;  // 0: dense
  uint32_t experts_used = 0;
  float norm_eps = 0;
  bool tied = false;        // no output.weight: the embedding table is the head
  uint64_t parameters = 0;  // elements of all tensors
};

// Where a weight's bytes come from: a tensor of the file, or F32 values worked out here (rope
// tables, norms that the file holds in another type).
struct Source {
  std::string name;                      // tensor name, or "rope"
  const gguf::Tensor* tensor = nullptr;  // nullptr: computed
  std::vector<float> computed;
};

// Owns what a pn_plan points to. Growing a vector moves it: call view() last.
struct Plan {
  std::vector<pn_op> ops;
  std::vector<pn_slot> slots;
  std::vector<pn_weight> weights;
  std::vector<pn_cache> caches;
  std::vector<pn_shape> shapes;
  std::vector<Source> sources;                       // one a weight
  std::vector<std::unique_ptr<std::byte[]>> params;  // blobs that ops point to
  uint32_t lanes = 0;
  uint32_t ids_depth = 1;

  pn_plan view() const;  // valid until this Plan changes or dies
};

// What the engine wants of a plan; everything else is the model's.
struct PlanOptions {
  uint32_t lanes = 4;    // sequences alive at once
  uint32_t context = 0;  // tokens a lane may hold; <= HyperParams.context
  uint32_t page_tokens = 64;
  uint32_t key_type = PN_TYPE_F16;  // of the KV cache
  uint32_t value_type = PN_TYPE_F16;
  std::vector<pn_shape> shapes;  // buckets, smallest first
};

// A checked model: every hyper-parameter and every tensor of its architecture is present with the
// right shape, or opening failed with the key or tensor and both shapes named.
class Model {
 public:
  static Result<std::shared_ptr<const Model>> load(std::shared_ptr<const gguf::File> file);

  const HyperParams& params() const { return params_; }
  const gguf::File& file() const { return *file_; }
  // EMBED, layers, ROWS, NORM, LINEAR, EMIT. Layout and heap of each weight are left 0 for the
  // engine.
  Result<Plan> plan(const PlanOptions& options) const;

 private:
  Model() = default;
  std::shared_ptr<const gguf::File> file_;
  HyperParams params_;
  friend struct Registry;
  Result<Plan> (*build_)(const Model&, const PlanOptions&) = nullptr;
};

// Names of general.architecture that load() accepts, for messages.
const std::vector<std::string>& known_architectures();

}  // namespace pn::arch
