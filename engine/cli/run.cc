// SPDX-License-Identifier: Apache-2.0
//
// pantheon run: one answer with -p, a chat without. Only answers go to stdout.
//
// Ctrl-C while an answer streams ends the answer; at the prompt it ends the program.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <random>

#include "engine/cli/answer.h"
#include "engine/cli/commands.h"
#include "engine/cli/models_up.h"
#include "engine/cli/terminal.h"
#include "engine/service/prompt.h"

namespace pn::cli {

namespace {

engine::SamplingParams sampling_of(const Args& args, const engine::SamplingParams& defaults) {
  engine::SamplingParams s = defaults;
  if (args.temperature) s.temperature = *args.temperature;
  if (args.top_p) s.top_p = *args.top_p;
  if (args.min_p) s.min_p = *args.min_p;
  if (args.top_k) s.top_k = *args.top_k;
  std::random_device device;
  s.seed = args.seed ? *args.seed : (static_cast<uint64_t>(device()) << 32) | device();
  return s;
}

struct Session {
  const Args& args;
  engine::Service& service;
  engine::ModelStatus model;
};

void say_speed(const Session& s, const engine::Finished& end) {
  if (!s.args.verbose) return;
  const double decode_s = static_cast<double>(end.timings.decode_ns) / 1e9;
  const double prompt_s = static_cast<double>(end.timings.prompt_ns) / 1e9;
  print_err(
      fmt::format("prompt {} tokens {:.1f}/s, answer {} tokens {:.1f}/s, on {}", end.prompt_tokens,
                  prompt_s > 0 ? end.prompt_tokens / prompt_s : 0, end.completion_tokens,
                  decode_s > 0 ? (end.completion_tokens - 1) / decode_s : 0, end.timings.die));
}

// Streams one answer to stdout and returns its text.
Result<std::string> answer(const Session& s, std::vector<int32_t> prompt) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling = sampling_of(s.args, s.model.sampling);
  request.max_tokens = s.args.tokens;
  request.ignore_eos = s.args.ignore_eos;
  auto listener = std::make_shared<Answer>();
  PN_TRY(const uint64_t id, s.service.start(s.model.name, std::move(request), listener));
  std::string text;
  bool cancelled = false;
  for (;;) {
    auto [part, end] = listener->take();
    if (!part.empty()) print_out(part);
    text += part;
    if (end && part.empty()) {
      if (end->error) return tl::unexpected<Error>(*end->error);
      say_speed(s, *end);
      return text;
    }
    if (interrupted() && !cancelled) {
      cancelled = true;
      s.service.cancel(id);
    }
  }
}

Result<std::vector<int32_t>> prompt_ids(const Session& s, const nlohmann::ordered_json& messages) {
  if (!s.model.chat_error.empty())
    return fail(Code::unsupported,
                fmt::format("{} cannot chat, its template does not parse: {}; --raw -p TEXT "
                            "continues a text without it",
                            s.model.file, s.model.chat_error));
  return engine::chat_prompt(*s.service.chat_template(s.model.name),
                             *s.service.tokenizer(s.model.name),
                             {messages, std::nullopt, nlohmann::ordered_json::object()});
}

nlohmann::ordered_json opening(const Args& args) {
  auto messages = nlohmann::ordered_json::array();
  if (args.system) messages.push_back({{"role", "system"}, {"content", *args.system}});
  return messages;
}

int answer_once(const Session& s) {
  std::vector<int32_t> ids;
  if (s.args.raw) {
    ids = s.service.tokenizer(s.model.name)->encode(*s.args.prompt, true, true);
    if (ids.empty())
      return report({Code::invalid, "the prompt is empty: give text after -p", "prompt"});
  } else {
    auto messages = opening(s.args);
    messages.push_back({{"role", "user"}, {"content", *s.args.prompt}});
    auto made = prompt_ids(s, messages);
    if (!made) return report(made.error());
    ids = std::move(*made);
  }
  const auto text = answer(s, std::move(ids));
  if (!text) return report(text.error());
  if (text->empty() || text->back() != '\n') print_out("\n");
  return interrupted() ? kInterrupted : kOk;
}

bool ask_line(std::string& line) {
  if (isatty(STDIN_FILENO)) {
    std::fputs("> ", stderr);
    std::fflush(stderr);
  }
  return read_line(line);
}

int chat(const Session& s) {
  if (s.args.raw)
    return report(
        {Code::invalid, "--raw continues a prompt, and there is none: give it with -p", "raw"});
  if (isatty(STDIN_FILENO))
    print_err(
        fmt::format("chatting with {}; /new starts over, /exit or Ctrl-D ends", s.model.name));
  auto messages = opening(s.args);
  for (std::string line; ask_line(line);) {
    if (line == "/exit") return kOk;
    if (line == "/new") messages = opening(s.args);
    if (line.empty() || line == "/new") continue;
    messages.push_back({{"role", "user"}, {"content", line}});
    auto ids = prompt_ids(s, messages);
    auto text = ids ? answer(s, std::move(*ids)) : Result<std::string>(tl::unexpect, ids.error());
    clear_interrupt();
    if (!text) {
      // The question is taken back, so that a shorter or another one can follow.
      report(text.error());
      messages.erase(messages.size() - 1);
      continue;
    }
    print_out("\n");
    messages.push_back({{"role", "assistant"}, {"content", *text}});
  }
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

int run_command(const Args& args) {
  catch_interrupts();
  Args one = args;
  one.models = args.operands;
  auto host = open_host(one);
  if (!host) return report(host.error());
  auto models = wanted_models(*host);
  if (!models) return report(models.error());
  models->resize(1);
  auto service = start_models(one, *host, *models);
  if (!service) return report(service.error());
  if (args.verbose) print_err(host->choice);
  if (auto loaded = wait_models(**service); !loaded) return report(loaded.error());
  const Session session{args, **service, (*service)->models().front()};
  return args.prompt ? answer_once(session) : chat(session);
}

}  // namespace pn::cli
