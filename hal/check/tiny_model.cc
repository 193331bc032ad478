// SPDX-License-Identifier: Apache-2.0
//
// See tiny_model.h.
#include "hal/check/tiny_model.h"

namespace pn::check {

namespace {

class Maker {
 public:
  Maker(const TinyModel& m, Plan* p) : m_(m), p_(*p), seed_(m.seed * 1000) {}

  void run() {
    p_.lanes = m_.lanes;
    p_.ids_depth = 2;
    p_.shapes = {{16, 9, 9, m_.context}, {64, 9, 9, m_.context}};
    p_.cache(m_.page, m_.layers, m_.cache_type, (m_.context + m_.page - 1) / m_.page);
    rope_ = p_.rope(m_.dim / 2);
    const uint16_t table = matrix(m_.width, m_.vocab, PN_ROLE_TABLE);
    uint16_t x = p_.slot(m_.width);
    pn_op& embed = p_.op(PN_OP_EMBED, pn_op_embed{0, 1});
    embed.out[0] = x;
    embed.weight[0] = table;
    for (uint32_t layer = 0; layer < m_.layers; ++layer) x = block(x, layer);
    const uint16_t picked = p_.slot(m_.width, PN_SLOT_INTERNAL, PN_ROWS_OUT);
    pn_op& rows = p_.op(PN_OP_ROWS);
    rows.in[0] = x;
    rows.out[0] = picked;
    const uint16_t normed = norm(picked, PN_ROWS_OUT);
    const uint16_t logits = p_.slot(m_.vocab, PN_SLOT_INTERNAL, PN_ROWS_OUT);
    linear(normed, PN_NO16, logits, m_.width, m_.vocab);
    p_.op(PN_OP_EMIT, pn_op_emit{0, m_.vocab}).in[0] = logits;
  }

 private:
  uint16_t matrix(uint32_t cols, uint32_t rows, uint32_t role = PN_ROLE_MATRIX) {
    return p_.weight(role, m_.type, {cols, rows}, random_blocks(m_.type, cols, rows, ++seed_));
  }

  uint16_t norm(uint16_t in, uint32_t rows_kind) {
    const uint16_t out = p_.slot(m_.width, PN_SLOT_INTERNAL, rows_kind);
    const uint16_t w = p_.random_vector(m_.width, ++seed_);
    pn_op& op = p_.op(PN_OP_NORM, pn_op_norm{0, PN_NORM_RMS, 0, 1e-5f});
    op.in[0] = in;
    op.out[0] = out;
    op.weight[0] = w;
    return out;
  }

  void linear(uint16_t in, uint16_t add, uint16_t out, uint32_t cols, uint32_t rows) {
    const uint16_t w = matrix(cols, rows);
    pn_op& op = p_.op(PN_OP_LINEAR, pn_op_linear{0, 0, 1, 0});
    op.in[0] = in;
    op.in[1] = add;
    op.out[0] = out;
    op.weight[0] = w;
  }

  uint16_t attend(uint16_t normed, uint32_t layer) {
    const uint16_t q = p_.slot(m_.heads * m_.dim), out = p_.slot(m_.heads * m_.dim);
    const uint16_t w[3] = {matrix(m_.width, m_.heads * m_.dim), matrix(m_.width, m_.kv * m_.dim),
                           matrix(m_.width, m_.kv * m_.dim)};
    pn_op_qkv qp{};
    qp.query_heads = m_.heads;
    qp.kv_heads = m_.kv;
    qp.key_dim = qp.value_dim = qp.rope_dims = m_.dim;
    qp.cache_layer = layer;
    qp.rope_kind = PN_ROPE_NEOX;
    qp.rope_magnitude = 1;
    pn_op& qkv = p_.op(PN_OP_QKV, qp);
    qkv.in[0] = normed;
    qkv.out[0] = q;
    std::copy(w, w + 3, qkv.weight);
    qkv.weight[5] = rope_;
    pn_op_attention ap{};
    ap.query_heads = m_.heads;
    ap.kv_heads = m_.kv;
    ap.key_dim = ap.value_dim = m_.dim;
    ap.cache_layer = layer;
    ap.scale = 0.25f;
    pn_op& attention = p_.op(PN_OP_ATTENTION, ap);
    attention.in[0] = q;
    attention.out[0] = out;
    return out;
  }

  uint16_t block(uint16_t x, uint32_t layer) {
    const uint16_t seen = attend(norm(x, PN_ROWS_TOKENS), layer);
    const uint16_t middle = p_.slot(m_.width), out = p_.slot(m_.width);
    linear(seen, x, middle, m_.heads * m_.dim, m_.width);
    const uint16_t normed = norm(middle, PN_ROWS_TOKENS);
    const uint16_t w[3] = {matrix(m_.width, m_.hidden), matrix(m_.width, m_.hidden),
                           matrix(m_.hidden, m_.width)};
    pn_op& op = p_.op(PN_OP_MLP, pn_op_mlp{0, 0, PN_ACT_SILU, 0, 0, 1});
    op.in[0] = normed;
    op.in[1] = middle;
    op.out[0] = out;
    std::copy(w, w + 3, op.weight);
    return out;
  }

  const TinyModel& m_;
  Plan& p_;
  uint64_t seed_;
  uint16_t rope_ = 0;
};

}  // namespace

Plan TinyModel::plan() const {
  Plan plan;
  Maker(*this, &plan).run();
  return plan;
}

Result<TinyModel> fitting_model(Side& side, uint64_t seed) {
  std::string reasons;
  for (const uint32_t type : {PN_TYPE_F32, PN_TYPE_F16, PN_TYPE_BF16, PN_TYPE_Q8_0}) {
    TinyModel model;
    model.type = type;
    model.seed = seed;
    if (type == PN_TYPE_Q8_0) model.hidden = 96;
    auto rig = Rig::make(side, model.plan());
    if (rig) return model;
    if (rig.error().code != Code::unsupported) return tl::unexpected<Error>(rig.error());
    reasons += fmt::format("{}type {}: {}", reasons.empty() ? "" : "; ", type, rig.error().message);
  }
  return fail(Code::unsupported, reasons);
}

int32_t token_at(uint64_t seed, uint32_t position) {
  uint64_t state = seed * 7919 + position;
  return static_cast<int32_t>(random_bits(state) % 259);
}

void prompt(Steps* steps, uint32_t lane, uint32_t position, uint32_t count, uint64_t seed) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(token_at(seed, position + i));
  steps->entry(lane, position, ids);
  steps->row(static_cast<uint32_t>(steps->entries.size()) - 1, count - 1, PN_ROW_LOGITS);
}

}  // namespace pn::check
