// SPDX-License-Identifier: Apache-2.0
//
// Group ops: QKV, ATTENTION and APPEND, over pages dealt in no order.
#include "hal/check/trial.h"

namespace pn::check {

namespace {

struct Form {
  const char* name = "";
  uint32_t heads = 4, kv = 2, dk = 16, dv = 16;
  uint32_t flags = 0;
  uint32_t rope = PN_ROPE_NEOX, dims = 16;
  float magnitude = 1;
  bool norms = false, bias = false, sinks = false;
  float temperature = 0;
  uint32_t window = 0;
  float softcap = 0, scale = 0.25f;
  uint32_t cache_type = PN_TYPE_F16;
  uint32_t page = 16, context = 96;
  bool query_out = false;  // queries leave the program: QKV on its own
  float input_scale = 1;

  bool has(uint32_t flag) const { return (flags & flag) != 0; }
};

constexpr int64_t kWidth = 48;

void add_qkv(Plan* p, const Form& f, uint16_t in, uint16_t q, uint16_t gate, uint64_t seed) {
  const int64_t qr = int64_t{f.heads} * f.dk * (f.has(PN_QKV_GATED) ? 2 : 1);
  const int64_t kr = int64_t{f.kv} * f.dk, vr = int64_t{f.kv} * f.dv;
  uint16_t w[6] = {PN_NO16, PN_NO16, PN_NO16, PN_NO16, PN_NO16, PN_NO16};
  if (f.has(PN_QKV_FUSED)) {
    w[0] = p->matrix(kWidth, qr + kr + vr, seed, 0.3f);
  } else {
    w[0] = p->matrix(kWidth, qr, seed, 0.3f);
    if (!f.has(PN_QKV_NO_APPEND)) w[1] = p->matrix(kWidth, kr, seed + 1, 0.3f);
    if (!f.has(PN_QKV_NO_APPEND) && !f.has(PN_QKV_V_IS_K))
      w[2] = p->matrix(kWidth, vr, seed + 2, 0.3f);
  }
  if (f.bias) {
    const uint16_t qb = p->random_vector(f.has(PN_QKV_FUSED) ? qr + kr + vr : qr, seed + 3);
    p->weights[w[0]].bias = qb;
    if (w[2] != PN_NO16) {
      const uint16_t vb = p->random_vector(vr, seed + 4);
      p->weights[w[2]].bias = vb;
    }
  }
  if (f.norms) w[3] = p->random_vector(f.dk, seed + 5), w[4] = p->random_vector(f.dk, seed + 6);
  if (f.rope != PN_ROPE_NONE) w[5] = p->rope(f.dims / 2);
  pn_op_qkv q_params{};
  q_params.flags = f.flags;
  q_params.query_heads = f.heads;
  q_params.kv_heads = f.kv;
  q_params.key_dim = f.dk;
  q_params.value_dim = f.dv;
  q_params.cache_layer = 1;
  q_params.rope_kind = f.rope;
  q_params.rope_dims = f.rope == PN_ROPE_NONE ? 0 : f.dims;
  q_params.rope_magnitude = f.magnitude;
  q_params.norm_eps = 1e-5f;
  q_params.q_temperature = f.temperature;
  q_params.q_span = 8;
  pn_op& op = p->op(PN_OP_QKV, q_params);
  op.in[0] = in;
  op.out[0] = q;
  op.out[1] = gate;
  std::copy(w, w + 6, op.weight);
}

void add_attention(Plan* p, const Form& f, uint16_t q, uint16_t gate, uint16_t out, uint64_t seed) {
  pn_op_attention a{};
  a.query_heads = f.heads;
  a.kv_heads = f.kv;
  a.key_dim = f.dk;
  a.value_dim = f.dv;
  a.cache_layer = 1;
  a.window = f.window;
  a.scale = f.scale;
  a.softcap = f.softcap;
  const uint16_t sinks = f.sinks ? p->random_vector(f.heads, seed, 2) : uint16_t{PN_NO16};
  pn_op& op = p->op(PN_OP_ATTENTION, a);
  op.in[0] = q;
  op.in[1] = gate;
  op.out[0] = out;
  op.weight[0] = sinks;
}

Trial trial_of(const Form& f, uint64_t seed) {
  Trial t;
  t.name = f.name;
  t.scale = f.input_scale;
  Plan& p = t.plan;
  p.shapes = {{33, 4, 4, f.context}};
  p.cache(f.page, 2, f.cache_type, (f.context + f.page - 1) / f.page);
  const uint16_t in = p.input(kWidth);
  const uint16_t q = f.query_out ? p.output(f.heads * f.dk) : p.slot(f.heads * f.dk);
  const uint16_t gate = f.has(PN_QKV_GATED) ? p.slot(f.heads * f.dk) : uint16_t{PN_NO16};
  const uint16_t out = p.output(f.heads * f.dv);
  if (f.has(PN_QKV_NO_APPEND)) {  // an earlier op fills the cache
    Form first = f;
    first.flags = 0;
    const uint16_t unused = p.output(f.heads * f.dk);
    add_qkv(&p, first, in, unused, PN_NO16, seed + 50);
  }
  add_qkv(&p, f, in, q, gate, seed);
  add_attention(&p, f, q, gate, out, seed + 20);
  t.inputs = {in};
  t.outputs = {out};
  if (f.query_out) t.outputs.push_back(q);
  // Keys are rounded to the cache's type: a product that differs in its last bit may round apart.
  t.tolerance = f.cache_type == PN_TYPE_F32 ? 0 : 4e-3;
  return t;
}

Result<void> run_forms(Bench& bench, std::span<const Form> forms) {
  Trials trials(bench);
  uint64_t use = 100;
  for (const Form& f : forms) PN_TRY(trials.add(trial_of(f, bench.seed(use += 100))));
  return trials.finish();
}

Form form(const char* name, void (*change)(Form&)) {
  Form f;
  f.name = name;
  change(f);
  return f;
}

Result<void> qkv_pairs(Bench& bench, uint32_t kind) {
  Form all, part, out, scaled;
  all.name = "rope on whole heads";
  part.name = "rope on 10 of 16";
  part.dims = 10;
  out.name = "queries leave";
  out.query_out = true;
  scaled.name = "magnitude 1.3";
  scaled.magnitude = 1.3f;
  Form forms[] = {all, part, out, scaled};
  for (Form& f : forms) f.rope = kind;
  return run_forms(bench, forms);
}
Result<void> qkv_norm_pairs(Bench& bench) { return qkv_pairs(bench, PN_ROPE_NORM); }
Result<void> qkv_neox_pairs(Bench& bench) { return qkv_pairs(bench, PN_ROPE_NEOX); }

Result<void> qkv_norms(Bench& bench) {
  const Form forms[] = {
      form("query and key norms", [](Form& f) { f.norms = true; }),
      form("bias", [](Form& f) { f.bias = true; }),
      form("value norm", [](Form& f) { f.flags = PN_QKV_V_NORM; }),
      form("temperature", [](Form& f) { f.temperature = 0.4f, f.query_out = true; }),
      form("no rope", [](Form& f) { f.rope = PN_ROPE_NONE; })};
  return run_forms(bench, forms);
}

Result<void> qkv_forms(Bench& bench) {
  const Form forms[] = {
      form("fused", [](Form& f) { f.flags = PN_QKV_FUSED; }),
      form("fused with bias", [](Form& f) { f.flags = PN_QKV_FUSED, f.bias = true; }),
      form("gated", [](Form& f) { f.flags = PN_QKV_GATED; }),
      form("v is k", [](Form& f) { f.flags = PN_QKV_V_IS_K; }),
      form("no append", [](Form& f) { f.flags = PN_QKV_NO_APPEND; })};
  return run_forms(bench, forms);
}

Result<void> attention(Bench& bench) {
  const Form forms[] = {form("2 query heads a key head", [](Form&) {}),
                        form("one key head each", [](Form& f) { f.kv = 4; }),
                        form("one key head for all", [](Form& f) { f.kv = 1; }),
                        form("values of another width", [](Form& f) { f.dv = 24; }),
                        form("queries leave", [](Form& f) { f.query_out = true; }),
                        form("pages of 32", [](Form& f) { f.page = 32; })};
  return run_forms(bench, forms);
}

Result<void> attention_window(Bench& bench) {
  const Form forms[] = {form("window 5", [](Form& f) { f.window = 5; }),
                        form("window 20", [](Form& f) { f.window = 20; }),
                        form("window 1", [](Form& f) { f.window = 1; })};
  return run_forms(bench, forms);
}

Result<void> attention_sinks(Bench& bench) {
  const Form forms[] = {
      form("sinks", [](Form& f) { f.sinks = true; }),
      form("softcap", [](Form& f) { f.softcap = 2, f.scale = 1; }),
      form("sinks, softcap, window", [](Form& f) { f.sinks = true, f.softcap = 3, f.window = 9; })};
  return run_forms(bench, forms);
}

// Scores of several hundred: e^score overflows F32 at 89, so the maximum must be taken off first.
// Near-ties make the rows sensitive, hence the wider bound.
Result<void> attention_large(Bench& bench) {
  Form f = form("scores of hundreds", [](Form& g) {
    g.input_scale = 20, g.scale = 0.5f, g.rope = PN_ROPE_NONE, g.cache_type = PN_TYPE_F32;
  });
  Form half = f;
  half.name = "scores of hundreds, F16 cache";
  half.cache_type = PN_TYPE_F16;
  Trials trials(bench);
  for (const Form& g : {f, half}) {
    Trial t = trial_of(g, bench.seed(900));
    t.tolerance = g.cache_type == PN_TYPE_F32 ? 1e-2 : 0.1;
    PN_TRY(trials.add(std::move(t)));
  }
  return trials.finish();
}

Result<void> attention_long(Bench& bench) {
  const uint32_t context = bench.quick() ? 700 : 2100;
  Form f = form("long context", [](Form&) {});
  f.context = context;
  Trials trials(bench);
  Trial t = trial_of(f, bench.seed(800));
  t.plan.shapes = {{256, 4, 4, context}};
  t.tokens.clear();
  for (uint32_t done = 0; done + 256 < 2 * context - 256; done += 256) t.tokens.push_back(256);
  t.tokens.push_back(1);
  t.tokens.push_back(7);
  PN_TRY(trials.add(std::move(t)));
  return trials.finish();
}

Result<void> cache_types(Bench& bench) {
  Trials trials(bench);
  for (const uint32_t type : {PN_TYPE_F32, PN_TYPE_F16, PN_TYPE_BF16, PN_TYPE_Q8_0}) {
    Form f = form("cache", [](Form& g) { g.dk = g.dv = 32, g.dims = 32; });
    f.cache_type = type;
    Trial t = trial_of(f, bench.seed(700 + type));
    t.name = fmt::format("cache type {}", type);
    if (type == PN_TYPE_BF16 || type == PN_TYPE_Q8_0) t.tolerance = 3e-2;
    PN_TRY(trials.add(std::move(t)));
  }
  return trials.finish();
}

Result<void> append(Bench& bench) {
  Trials trials(bench);
  Form f;
  Trial t;
  t.name = "APPEND, then ATTENTION";
  Plan& p = t.plan;
  p.shapes = {{33, 4, 4, f.context}};
  p.cache(f.page, 2, f.cache_type, (f.context + f.page - 1) / f.page);
  const uint16_t keys = p.input(f.kv * f.dk), values = p.input(f.kv * f.dv),
                 q = p.input(f.heads * f.dk), out = p.output(f.heads * f.dv);
  pn_op_heads params{};
  params.heads = f.kv;
  params.dim = f.dk;
  params.cache_layer = 1;
  pn_op& op = p.op(PN_OP_APPEND, params);
  op.in[0] = keys;
  op.in[1] = values;
  add_attention(&p, f, q, PN_NO16, out, bench.seed(600));
  t.inputs = {keys, values, q};
  t.outputs = {out};
  t.tolerance = 4e-3;
  PN_TRY(trials.add(std::move(t)));
  return trials.finish();
}

constexpr Case kCases[] = {
    {"ops/qkv_norm_pairs", "QKV", "rope in pairs (2i, 2i+1)", qkv_norm_pairs},
    {"ops/qkv_neox_pairs", "QKV", "rope in pairs (i, i + dims/2)", qkv_neox_pairs},
    {"ops/qkv_norms", "QKV", "head norms, bias, value norm, temperature", qkv_norms},
    {"ops/qkv_forms", "QKV", "fused, gated, v is k, no append", qkv_forms},
    {"ops/attention", "ATTENTION", "grouped heads over pages, several lanes", attention},
    {"ops/attention_window", "ATTENTION", "windows, also across pages", attention_window},
    {"ops/attention_sinks", "ATTENTION", "sinks and softcap", attention_sinks},
    {"ops/attention_large", "ATTENTION", "scores that overflow without the maximum",
     attention_large},
    {"ops/attention_long", "ATTENTION", "a context of 2100 tokens", attention_long},
    {"ops/cache_types", "ATTENTION", "every cache type that the plugin takes", cache_types},
    {"ops/append", "APPEND", "keys and values that ATTENTION reads", append},
};

}  // namespace

std::span<const Case> attention_cases() { return kCases; }

}  // namespace pn::check
