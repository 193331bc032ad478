// SPDX-License-Identifier: Apache-2.0
//
// The shared pieces of a transformer, as ops.
//
// Owns slot types: the residual stream and the logits keep F32, what lives inside a branch at least
// BF16. Knows no architecture by name.
#include "models/arch/blocks.h"

#include <fmt/format.h>

#include <cmath>

namespace pn::arch {
namespace {

constexpr uint32_t kResidual = PN_TYPE_F32;
constexpr uint32_t kBranch = PN_TYPE_BF16;

// out = rms(in) * NAME.weight
Result<uint16_t> norm(Builder& b, const std::string& name, uint16_t in, uint32_t rows) {
  PN_TRY(uint16_t w, b.weight(name, vector(b.params().embed)));
  uint16_t out = b.slot(rows, b.params().embed, kBranch);
  pn_op_norm p{};
  p.kind = PN_NORM_RMS;
  p.eps = b.params().norm_eps;
  b.op({PN_OP_NORM, {in}, {out}, {w}}, p);
  return out;
}

}  // namespace

Result<Stem> embed(Builder& b, float scale) {
  const HyperParams& h = b.params();
  Stem s;
  Want table = matrix(h.embed, h.vocab);
  table.role = h.tied ? PN_ROLE_TIED : PN_ROLE_TABLE;
  PN_TRY(s.table, b.weight("token_embd", table));
  s.hidden = b.slot(PN_ROWS_TOKENS, h.embed, kResidual);
  pn_op_embed p{};
  p.scale = scale;
  b.op({PN_OP_EMBED, {}, {s.hidden}, {s.table}}, p);
  return s;
}

uint16_t paged_cache(Builder& b, uint32_t layers) {
  const PlanOptions& o = b.options();
  pn_cache c{};
  c.kind = PN_CACHE_PAGED;
  c.unit_tokens = o.page_tokens;
  c.layers = layers;
  c.key_type = o.key_type;
  c.value_type = o.value_type;
  c.units_per_lane = (o.context + o.page_tokens - 1) / o.page_tokens;
  return b.cache(c);
}

Result<AttentionSpec> rope(Builder& b, const Keys& keys, uint32_t kind) {
  PN_TRY(RopeParams r, read_rope(keys, b.params()));
  const std::string freqs = "rope_freqs.weight";
  const std::string longer = "rope_factors_long.weight", shorter = "rope_factors_short.weight";
  std::vector<float> factors;
  Want pairs = vector(r.dims / 2);
  if (b.has(freqs)) {
    PN_TRY(factors, b.values(freqs, pairs));
  }
  if (b.has(longer) || b.has(shorter)) {  // both are checked, one is used
    PN_TRY(std::vector<float> far, b.values(longer, pairs));
    PN_TRY(std::vector<float> near, b.values(shorter, pairs));
    if (!b.has(freqs)) factors = b.options().context > r.trained_context ? far : near;
  }
  for (float f : factors)
    if (!std::isfinite(f) || f <= 0)
      return b.bad(b.has(freqs) ? freqs : longer, fmt::format("holds the factor {}, which cannot "
                                                              "divide a frequency",
                                                              f));
  RopeTable table = rope_table(r, factors);
  AttentionSpec s;
  s.rope = b.computed("rope", std::move(table.radians), PN_ROLE_ROPE);
  s.rope_kind = kind;
  s.rope_dims = r.dims;
  s.rope_magnitude = table.magnitude;
  PN_TRY(s.scale, keys.f32("attention.scale", 0));
  if (s.scale == 0)
    s.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(b.params().key_dim)));
  return s;
}

namespace {

// q, k and v weights in the op's order, and its flag when they are one tensor.
Result<std::vector<uint16_t>> qkv_weights(Builder& b, const AttentionSpec& spec, uint32_t* flags) {
  const HyperParams& h = b.params();
  int64_t q = int64_t{h.heads} * h.key_dim, k = int64_t{h.kv_heads} * h.key_dim,
          v = int64_t{h.kv_heads} * h.value_dim;
  std::vector<uint16_t> w(6, PN_NO16);
  if (b.has(b.block("attn_qkv.weight"))) {
    *flags |= PN_QKV_FUSED;
    PN_TRY(w[0], b.weight(b.block("attn_qkv"), matrix(h.embed, q + k + v)));
  } else {
    PN_TRY(w[0], b.weight(b.block("attn_q"), matrix(h.embed, q)));
    PN_TRY(w[1], b.weight(b.block("attn_k"), matrix(h.embed, k)));
    PN_TRY(w[2], b.weight(b.block("attn_v"), matrix(h.embed, v)));
  }
  if (spec.qk_norm) {
    PN_TRY(w[3], b.weight(b.block("attn_q_norm"), vector(h.key_dim)));
    PN_TRY(w[4], b.weight(b.block("attn_k_norm"), vector(h.key_dim)));
  }
  w[5] = spec.rope;
  return w;
}

}  // namespace

