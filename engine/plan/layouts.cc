// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/layouts.h"

#include <fmt/format.h>

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

Result<pn_layout_choice> choose(const hal::Layout& layouts, const pn_weight& weight, uint32_t loss,
                                const std::string& name) {
  Result<std::vector<pn_layout_choice>> choices = layouts.rank(weight);
  if (!choices) {
    Error error = std::move(choices).error();
    error.message = fmt::format("tensor {}: {}", name, error.message);
    error.param = name;
    return tl::make_unexpected(std::move(error));
  }
  for (const pn_layout_choice& choice : *choices) {
    if (choice.loss <= loss) return choice;
  }
  static const char* const kNames[] = {"none", "bounded", "allowed"};
  const pn_layout_choice& first = choices->front();
  return fail(
      Code::unsupported,
      fmt::format("tensor {} would become {}, which loses more than `lossy: {}` allows: set "
                  "lossy: {} for this model, or use a file in another type",
                  name, first.name, kNames[loss], kNames[std::min(2u, first.loss)]),
      name);
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
      PN_TRY(choice, choose(*out.convert, weight, loss, source.name));
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
