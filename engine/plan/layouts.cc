// SPDX-License-Identifier: Apache-2.0
//
// Asks rank() for every weight and takes the first answer within the allowed loss. Owns the words
// of a refusal, which name the tensor; knows no layout by name.
#include "engine/plan/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace pn::engine {
namespace {

pn_layout_choice as_it_is(const arch::Source& source) {
  pn_layout_choice choice{};
  choice.struct_size = sizeof(choice);
  choice.tile_count = 1;
  choice.tile_bytes = source_size(source);
  return choice;
}

Result<pn_layout_choice> choose(const hal::Layout& layouts, const pn_weight& weight,
                                uint32_t loss) {
  Result<std::vector<pn_layout_choice>> choices = layouts.rank(weight);
  if (!choices) return tl::make_unexpected(std::move(choices).error());
  for (const pn_layout_choice& choice : *choices) {
    if (choice.loss <= loss) return choice;
  }
  static const char* const kNames[] = {"none", "bounded", "allowed"};
  const pn_layout_choice& first = choices->front();
  return fail(Code::unsupported,
              fmt::format("it would become {}, which loses more than `lossy: {}` allows: set "
                          "lossy: {} for this model, or use a file in another type",
                          first.name, kNames[loss], kNames[std::min(2u, first.loss)]));
}

// The plugin knows a type by its number; users know it by its name, and want to hear how much of
// the file has it.
tl::unexpected<Error> refused(const arch::Plan& plan, uint32_t weight, Error error) {
  const arch::Source& source = plan.sources[weight];
  uint32_t type = plan.weights[weight].source_type;
  const gguf::TypeInfo* info = gguf::type_info(type);
  auto alike = std::count_if(plan.weights.begin(), plan.weights.end(),
                             [type](const pn_weight& w) { return w.source_type == type; });
  error.message = fmt::format("tensor {} ({}, as {} of {} are): {}", source.name,
                              info != nullptr ? info->name : fmt::format("type {}", type), alike,
                              plan.weights.size(), error.message);
  error.param = source.name;
  return tl::make_unexpected(std::move(error));
}

}  // namespace

Result<WeightLayouts> choose_layouts(const hal::Device& device, uint32_t heap, uint32_t loss,
                                     arch::Plan& plan) {
  WeightLayouts out;
  Result<hal::Layout> layouts = hal::Layout::of(device.plugin_ptr(), device.info().layout_target);
  if (layouts) out.convert = std::move(*layouts);
  std::map<std::pair<const gguf::Tensor*, uint64_t>, uint32_t> known;
  for (uint32_t i = 0; i < plan.weights.size(); ++i) {
    pn_weight& weight = plan.weights[i];
    const arch::Source& source = plan.sources[i];
    weight.heap = heap;
    pn_layout_choice choice = as_it_is(source);
    if (out.convert) {
      Result<pn_layout_choice> best = choose(*out.convert, weight, loss);
      if (!best) return refused(plan, i, std::move(best).error());
      choice = *best;
    }
    weight.layout = choice.layout;
    out.choices.push_back(choice);
    uint32_t shares = i;
    if (source.tensor != nullptr) {
      shares = known.try_emplace({source.tensor, choice.layout}, i).first->second;
    }
    out.shares.push_back(shares);
  }
  return out;
}

const std::byte* source_bytes(const arch::Source& source) {
  if (source.tensor != nullptr) return source.tensor->data;
  return reinterpret_cast<const std::byte*>(source.computed.data());
}

uint64_t source_size(const arch::Source& source) {
  return source.tensor != nullptr ? source.tensor->bytes : source.computed.size() * sizeof(float);
}

}  // namespace pn::engine
