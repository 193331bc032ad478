// SPDX-License-Identifier: Apache-2.0
//
// pantheon bench: prompt and decode speed of a model on a die, with the roofline beside it.
#include "engine/service/bench.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/cli/commands.h"
#include "engine/cli/models_up.h"
#include "engine/cli/terminal.h"

namespace pn::cli {

namespace {

using Json = nlohmann::ordered_json;

Json speed_json(const engine::Speed& s) {
  return {{"tokens_per_s", s.median}, {"p10", s.p10}, {"samples", s.samples}};
}

Json to_json(const engine::BenchResult& r) {
  return {{"file", r.file},
          {"architecture", r.architecture},
          {"plugin", r.plugin},
          {"die", r.die},
          {"parameters", r.parameters},
          {"weight_bytes", r.weight_bytes},
          {"decode_weight_bytes", r.decode_weight_bytes},
          {"kv_bytes_per_token", r.kv_bytes_per_token},
          {"batch", r.batch},
          {"prompt_tokens", r.prompt_tokens},
          {"decode_tokens", r.decode_tokens},
          {"load_s", r.load_s},
          {"prompt", speed_json(r.prompt)},
          {"decode", speed_json(r.decode)},
          {"decode_bytes_per_s", r.decode_bytes_per_s},
          {"die_bytes_per_s", r.die_bytes_per_s}};
}

void print_text(const engine::BenchResult& r) {
  print_out(fmt::format("{} ({}, {:.1f} M parameters, {} as laid out) on {}, loaded in {:.2f} s\n",
                        r.file, r.architecture, static_cast<double>(r.parameters) / 1e6,
                        bytes_text(r.weight_bytes), r.die, r.load_s));
  if (r.prompt_tokens)
    print_out(fmt::format("prompt {:>5} x {:<3} {:>9.2f} tokens/s (p10 {:.2f})\n", r.prompt_tokens,
                          r.batch, r.prompt.median, r.prompt.p10));
  if (!r.decode_tokens) return;
  std::string roof = fmt::format("reads {:.1f} GB/s", r.decode_bytes_per_s / 1e9);
  if (r.die_bytes_per_s)
    roof += fmt::format(", {:.0f} % of the die's {:.1f} GB/s",
                        100 * r.decode_bytes_per_s / static_cast<double>(r.die_bytes_per_s),
                        static_cast<double>(r.die_bytes_per_s) / 1e9);
  print_out(fmt::format("decode {:>5} x {:<3} {:>9.2f} tokens/s (p10 {:.2f}), {}\n",
                        r.decode_tokens, r.batch, r.decode.median, r.decode.p10, roof));
}

}  // namespace

int bench_command(const Args& args) {
  Args one = args;
  one.models = args.operands;
  auto host = open_host(one);
  if (!host) return report(host.error());
  auto models = wanted_models(*host);
  if (!models) return report(models.error());
  std::vector<std::string> notes;
  auto config = place(one, *host, models->front(), notes);
  if (!config) return report(config.error());
  engine::BenchConfig bench;
  bench.file = config->file;
  bench.plugin = config->plugin;
  bench.device = config->device;
  bench.budget = config->budget;
  bench.kv_type = config->kv_type;
  bench.loss = config->loss;
  bench.prompt_tokens = args.prompt_tokens;
  bench.decode_tokens = args.decode_tokens;
  bench.batch = args.batch;
  bench.rounds = args.rounds;
  const auto result = engine::run_bench(bench);
  if (!result) return report(result.error());
  if (args.json)
    print_out(to_json(*result).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  else
    print_text(*result);
  return kOk;
}

}  // namespace pn::cli
