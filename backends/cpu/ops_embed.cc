// SPDX-License-Identifier: Apache-2.0
//
// Where rows come from and leave: EMBED, ROWS, rope tables, and bound slots that are not F32.
#include <cmath>
#include <cstring>

#include "backends/cpu/prepare.h"

namespace pn::cpu {
namespace {

class Embed final : public Op {
 public:
  float scale = 1;
  uint16_t table = PN_NO16, out = PN_NO16;

  void run(const Run& run, uint32_t thread) const override {
    const Weight& w = run.weight(table);
    const Matrix matrix = w.matrix();
    const Rows y = run.slot(out);
    const float factor =
        w.info.scale == PN_NO16 ? scale : scale * run.weight(w.info.scale).values()[0];
    // Few tokens have few rows: cut by token.
    const Range part = split(run.tokens, thread, run.threads);
    for (int64_t t = part.first; t < part.last; ++t) {
      float* row = y.row(t);
      decode_row(matrix, run.token[t].id, row);
      if (factor != 1.0f)
        for (int64_t c = 0; c < matrix.cols; ++c) row[c] *= factor;
    }
    run.barrier();
  }
};

class PickRows final : public Op {
 public:
  uint16_t in = PN_NO16, out = PN_NO16;

  void run(const Run& run, uint32_t thread) const override {
    const Rows x = run.slot(in), y = run.slot(out);
    const Range part = split(run.rows, thread, run.threads);
    for (int64_t r = part.first; r < part.last; ++r)
      memcpy(y.row(r), x.row(row_token(run, r)), static_cast<size_t>(x.width) * sizeof(float));
    run.barrier();
  }

 private:
  // Index of the row's token among all tokens of the step.
  static int64_t row_token(const Run& run, int64_t r) {
    const pn_row& row = run.step.rows[r];
    int64_t first = 0;
    for (uint32_t e = 0; e < row.entry; ++e) first += run.step.entries[e].count;
    return first + row.token;
  }
};

// cos and sin of position * w[i], times the magnitude, once a step for all layers. Angles in f64:
// at position 100,000 an f32 angle is off by 0.004 rad.
class RopeTables final : public Op {
 public:
  std::vector<Builder::RopeTable> tables;
  uint32_t tokens_max = 0;

  void run(const Run& run, uint32_t thread) const override {
    const Range part = split(run.tokens, thread, run.threads);
    for (const Builder::RopeTable& table : tables) {
      const float* w = run.weight(table.weight).values();
      float* cos = reinterpret_cast<float*>(run.scratch + table.offset);
      float* sin = cos + uint64_t{tokens_max} * table.pairs;
      for (int64_t t = part.first; t < part.last; ++t) {
        const double position = run.token[t].position;
        for (uint32_t i = 0; i < table.pairs; ++i) {
          const double angle = position * static_cast<double>(w[i]);
          cos[t * table.pairs + i] = static_cast<float>(std::cos(angle) * table.magnitude);
          sin[t * table.pairs + i] = static_cast<float>(std::sin(angle) * table.magnitude);
        }
      }
    }
    run.barrier();
  }
};

class Convert final : public Op {
 public:
  uint16_t slot = 0;
  uint32_t type = 0, rows_kind = 0;
  bool load = true;

  void run(const Run& run, uint32_t thread) const override {
    const Rows rows = run.slot(slot);
    auto* dense = reinterpret_cast<uint16_t*>(run.program.bound[slot]);
    const Range part = split(run.count(rows_kind), thread, run.threads);
    for (int64_t i = part.first; i < part.last; ++i) {
      uint16_t* at = dense + i * rows.width;
      if (load)
        (type == PN_TYPE_F16 ? run.vectors.from_f16 : run.vectors.from_bf16)(at, rows.width,
                                                                             rows.row(i));
      else
        (type == PN_TYPE_F16 ? run.vectors.to_f16 : run.vectors.to_bf16)(rows.row(i), rows.width,
                                                                         at);
    }
    run.barrier();
  }
};

std::unique_ptr<Op> make_convert(const Builder& b, uint16_t slot, bool load) {
  auto convert = std::make_unique<Convert>();
  convert->slot = slot;
  convert->type = b.slot(slot).type;
  convert->rows_kind = b.slot(slot).rows;
  convert->load = load;
  return convert;
}

}  // namespace

std::unique_ptr<Op> build_embed(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.output(0, 0, PN_ROWS_TOKENS) || !b.nothing_else(0, 1, 1)) return nullptr;
  if (!b.has_weight(0)) return b.refuse("weight[0] (the table) is missing"), nullptr;
  const pn_weight& w = b.weight(op.weight[0]);
  if (!b.matrix(0, b.slot(op.out[0]).width, w.shape[1], "table")) return nullptr;
  if (w.bias != PN_NO16) return b.refuse("a table with a bias"), nullptr;
  auto embed = std::make_unique<Embed>();
  embed->scale = b.op().as<pn_op_embed>().scale;
  embed->table = op.weight[0];
  embed->out = op.out[0];
  const auto rows = static_cast<uint32_t>(w.shape[1]);
  b.table_rows = b.embeds ? std::min(b.table_rows, rows) : rows;
  b.embeds = true;
  return embed;
}

std::unique_ptr<Op> build_rows(Builder& b) {
  const pn_op& op = b.op().op;
  if (!b.input(0, 0, PN_ROWS_TOKENS) || !b.output(0, b.slot(op.in[0]).width, PN_ROWS_OUT) ||
      !b.nothing_else(1, 1, 0))
    return nullptr;
  auto rows = std::make_unique<PickRows>();
  rows->in = op.in[0];
  rows->out = op.out[0];
  return rows;
}

std::unique_ptr<Op> make_rope_tables(const Builder& b) {
  if (b.ropes.empty()) return nullptr;
  auto tables = std::make_unique<RopeTables>();
  tables->tables = b.ropes;
  tables->tokens_max = b.plan.tokens;
  return tables;
}

std::unique_ptr<Op> make_load(const Builder& b, uint16_t slot) {
  return make_convert(b, slot, true);
}
std::unique_ptr<Op> make_store(const Builder& b, uint16_t slot) {
  return make_convert(b, slot, false);
}

}  // namespace pn::cpu
