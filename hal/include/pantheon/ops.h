/* SPDX-License-Identifier: MIT
 *
 * The ops of a plan: numbers, parameters, formulas.
 *
 * Shapes: T tokens, R rows, D width. Sums of products accumulate in F32 or better. "+ in[k]" means:
 * added when the slot is given. Fused ops come first; the rest let a new architecture run on its
 * first day. A plugin may support any subset; fusing is its own affair, told in spans.
 */
#ifndef PANTHEON_OPS_H
#define PANTHEON_OPS_H

#include <pantheon/core.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_OP_EMBED       1u /* out[T,D] = scale * W[id]; w: table */
#define PN_OP_NORM        2u /* out = x / sqrt(mean(x^2)+eps) * w over groups; w: vector or none */
#define PN_OP_LINEAR      3u /* out = cap(scale * W in[0]) + in[1]; w: matrix */
#define PN_OP_QKV         4u /* q, k, v of in[0]; norm, rope, append k and v; w: q k v qn kn rope */
#define PN_OP_ATTENTION   5u /* out[T,H*dv] = softmax(scale q k + mask) v; w: sinks */
#define PN_OP_MLP         6u /* out = g * scale * Wd(act(Wg x) * Wu x) + in[1]; w: gate up down g */
#define PN_OP_ROUTER      7u /* out[T,used] = chosen experts and weights of in[0]; w: matrix */
#define PN_OP_EXPERTS     8u /* out = sum of chosen in[1] MLP_e(in[0]) + in[2]; w: gate up down */
#define PN_OP_DELTA_NET   9u /* gated delta rule, see pn_op_delta_net; w: conv dt a norm */
#define PN_OP_ROWS       10u /* out[R,D] = in[0] at the step's rows */
#define PN_OP_EMIT       11u /* serves rows: in[0] logits [R,V], in[1] hidden [R,D], or one only */
#define PN_OP_BINARY     32u /* in[0] (op) in[1], one row of width 1 broadcasts */
#define PN_OP_UNARY      33u
#define PN_OP_GLU        34u /* act(in[0]) * in[1] */
#define PN_OP_COLUMNS    35u /* out = columns [first, first+width of out) of in[0] */
#define PN_OP_CONCAT     36u /* out = in[0] | in[1] | ... by columns */
#define PN_OP_ROPE       37u /* rotates heads of in[0]; w: rope */
#define PN_OP_APPEND     38u /* in[0] keys, in[1] values into a paged cache */
#define PN_OP_CONV       39u /* causal depthwise convolution with carried state; w: conv */

/* SWIGLU_OAI: gate min(g, limit), up clamp(u, limit): g * sigmoid(alpha g) * (u + 1) */
#define PN_ACT_NONE       0u
#define PN_ACT_SILU       1u
#define PN_ACT_GELU_TANH  2u
#define PN_ACT_SIGMOID    3u
#define PN_ACT_SOFTPLUS   4u
#define PN_ACT_TANH       5u
#define PN_ACT_SWIGLU_OAI 6u

/* A token of step.tokens outside [0, rows) is PN_INVALID. A fed -1 spoils its own lane only: every
 * row of that entry gives id -1. */
typedef struct pn_op_embed { uint32_t struct_size; float scale; } pn_op_embed;
PN_PIN(pn_op_embed, 8);

#define PN_NORM_RMS   0u
#define PN_NORM_LAYER 1u
#define PN_NORM_L2    2u /* x / max(|x|, eps) */
typedef struct pn_op_norm {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t group;         /* elements a norm; 0 the whole row; w has group elements */
  float    eps;
} pn_op_norm; PN_PIN(pn_op_norm, 16);

typedef struct pn_op_linear {
  uint32_t struct_size, reserved;
  float    scale;         /* 1 for most; residual and logit scales */
  float    softcap;       /* c * tanh(y / c); 0 none */
} pn_op_linear; PN_PIN(pn_op_linear, 16);

#define PN_ROPE_NONE 0u
#define PN_ROPE_NORM 1u /* pairs (x[2i], x[2i+1]) */
#define PN_ROPE_NEOX 2u /* pairs (x[i], x[i + dims/2]) */
/* Angle of pair i at position p is p * w[i], w from PN_ROLE_ROPE: base, linear, llama3, yarn,
 * longrope and proportional scaling are the models' arithmetic, done once on the host in f64. cos
 * and sin are multiplied by magnitude. Dims past rope_dims pass through. */

