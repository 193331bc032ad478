// SPDX-License-Identifier: Apache-2.0
//
// Puts a plan together: weights by tensor name and expected shape, slots, ops.
//
// Owns the plan while it grows, and the record of which tensors it used. Knows no architecture. The
// one idea: a weight can only be had by stating its shape, and finish() refuses tensors that nobody
// asked for, so a plan never computes something else than the file means.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "models/arch/plan.h"

namespace pn::arch {

// One op: numbers of slots and weights in the order of its declaration, PN_NO16 for a gap.
struct OpSpec {
  uint16_t op = 0;
  std::vector<uint16_t> in, out, weight;
};

// A weight's wanted shape: {in, out}, {in, out, experts}, {n}.
struct Want {
  uint32_t role = PN_ROLE_MATRIX;
  int64_t shape[3] = {1, 1, 1};
};

inline Want matrix(int64_t in, int64_t out) { return {PN_ROLE_MATRIX, {in, out, 1}}; }
inline Want vector(int64_t n) { return {PN_ROLE_VECTOR, {n, 1, 1}}; }
inline Want stack(int64_t in, int64_t out, int64_t experts) {
  return {PN_ROLE_EXPERTS, {in, out, experts}};
}

class Builder {
 public:
  Builder(const Model& model, const PlanOptions& options);

  const Model& model() const { return model_; }
  const HyperParams& params() const { return model_.params(); }
  const PlanOptions& options() const { return options_; }

  // All weights and ops made from here on belong to this layer; "blk.N." + name is their tensor.
  void layer(uint32_t number) { layer_ = number; }
  std::string block(std::string_view name) const;

  bool has(const std::string& tensor) const { return model_.file().tensor(tensor) != nullptr; }

  // NAME.weight, with NAME.bias and NAME.scale hung on it when the file has them.
  Result<uint16_t> weight(const std::string& name, const Want& want);
  // The same, PN_NO16 when the file has no NAME.weight.
  Result<uint16_t> optional(const std::string& name, const Want& want);
  // A tensor by its whole name, as F32 in the plan whatever the file's type.
  Result<uint16_t> f32_vector(const std::string& tensor, const Want& want);
  // Values worked out by the architecture.
  uint16_t computed(const std::string& name, std::vector<float> values, uint32_t role);
  // Values of an F32-able vector tensor, to compute from.
  Result<std::vector<float>> values(const std::string& tensor, const Want& want);
  // Tensors that mean nothing to the result.
  void ignore(const std::string& tensor) { used_.insert(tensor); }

  uint16_t slot(uint32_t rows, uint32_t width, uint32_t type);
  uint16_t cache(const pn_cache& cache);

  template <typename Params>
  void op(const OpSpec& spec, const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params>);
    Params copy = params;
    copy.struct_size = sizeof copy;
    auto blob = std::make_unique<std::byte[]>(sizeof copy);
    std::memcpy(blob.get(), &copy, sizeof copy);
    add(spec, std::move(blob));
  }
  void op(const OpSpec& spec) { add(spec, nullptr); }

  tl::unexpected<Error> bad(const std::string& tensor, const std::string& what) const;

  // Refuses tensors that were not used; then the plan is the caller's.
  Result<Plan> finish();

 private:
  Result<const gguf::Tensor*> find(const std::string& tensor, const Want& want);
  uint16_t push(const Want& want, Source source);
  void add(const OpSpec& spec, std::unique_ptr<std::byte[]> params);

  const Model& model_;
  const PlanOptions& options_;
  Plan plan_;
  uint32_t layer_ = 0;
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, uint16_t> made_;
};

}  // namespace pn::arch
