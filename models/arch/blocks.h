// SPDX-License-Identifier: Apache-2.0
//
// Pieces that most decoder-only transformers share.
//
// Owns the ops of embedding, attention, feed-forward and head. Knows no architecture by name: what
// differs is a parameter. The one idea: an architecture file reads like its paper, one call a
// sub-layer.
#pragma once

#include "models/arch/builder.h"
#include "models/arch/rope.h"

namespace pn::arch {

// What the attention of one layer is made of.
struct AttentionSpec {
  uint16_t cache = 0;
  uint32_t cache_layer = 0;
  uint16_t rope = PN_NO16;  // weight
  uint32_t rope_kind = PN_ROPE_NORM;
  uint32_t rope_dims = 0;
  float rope_magnitude = 1;
  float scale = 0;       // of the scores
  bool qk_norm = false;  // attn_q_norm, attn_k_norm
};

struct MoeSpec {
  uint32_t gating = PN_GATE_SOFTMAX;
  bool renormalise = true;
  float sum_min = 0;
  float scale = 1;
};

// EMBED; also says which weight the head will use.
struct Stem {
  uint16_t table = 0;
  uint16_t hidden = 0;  // slot [T, D]
};
Result<Stem> embed(Builder& b, float scale);

// One paged cache over all attention layers.
uint16_t paged_cache(Builder& b, uint32_t layers);

// The rope weight for the chosen context: rope_freqs, or long or short factors when the file has
// any.
Result<AttentionSpec> rope(Builder& b, const Keys& keys, uint32_t kind);

// x + Wo attention(norm(x)); QKV fused or apart, as the file has it. Gives the new slot.
Result<uint16_t> attention(Builder& b, uint16_t x, const AttentionSpec& spec);

// x + mlp(norm(x)), and the same with experts.
Result<uint16_t> mlp(Builder& b, uint16_t x);
Result<uint16_t> moe(Builder& b, uint16_t x, const MoeSpec& spec);

// ROWS, NORM, LINEAR, EMIT.
Result<void> head(Builder& b, const Stem& stem, uint16_t x);

}  // namespace pn::arch
