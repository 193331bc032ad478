// SPDX-License-Identifier: Apache-2.0
//
// Grows a plan.
//
// Owns the checks of tensors against wanted shapes. Knows no architecture.
#include "models/arch/builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/gguf/text.h"
#include "models/quant/dequantise.h"

namespace pn::arch {
namespace {

std::string shape_text(const int64_t* shape, uint32_t rank) {
  std::string text = "{";
  for (uint32_t d = 0; d < rank; ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + "}";
}

uint32_t rank_of(const Want& want) {
  return want.shape[2] > 1 || want.role == PN_ROLE_EXPERTS  ? 3
         : want.shape[1] > 1 || want.role != PN_ROLE_VECTOR ? 2
                                                            : 1;
}

void fill(uint16_t* to, size_t room, const std::vector<uint16_t>& from) {
  std::fill(to, to + room, uint16_t{PN_NO16});
  std::copy_n(from.begin(), std::min(room, from.size()), to);
}

}  // namespace

Builder::Builder(const Model& model, const PlanOptions& options)
    : model_(model), options_(options) {
  plan_.lanes = options.lanes;
  plan_.shapes = options.shapes;
}

std::string Builder::block(std::string_view name) const {
  return fmt::format("blk.{}.{}", layer_, name);
}

tl::unexpected<Error> Builder::bad(const std::string& tensor, const std::string& what) const {
  return fail(
      Code::invalid,
      fmt::format("{}: tensor {} {}", model_.file().shards()[0].path, gguf::quoted(tensor), what),
      tensor);
}

Result<const gguf::Tensor*> Builder::find(const std::string& tensor, const Want& want) {
  const gguf::Tensor* t = model_.file().tensor(tensor);
  if (t == nullptr)
    return bad(tensor, fmt::format("is missing; architecture '{}' needs it with shape {}: the file "
                                   "is incomplete or of another kind",
                                   params().architecture, shape_text(want.shape, rank_of(want))));
  if (!std::equal(want.shape, want.shape + 3, t->shape.begin()) || t->shape[3] != 1)
    return bad(tensor,
               fmt::format("has shape {}, the hyper-parameters of '{}' ask for {}: the file "
                           "is inconsistent, convert it again",
                           shape_text(t->shape.data(), std::max(t->rank, 1u)),
                           params().architecture, shape_text(want.shape, rank_of(want))));
  used_.insert(tensor);
  return t;
}

uint16_t Builder::push(const Want& want, Source source) {
  pn_weight w{};
  w.struct_size = sizeof w;
  w.role = want.role;
  w.layer = layer_;
  w.source_type = source.tensor ? source.tensor->type : uint32_t{PN_TYPE_F32};
  std::copy_n(want.shape, 3, w.shape);
  w.shape[3] = 1;
  w.bias = w.scale = w.adapter_a = w.adapter_b = PN_NO16;
  plan_.weights.push_back(w);
  plan_.sources.push_back(std::move(source));
  return static_cast<uint16_t>(plan_.weights.size() - 1);
}

Result<uint16_t> Builder::weight(const std::string& name, const Want& want) {
  if (auto made = made_.find(name); made != made_.end()) return made->second;
  if (want.role == PN_ROLE_VECTOR) {
    PN_TRY(uint16_t index, f32_vector(name + ".weight", want));
    made_.emplace(name, index);
    return index;
  }
  PN_TRY(const gguf::Tensor* t, find(name + ".weight", want));
  uint16_t index = push(want, {t->name, t, {}});
  made_.emplace(name, index);
  bool experts = want.role == PN_ROLE_EXPERTS;
  if (std::string bias = name + ".bias"; has(bias)) {
    Want shape{PN_ROLE_VECTOR, {want.shape[1], experts ? want.shape[2] : 1, 1}};
    PN_TRY(plan_.weights[index].bias, f32_vector(bias, shape));
  }
  if (std::string scale = name + ".scale"; has(scale)) {
    PN_TRY(plan_.weights[index].scale, f32_vector(scale, vector(experts ? want.shape[2] : 1)));
  }
  return index;
}

Result<uint16_t> Builder::optional(const std::string& name, const Want& want) {
  return has(name + ".weight") ? weight(name, want) : Result<uint16_t>(uint16_t{PN_NO16});
}

Result<uint16_t> Builder::f32_vector(const std::string& tensor, const Want& want) {
  PN_TRY(const gguf::Tensor* t, find(tensor, want));
  if (t->type == PN_TYPE_F32) return push(want, {t->name, t, {}});
  PN_TRY(std::vector<float> converted, values(tensor, want));
  return push(want, {t->name, nullptr, std::move(converted)});
}

uint16_t Builder::computed(const std::string& name, std::vector<float> numbers, uint32_t role) {
  Want want{role, {static_cast<int64_t>(numbers.size()), 1, 1}};
  return push(want, {name, nullptr, std::move(numbers)});
}

Result<std::vector<float>> Builder::values(const std::string& tensor, const Want& want) {
  PN_TRY(const gguf::Tensor* t, find(tensor, want));
  if (!quant::decodable(t->type)) return tl::make_unexpected(quant::undecodable(t->type, t->name));
  std::vector<float> out(static_cast<size_t>(want.shape[0] * want.shape[1] * want.shape[2]));
  PN_TRY(quant::dequantise(t->type, t->data, out));
  return out;
}

uint16_t Builder::slot(uint32_t rows, uint32_t width, uint32_t type) {
  pn_slot s{};
  s.struct_size = sizeof s;
  s.kind = PN_SLOT_INTERNAL;
  s.rows = rows;
  s.width = width;
  s.type = type;
  plan_.slots.push_back(s);
  return static_cast<uint16_t>(plan_.slots.size() - 1);
}

uint16_t Builder::cache(const pn_cache& cache) {
  plan_.caches.push_back(cache);
  plan_.caches.back().struct_size = sizeof cache;
  return static_cast<uint16_t>(plan_.caches.size() - 1);
}

void Builder::add(const OpSpec& spec, std::unique_ptr<std::byte[]> params) {
  pn_op o{};
  o.struct_size = sizeof o;
  o.op = spec.op;
  o.layer = layer_;
  fill(o.in, std::size(o.in), spec.in);
  fill(o.out, std::size(o.out), spec.out);
  fill(o.weight, std::size(o.weight), spec.weight);
  o.params = params.get();
  plan_.ops.push_back(o);
  if (params) plan_.params.push_back(std::move(params));
}

Result<Plan> Builder::finish() {
  uint64_t unused = 0;
  const gguf::Tensor* first = nullptr;
  for (const gguf::Tensor& t : model_.file().tensors()) {
    if (used_.contains(t.name)) continue;
    // Inputs of other arithmetic than ours: they change no value here.
    if (t.name.ends_with(".input_scale")) continue;
    first = first ? first : &t;
    ++unused;
  }
  if (first != nullptr) {
    auto e =
        bad(first->name, fmt::format("({} tensors in all) has no place in architecture '{}' as "
                                     "this build knows it; computing without it would give "
                                     "other answers: update pantheon",
                                     unused, params().architecture))
            .value();
    e.code = Code::unsupported;
    return tl::make_unexpected(std::move(e));
  }
  return std::move(plan_);
}

}  // namespace pn::arch
