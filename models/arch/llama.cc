// SPDX-License-Identifier: Apache-2.0
//
// Architecture `llama`: Llama 1 to 3, Mistral, Mixtral, SmolLM, TinyLlama, MiniCPM5 and their kin.
//
// Owns what is particular to it: rope over the whole head in neighbouring pairs, optional biases,
// experts in the Mixtral manner. Knows no device. Per block:
//   x += Wo attention(rope(Wq n), rope(Wk n), Wv n), n = rms(x, attn_norm)
//   x += Wd (silu(Wg n) * Wu n),                     n = rms(x, ffn_norm)
#include <fmt/format.h>

#include "models/arch/blocks.h"
#include "models/arch/registry.h"

namespace pn::arch {
namespace {

Result<HyperParams> read(const gguf::File& file) {
  Keys keys(file, kLlama.name);
  PN_TRY(HyperParams p, keys.common(kLlama.name));
  PN_TRY(RopeParams r, read_rope(keys, p));
  if (r.dims != p.key_dim)
    return keys.bad(
        "rope.dimension_count",
        fmt::format("is {}; architecture 'llama' rotates the whole head of {}", r.dims, p.key_dim));
  return p;
}

Result<MoeSpec> experts(const Keys& keys) {
  MoeSpec m;
  PN_TRY(m.scale, keys.f32("expert_weights_scale", 0));
  if (m.scale == 0) m.scale = 1;  // the format's "not scaled"
  PN_TRY(m.gating, keys.u32("expert_gating_func", PN_GATE_SOFTMAX));
  if (m.gating < PN_GATE_SOFTMAX || m.gating > PN_GATE_SOFTMAX_SELECTED)
    return keys.bad(
        "expert_gating_func",
        fmt::format("is {}; 1 softmax, 2 sigmoid and 3 softmax over the chosen are known",
                    m.gating));
  return m;
}

Result<Plan> build(const Model& model, const PlanOptions& options) {
  Builder b(model, options);
  const HyperParams& h = model.params();
  Keys keys(model.file(), kLlama.name);
  PN_TRY(MoeSpec routing, experts(keys));
  PN_TRY(Stem stem, embed(b, 1));
  PN_TRY(AttentionSpec spec, rope(b, keys, PN_ROPE_NORM));
  spec.cache = paged_cache(b, h.layers);
  uint16_t x = stem.hidden;
  for (uint32_t i = 0; i < h.layers; ++i) {
    b.layer(i);
    b.ignore(b.block("attn_rot_embd.weight"));  // old files keep the plain frequencies there
    spec.cache_layer = i;
    PN_TRY(x, attention(b, x, spec));
    PN_TRY(x, h.experts == 0 ? mlp(b, x) : moe(b, x, routing));
  }
  PN_TRY(head(b, stem, x));
  return b.finish();
}

}  // namespace

const Architecture kLlama = {"llama", read, build};

}  // namespace pn::arch
