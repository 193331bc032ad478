// SPDX-License-Identifier: Apache-2.0
//
// CLI11's side of the command line; see args.h.
#include "engine/cli/args.h"

#include <CLI/CLI.hpp>

namespace pn::cli {

namespace {

void add_shared(CLI::App* app, Args& a) {
  app->add_option("--profile", a.profile, "host profile (YAML)");
  app->add_option("--backend-plugin", a.plugins,
                  "plugin to use, by name, alias or path; may be given several times")
      ->allow_extra_args(false);
  app->add_flag("-v,--verbose", a.verbose, "say more; twice for debug");
  app->add_flag("--log-json", a.log_json, "log lines as JSON");
  app->add_flag("--json", a.json, "machine-readable output");
}

void add_model(CLI::App* app, Args& a) {
  app->add_option("--context", a.context, "tokens a sequence may hold [min(model, 8192)]")
      ->check(CLI::Range(16u, 1u << 24));
  app->add_option("--threads", a.threads, "threads of a plugin that computes on the CPU")
      ->check(CLI::Range(1u, 1024u));
  app->add_option("--slots", a.slots, "sequences alive at once")->check(CLI::Range(1u, 256u));
  app->add_option("--kv", a.kv, "type of the KV cache [f16]")->check(CLI::IsMember({"f16", "f32"}));
}

void add_sampling(CLI::App* app, Args& a) {
  app->add_option("--temp", a.temperature, "0 is greedy")->check(CLI::Range(0.0f, 5.0f));
  app->add_option("--top-p", a.top_p, "1 is off")->check(CLI::Range(0.0f, 1.0f));
  app->add_option("--min-p", a.min_p, "0 is off")->check(CLI::Range(0.0f, 1.0f));
  app->add_option("--top-k", a.top_k, "0 is off");
  app->add_option("--seed", a.seed, "equal seed and prompt give equal text");
  app->add_option("-n", a.tokens, "tokens to answer with at most [what the context has left]");
}

void add_serve(CLI::App& app, Args& a) {
  CLI::App* c = app.add_subcommand("serve", "OpenAI-compatible server");
  add_shared(c, a);
  add_model(c, a);
  c->add_option("--host", a.host, "address to listen on [127.0.0.1]");
  c->add_option("--port", a.port, "port, 0 for any free one [8080]");
  c->add_option("--model", a.models, "GGUF file; may be given several times [the demo model]")
      ->allow_extra_args(false);
}

void add_run(CLI::App& app, Args& a) {
  CLI::App* c = app.add_subcommand("run", "chat with a model, or answer once with -p");
  add_shared(c, a);
  add_model(c, a);
  add_sampling(c, a);
  c->add_option("model", a.operands, "GGUF file")->expected(0, 1);
  c->add_option("-p,--prompt", a.prompt, "answer this and end");
  c->add_option("--system", a.system, "system message");
  c->add_flag("--raw", a.raw, "continue the prompt as it is, without a chat template");
  c->add_flag("--ignore-eos", a.ignore_eos, "go on past the end of the answer");
}

void add_bench(CLI::App& app, Args& a) {
  CLI::App* c = app.add_subcommand("bench", "prompt and decode speed per die");
  add_shared(c, a);
  add_model(c, a);
  c->add_option("model", a.operands, "GGUF file")->required()->expected(1);
  c->add_option("--batch", a.batch, "sequences that decode together")->check(CLI::Range(1u, 256u));
  c->add_option("--prompt-tokens", a.prompt_tokens)->check(CLI::Range(0u, 1u << 20));
  c->add_option("--decode-tokens", a.decode_tokens)->check(CLI::Range(0u, 1u << 20));
  c->add_option("--rounds", a.rounds, "the median is printed")->check(CLI::Range(1u, 100u));
}

CLI::App* add_verb(CLI::App* parent, Args& a, const char* name, const char* help) {
  CLI::App* c = parent->add_subcommand(name, help);
  add_shared(c, a);
  return c;
}

void add_models(CLI::App& app, Args& a) {
  CLI::App* c = app.add_subcommand("models", "what a model file holds");
  c->require_subcommand(1);
  add_verb(c, a, "show", "metadata, types, tokenizer, template")
      ->add_option("file", a.operands, "GGUF file")
      ->required()
      ->expected(1, 64);
  add_verb(c, a, "list", "the model files of folders, with what is wrong with them")
      ->add_option("folder", a.operands, "folders or files")
      ->required()
      ->expected(1, 64);
  add_verb(c, a, "verify", "every check this version knows; exit code 4 on a problem")
      ->add_option("file", a.operands, "GGUF file")
      ->required()
      ->expected(1, 64);
}

void add_new(CLI::App* plugin, Args& a) {
  add_verb(plugin, a, "new", "a plugin project to begin with, in plain C over the op-loop")
      ->add_option("name", a.operands, "its name, and the folder [backend_NAME]")
      ->required()
      ->expected(1, 2);
}

void add_check(CLI::App* plugin, Args& a) {
  CLI::App* c = add_verb(plugin, a, "check", "does a plugin keep the contract? (hal/check)");
  c->add_option("file", a.operands, "plugin file")->expected(0, 1);
  c->add_flag("--list", a.list, "the cases: name, group, rule, what");
  c->add_option("--only", a.only, "this group or case; may be given several times")
      ->allow_extra_args(false);
  c->add_flag("--quick", a.quick, "fewer rounds, shorter contexts");
  c->add_flag("--in-process", a.in_process, "no child processes, for a debugger");
  c->add_flag("--isolated", a.isolated, "the plugin runs in a process of its own, as when served");
  c->add_option("--seed", a.seed, "of all random data [1]");
  c->add_option("--option", a.plugin_options, "KEY=VALUE for the plugin; several times")
      ->allow_extra_args(false);
  c->add_option("--reference", a.reference, "plugin to compare with, by name or path");
  c->add_option("--deadline", a.deadline, "seconds that a case may take [120]")
      ->check(CLI::Range(1u, 86400u));
  c->add_option("--run-case", a.run_case)->group("");  // for children of this command
}

void add_small(CLI::App& app, Args& a) {
  add_shared(app.add_subcommand("devices", "every die, usable or not, and why"), a);
  add_shared(app.add_subcommand("doctor", "named checks of this host; exit code 1 on a failure"),
             a);
  CLI::App* plugin = app.add_subcommand("plugin", "backend plugins");
  plugin->require_subcommand(1);
  add_verb(plugin, a, "list", "every candidate, loaded or refused, and why");
  add_new(plugin, a);
  add_check(plugin, a);
  CLI::App* profile = app.add_subcommand("profile", "the host profile");
  profile->require_subcommand(1);
  add_verb(profile, a, "check", "what is wrong with it, by line")
      ->add_option("file", a.operands, "profile [the one that would be used]")
      ->expected(0, 1);
  add_verb(profile, a, "show", "the effective values, and where each comes from")
      ->add_option("file", a.operands, "profile [the one that would be used]")
      ->expected(0, 1);
}

}  // namespace

Parsed parse_args(int argc, char** argv) {
  Parsed out;
  Args& a = out.args;
  CLI::App app{"Pantheon serves language models on whatever accelerators this machine has.",
               "pantheon"};
  app.require_subcommand(0, 1);
  app.fallthrough();
  bool version = false;
  add_shared(&app, a);
  app.add_flag("--version", version, "version, HAL ABI, build ids");
  app.add_flag("--backend", a.backend, "which plugins this invocation would use");
  add_serve(app, a);
  add_run(app, a);
  add_bench(app, a);
  add_models(app, a);
  add_small(app, a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    out.exit = code == 0 ? kOk : kUsage;
    return out;
  }
  for (const CLI::App* c : app.get_subcommands()) {
    a.command = c->get_name();
    for (const CLI::App* sub : c->get_subcommands()) a.subcommand = sub->get_name();
  }
  if (version) a.command = "version";
  if (a.backend) a.command = "backend";
  if (a.command.empty()) {
    std::fputs(app.help().c_str(), stderr);
    out.exit = kUsage;
  }
  return out;
}

}  // namespace pn::cli