Result<uint16_t> attention(Builder& b, uint16_t x, const AttentionSpec& spec) {
  const HyperParams& h = b.params();
  PN_TRY(uint16_t n, norm(b, b.block("attn_norm"), x, PN_ROWS_TOKENS));
  pn_op_qkv p{};
  PN_TRY(auto weights, qkv_weights(b, spec, &p.flags));
  p.query_heads = h.heads;
  p.kv_heads = h.kv_heads;
  p.key_dim = h.key_dim;
  p.value_dim = h.value_dim;
  p.cache = spec.cache;
  p.cache_layer = spec.cache_layer;
  p.rope_kind = spec.rope_kind;
  p.rope_dims = spec.rope_dims;
  p.rope_magnitude = spec.rope_magnitude;
  p.norm_eps = h.norm_eps;
  uint16_t q = b.slot(PN_ROWS_TOKENS, h.heads * h.key_dim, kBranch);
  b.op({PN_OP_QKV, {n}, {q}, std::move(weights)}, p);

  pn_op_attention a{};
  a.query_heads = h.heads;
  a.kv_heads = h.kv_heads;
  a.key_dim = h.key_dim;
  a.value_dim = h.value_dim;
  a.cache = spec.cache;
  a.cache_layer = spec.cache_layer;
  a.scale = spec.scale;
  uint16_t mixed = b.slot(PN_ROWS_TOKENS, h.heads * h.value_dim, kBranch);
  b.op({PN_OP_ATTENTION, {q}, {mixed}, {}}, a);

  PN_TRY(uint16_t o,
         b.weight(b.block("attn_output"), matrix(int64_t{h.heads} * h.value_dim, h.embed)));
  pn_op_linear l{};
  l.scale = 1;
  uint16_t out = b.slot(PN_ROWS_TOKENS, h.embed, kResidual);
  b.op({PN_OP_LINEAR, {mixed, x}, {out}, {o}}, l);
  return out;
}

Result<uint16_t> mlp(Builder& b, uint16_t x) {
  const HyperParams& h = b.params();
  PN_TRY(uint16_t n, norm(b, b.block("ffn_norm"), x, PN_ROWS_TOKENS));
  pn_op_mlp p{};
  p.activation = PN_ACT_SILU;
  p.scale = 1;
  PN_TRY(uint16_t gate, b.weight(b.block("ffn_gate"), matrix(h.embed, h.ff)));
  PN_TRY(uint16_t up, b.weight(b.block("ffn_up"), matrix(h.embed, h.ff)));
  PN_TRY(uint16_t down, b.weight(b.block("ffn_down"), matrix(h.ff, h.embed)));
  uint16_t out = b.slot(PN_ROWS_TOKENS, h.embed, kResidual);
  b.op({PN_OP_MLP, {n, x}, {out}, {gate, up, down}}, p);
  return out;
}

Result<uint16_t> moe(Builder& b, uint16_t x, const MoeSpec& spec) {
  const HyperParams& h = b.params();
  PN_TRY(uint16_t n, norm(b, b.block("ffn_norm"), x, PN_ROWS_TOKENS));
  PN_TRY(uint16_t router, b.weight(b.block("ffn_gate_inp"), matrix(h.embed, h.experts)));
  pn_op_router r{};
  r.gating = spec.gating;
  r.experts = h.experts;
  r.used = h.experts_used;
  r.renormalise = spec.renormalise;
  r.sum_min = spec.sum_min;
  r.scale = spec.scale;
  uint16_t chosen = b.slot(PN_ROWS_TOKENS, h.experts_used, kResidual);
  b.op({PN_OP_ROUTER, {n}, {chosen}, {router}}, r);

  pn_op_mlp p{};
  p.activation = PN_ACT_SILU;
  p.scale = 1;
  uint16_t gate = PN_NO16, up = PN_NO16;
  if (b.has(b.block("ffn_gate_up_exps.weight"))) {
    p.flags = PN_MLP_FUSED;
    PN_TRY(gate,
           b.weight(b.block("ffn_gate_up_exps"), stack(h.embed, 2 * int64_t{h.ff}, h.experts)));
  } else {
    PN_TRY(gate, b.weight(b.block("ffn_gate_exps"), stack(h.embed, h.ff, h.experts)));
    PN_TRY(up, b.weight(b.block("ffn_up_exps"), stack(h.embed, h.ff, h.experts)));
  }
  PN_TRY(uint16_t down, b.weight(b.block("ffn_down_exps"), stack(h.ff, h.embed, h.experts)));
  uint16_t out = b.slot(PN_ROWS_TOKENS, h.embed, kResidual);
  b.op({PN_OP_EXPERTS, {n, chosen, x}, {out}, {gate, up, down}}, p);
  return out;
}

Result<void> head(Builder& b, const Stem& stem, uint16_t x) {
  const HyperParams& h = b.params();
  b.layer(h.layers);  // behind the last block, for messages and for what is read last
  uint16_t rows = b.slot(PN_ROWS_OUT, h.embed, kResidual);
  b.op({PN_OP_ROWS, {x}, {rows}, {}});
  PN_TRY(uint16_t n, norm(b, "output_norm", rows, PN_ROWS_OUT));
  uint16_t w = stem.table;
  if (!h.tied) {
    PN_TRY(w, b.weight("output", matrix(h.embed, h.vocab)));
  }
  uint16_t logits = b.slot(PN_ROWS_OUT, h.vocab, kResidual);
  pn_op_linear l{};
  l.scale = 1;
  b.op({PN_OP_LINEAR, {n}, {logits}, {w}}, l);
  pn_op_emit e{};
  uint64_t tokens = tokenizer_tokens(b.model().file());
  e.vocab = tokens == 0 ? h.vocab : static_cast<uint32_t>(tokens);  // rows past it are padding
  b.op({PN_OP_EMIT, {logits, n}, {}, {}}, e);
  return {};
}

}  // namespace pn::arch
