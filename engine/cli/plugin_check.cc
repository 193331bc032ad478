// SPDX-License-Identifier: Apache-2.0
//
// pantheon plugin check: runs the cases of hal/check on one file, prints, and keeps the result.
//
// Owns the command line of a child process: this program again, with --run-case. Knows no case.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/cli/commands.h"
#include "engine/cli/host.h"
#include "engine/cli/terminal.h"
#include "hal/check/case.h"
#include "hal/check/results.h"
#include "hal/check/runner.h"

namespace pn::cli {

namespace {

using check::Case;
using check::Outcome;
using check::State;
using Json = nlohmann::ordered_json;

bool wanted(const Case& c, const std::vector<std::string>& only) {
  if (only.empty()) return true;
  for (const std::string& name : only)
    if (name == c.name || name == c.group()) return true;
  return false;
}

// The cases asked for; a name that stands for none is an error.
Result<std::vector<Case>> chosen(const Args& args) {
  std::vector<Case> cases;
  for (const Case& c : check::all_cases())
    if (wanted(c, args.only)) cases.push_back(c);
  for (const std::string& name : args.only) {
    bool known = false;
    for (const Case& c : check::all_cases()) known = known || wanted(c, {name});
    if (!known)
      return fail(Code::invalid, fmt::format("--only {}: no such group or case; see --list", name));
  }
  return cases;
}

Result<hal::Options> options_of(const Args& args) {
  hal::Options options;
  for (const std::string& text : args.plugin_options) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(Code::invalid, fmt::format("--option {}: expected KEY=VALUE", text));
    options.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return options;
}

int list_cases(const Args& args, const std::vector<Case>& cases) {
  Json list = Json::array();
  for (const Case& c : cases) {
    if (args.json)
      list.push_back({{"name", c.name}, {"group", c.group()}, {"rule", c.rule}, {"what", c.what}});
    else
      print_out(fmt::format("{:<32} {:<9} {:<18} {}\n", c.name, c.group(), c.rule, c.what));
  }
  if (args.json) print_out(list.dump(2) + "\n");
  return kOk;
}

// This program, told to run one case for its parent.
std::vector<std::string> child_command(const Args& args, const check::Setup& setup,
                                       const char* name) {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                      "plugin",
                                      "check",
                                      setup.file,
                                      "--run-case",
                                      name,
                                      "--seed",
                                      std::to_string(setup.seed)};
  if (args.profile) command.insert(command.end(), {"--profile", *args.profile});
  if (setup.quick) command.emplace_back("--quick");
  if (setup.isolated) command.emplace_back("--isolated");
  if (!setup.reference.empty()) command.insert(command.end(), {"--reference", setup.reference});
  for (const std::string& option : args.plugin_options)
    command.insert(command.end(), {"--option", option});
  return command;
}

int run_for_parent(const check::Setup& setup, const std::string& name) {
  hal::set_log_sink([](uint32_t level, const std::string& plugin, const char* text) {
    if (level >= PN_LOG_WARN) print_err(fmt::format("{}: {}", plugin, text));
  });
  for (const Case& c : check::all_cases()) {
    if (name != c.name) continue;
    check::run_for_parent(c, setup, check::kChildFd);
    return kOk;
  }
  return kUsage;
}

struct Ran {
  Case made;
  Outcome outcome;
};

void show(const Ran& ran) {
  const char* state = ran.outcome.state == State::passed   ? "ok"
                      : ran.outcome.state == State::failed ? "FAILED"
                                                           : "unsupported";
  std::string text = ran.outcome.text;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 5)
    text.replace(at, 1, "\n    ");
  print_out(fmt::format("{:<32} {:<11} {:>6.0f} ms{}{}\n", ran.made.name, state,
                        static_cast<double>(ran.outcome.ns) / 1e6, text.empty() ? "" : "  ", text));
  if (ran.outcome.state == State::failed)
    print_out(fmt::format("    rule {}: {}\n", ran.made.rule, ran.made.what));
}