#define PN_QKV_FUSED        1u /* weight[0] holds q, then k, then v rows */
#define PN_QKV_GATED        2u /* q rows are per head q then g; out[1][T,H*dk] = g */
#define PN_QKV_V_NORM       4u /* v heads pass an rms norm without weight */
#define PN_QKV_V_IS_K       8u /* no v weight: v is k before norm and rope */
#define PN_QKV_NO_APPEND   16u /* q only: keys come from an earlier layer's cache */
typedef struct pn_op_qkv { /* out[0][T, H*dk] = q after bias, norm, rope and temperature */
  uint32_t struct_size;
  uint32_t flags;
  uint32_t query_heads;    /* H */
  uint32_t kv_heads;
  uint32_t key_dim;        /* dk */
  uint32_t value_dim;      /* dv */
  uint32_t cache;          /* index into plan caches */
  uint32_t cache_layer;    /* layer within it */
  uint32_t rope_kind;
  uint32_t rope_dims;
  float    rope_magnitude;
  float    norm_eps;       /* of qn and kn, when given */
  float    q_temperature;  /* b: q *= 1 + b ln(1 + floor(p / span)); 0 off */
  float    q_span;
} pn_op_qkv; PN_PIN(pn_op_qkv, 56);

typedef struct pn_op_attention { /* in[0] q [T,H*dk]; in[1] gate [T,H*dv]: out *= sigmoid(gate) */
  uint32_t struct_size;
  uint32_t flags;          /* none yet */
  uint32_t query_heads;    /* head h reads kv head h / (H / Hkv) */
  uint32_t kv_heads;
  uint32_t key_dim, value_dim;
  uint32_t cache, cache_layer;
  uint32_t window;         /* key j visible to t iff 0 <= t-j < window; 0 full */
  uint32_t reserved;
  float    scale;
  float    softcap;
} pn_op_attention; PN_PIN(pn_op_attention, 48);

#define PN_MLP_FUSED 1u     /* weight[0] holds gate rows, then up rows */
typedef struct pn_op_mlp { /* MLP and EXPERTS; g = sigmoid(w_g . x), 1 when weight[3] is absent */
  uint32_t struct_size;
  uint32_t flags;
  uint32_t activation;
  float    limit;
  float    alpha;
  float    scale;          /* of the branch, before the residual */
} pn_op_mlp; PN_PIN(pn_op_mlp, 24);

#define PN_GATE_SOFTMAX          1u /* softmax over all experts, then the top */
#define PN_GATE_SIGMOID          2u
#define PN_GATE_SOFTMAX_SELECTED 3u /* the top of the logits, then softmax over those */
typedef struct pn_op_router { /* weights of the chosen: renormalised when asked, then times scale */
  uint32_t struct_size;
  uint32_t gating;
  uint32_t experts;
  uint32_t used;           /* ties: the lower expert */
  uint32_t renormalise;
  float    sum_min;        /* floor of the divisor */
  float    scale;
  uint32_t reserved;
} pn_op_router; PN_PIN(pn_op_router, 32);

/* k head of v head h: TILED h % Hk; GROUPED h / (Hv / Hk) */
#define PN_DELTA_HEADS_TILED   0u
#define PN_DELTA_HEADS_GROUPED 1u
/* in: u [T, 2 Hk dk + Hv dv], z [T, Hv dv], b [T, Hv], a [T, Hv]; out y [T, Hv dv].
 *   c = silu(conv(u)), split q|k|v; q, k L2-normalised a head;
 *   beta = sigmoid(b); g = A softplus(a + dt), A the weight as stored (negative)
 *   S = e^g S; d = beta (v - S'k); S = S + k d'; o = S'q / sqrt(dk); y = rms(o, norm) * silu(z)
 * The state unit holds S (F32) and the last taps-1 rows of u for each layer. Many tokens of one
 * entry may use the chunked form. */
typedef struct pn_op_delta_net {
  uint32_t struct_size;
  uint32_t head_map;
  uint32_t key_heads, value_heads; /* Hk, Hv */
  uint32_t key_dim, value_dim;     /* dk, dv */
  uint32_t taps;
  uint32_t cache;
  uint32_t cache_layer;
  float    l2_eps;
  float    norm_eps;
  uint32_t reserved;
} pn_op_delta_net; PN_PIN(pn_op_delta_net, 48);

typedef struct pn_op_emit { /* a row that asks for what is absent is PN_INVALID */
  uint32_t struct_size;
  uint32_t vocab;          /* ids at or past it are never drawn */
} pn_op_emit; PN_PIN(pn_op_emit, 8);

#define PN_BINARY_ADD 0u
#define PN_BINARY_MUL 1u
typedef struct pn_op_elementwise { /* BINARY: scale * (a op b); UNARY, GLU: scaled activation */
  uint32_t struct_size;
  uint32_t kind;
  float    scale;
  float    limit;          /* clamp before the activation; 0 none */
} pn_op_elementwise; PN_PIN(pn_op_elementwise, 16);

typedef struct pn_op_columns { uint32_t struct_size; uint32_t first; } pn_op_columns;
PN_PIN(pn_op_columns, 8);

typedef struct pn_op_heads { /* ROPE, APPEND, CONV */
  uint32_t struct_size;
  uint32_t heads, dim;
  uint32_t rope_kind, rope_dims;
  uint32_t cache, cache_layer;
  uint32_t taps;
  uint32_t activation;
  float    rope_magnitude;
} pn_op_heads; PN_PIN(pn_op_heads, 40);

#ifdef __cplusplus
}
#endif
#endif
