// SPDX-License-Identifier: Apache-2.0
//
// pantheon models show, list, verify: the words around models/gguf/describe.h.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/cli/commands.h"
#include "engine/cli/terminal.h"
#include "models/gguf/describe.h"

namespace pn::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void show_text(const gguf::Summary& s) {
  const auto line = [](const char* name, const std::string& value) {
    print_out(fmt::format("{:<14} {}\n", name, value));
  };
  line("file", fmt::format("{} ({}{})", s.path, bytes_text(s.bytes),
                           s.parts > 1 ? fmt::format(", {} parts", s.parts) : ""));
  line("name", s.name);
  line("architecture", s.architecture);
  line("state", s.refusal.empty() ? gguf::state_name(s.state)
                                  : fmt::format("{}: {}", gguf::state_name(s.state), s.refusal));
  line("parameters",
       fmt::format("{:.3f} M in {} tensors", static_cast<double>(s.parameters) / 1e6, s.tensors));
  line("context", s.context ? fmt::format("{} tokens", s.context) : "unknown");
  if (s.kv_bytes_per_token) line("KV a token", bytes_text(s.kv_bytes_per_token) + " in f16");
  line("tokenizer", fmt::format("{}, {} tokens", s.tokenizer, s.tokens));
  line("chat template", s.chat_template ? "yes" : "none: ChatML is used");
  for (const gguf::TypeUse& t : s.types)
    line("type", fmt::format("{:<8} {:>5} tensors, {}{}", t.type, t.tensors, bytes_text(t.bytes),
                             t.decodable ? "" : ", not decodable by this version"));
  for (const std::string& warning : s.warnings) line("warning", warning);
}

int show(const Args& args) {
  Json list = Json::array();
  int code = kOk;
  for (const std::string& path : args.operands) {
    auto file = gguf::File::open(path);
    if (!file) {
      report(file.error());
      code = kModel;
      continue;
    }
    const gguf::Summary summary = gguf::summarise(*file);
    if (args.json)
      list.push_back(gguf::to_json(summary));
    else
      show_text(summary);
  }
  if (args.json) print_out(dump(list));
  return code;
}

int list(const Args& args) {
  Json all = Json::array();
  for (const std::string& folder : args.operands) {
    const auto found = gguf::list(folder);
    if (!found) return report(found.error());
    if (args.json) {
      for (const Json& one : gguf::to_json(*found)) all.push_back(one);
      continue;
    }
    for (const gguf::Listed& f : *found)
      print_out(fmt::format("{:<12} {:>10}  {}{}\n", gguf::state_name(f.state), bytes_text(f.bytes),
                            f.path, f.reason.empty() ? "" : ": " + f.reason));
  }
  if (args.json) print_out(dump(all));
  return kOk;
}

int verify(const Args& args) {
  Json all = Json::array();
  bool fatal = false;
  for (const std::string& path : args.operands) {
    Progress progress("verifying " + std::filesystem::path(path).filename().string());
    gguf::VerifyOptions options;
    options.progress = [&](uint64_t done, uint64_t total) {
      progress.update(done, total);
      return !interrupted();
    };
    const std::vector<gguf::Problem> problems = gguf::verify(path, options);
    for (const gguf::Problem& p : problems) {
      fatal = fatal || p.fatal;
      if (!args.json)
        print_out(
            fmt::format("{}: {}: {}; {}\n", p.fatal ? "problem" : "note", p.where, p.what, p.fix));
    }
    if (args.json)
      all.push_back({{"path", path}, {"problems", gguf::to_json(problems)}});
    else if (problems.empty())
      print_out(path + ": nothing wrong\n");
  }
  if (args.json) print_out(dump(all));
  if (interrupted()) return kInterrupted;
  return fatal ? kModel : kOk;
}

}  // namespace

int models_command(const Args& args) {
  catch_interrupts();
  if (args.subcommand == "list") return list(args);
  return args.subcommand == "verify" ? verify(args) : show(args);
}

}  // namespace pn::cli