Json as_json(const Args& args, const check::Setup& setup, const hal::Note* note,
             const std::vector<Ran>& all) {
  Json cases = Json::array();
  uint32_t counts[3] = {};
  for (const Ran& ran : all) {
    ++counts[static_cast<int>(ran.outcome.state)];
    cases.push_back({{"name", ran.made.name},
                     {"group", ran.made.group()},
                     {"rule", ran.made.rule},
                     {"state", check::to_string(ran.outcome.state)},
                     {"text", ran.outcome.text},
                     {"ms", static_cast<double>(ran.outcome.ns) / 1e6}});
  }
  return {{"file", setup.file},
          {"name", note != nullptr ? note->name : ""},
          {"build_id", note != nullptr ? note->build_id : ""},
          {"seed", setup.seed},
          {"quick", args.quick},
          {"passed", counts[0]},
          {"failed", counts[1]},
          {"unsupported", counts[2]},
          {"cases", cases}};
}

// Kept only for a whole check without options: it speaks for the file as it is.
void keep(const Args& args, const hal::Note& note, const std::vector<Ran>& all) {
  if (!args.only.empty() || !args.plugin_options.empty() || args.isolated) return;
  check::Conformance c;
  for (const Ran& ran : all) {
    if (ran.outcome.state == State::passed) ++c.passed;
    if (ran.outcome.state == State::unsupported) ++c.unsupported;
    if (ran.outcome.state == State::failed) c.failed.emplace_back(ran.made.name);
  }
  c.date = check::today();
  c.seed = args.seed.value_or(1);
  c.quick = args.quick;
  const std::string cache = hal::user_cache_dir({});
  if (!check::write_conformance(cache, note, c))
    print_err("pantheon: the result could not be kept in " + cache);
}

Result<check::Setup> setup_of(const Args& args) {
  check::Setup setup;
  std::error_code ec;
  if (args.operands.empty()) return fail(Code::invalid, "plugin check: name a file");
  setup.file = std::filesystem::absolute(args.operands[0], ec).string();
  if (!std::filesystem::is_regular_file(setup.file, ec))
    return fail(Code::not_found, setup.file + ": expected a plugin file, found none");
  PN_TRY(setup.options, options_of(args));
  PN_TRY(const profile::Profile profile, load_profile(args));
  setup.search = search_of(profile);
  setup.reference = args.reference;
  setup.seed = args.seed.value_or(1);
  setup.quick = args.quick;
  setup.isolated = args.isolated;
  return setup;
}

int check_file(const Args& args, const std::vector<Case>& cases, const check::Setup& setup) {
  std::vector<Ran> all;
  uint32_t failed = 0, unsupported = 0;
  if (!args.json)
    print_out(fmt::format("{}: {} cases, seed {}\n", setup.file, cases.size(), setup.seed));
  bool loads = true;
  for (const Case& c : cases) {
    if (!loads) {  // each would crash or hang alike
      all.push_back({c, {State::failed, "not run: probe/load failed"}});
      ++failed;
      continue;
    }
    const bool here = args.in_process && !c.own_process;
    all.push_back(
        {c, here ? check::run_here(c, setup)
                 : check::run_child(child_command(args, setup, c.name), args.deadline * 1000)});
    loads = all.back().outcome.state != State::failed || c.name != std::string("probe/load");
    failed += all.back().outcome.state == State::failed ? 1 : 0;
    unsupported += all.back().outcome.state == State::unsupported ? 1 : 0;
    if (!args.json) show(all.back());
  }
  const auto note = hal::read_note(setup.file);
  if (note) keep(args, *note, all);
  if (args.json)
    print_out(as_json(args, setup, note ? &*note : nullptr, all)
                  .dump(2, ' ', false, Json::error_handler_t::replace) +
              "\n");
  else
    print_out(fmt::format("{} passed, {} failed, {} unsupported; seed {}\n",
                          all.size() - failed - unsupported, failed, unsupported, setup.seed));
  return failed == 0 ? kOk : kFailed;
}

}  // namespace

int plugin_check_command(const Args& args) {
  const auto cases = chosen(args);
  if (!cases) return report(cases.error());
  if (args.list) return list_cases(args, *cases);
  const auto setup = setup_of(args);
  if (!setup) return report(setup.error());
  if (!args.run_case.empty()) return run_for_parent(*setup, args.run_case);
  return check_file(args, *cases, *setup);
}

std::string conformance_text(const hal::Note& note) {
  return check::read_conformance(hal::user_cache_dir({}), note).text();
}

}  // namespace pn::cli
