// SPDX-License-Identifier: Apache-2.0
//
// pantheon serve: models of the profile or the flags behind the HTTP API.
#include "engine/serve/server.h"

#include <fmt/format.h>

#include <thread>

#include "engine/cli/commands.h"
#include "engine/cli/models_up.h"
#include "engine/cli/terminal.h"

namespace pn::cli {

namespace {

void say_model(bool json, const engine::ModelStatus& m) {
  if (m.state == engine::ModelState::failed) {
    log_line(json, "error", fmt::format("{} is not served: {}", m.name, m.error));
    return;
  }
  log_line(json, "info",
           fmt::format("{} is ready on {}: context {} of {} trained, {} slots, weights {}, KV {}",
                       m.name, m.die, m.context, m.context_trained, m.slots,
                       bytes_text(m.weight_bytes), bytes_text(m.kv_bytes)));
}

}  // namespace

int serve_command(const Args& args) {
  auto host = open_host(args);
  if (!host) return report(host.error());
  auto models = wanted_models(*host);
  if (!models) return report(models.error());
  log_line(args.log_json, "info", host->choice);
  for (const std::string& note : host->notes) log_line(args.log_json, "info", "not used: " + note);
  auto service = start_models(args, *host, *models);
  if (!service) return report(service.error());

  serve::ServerOptions options;
  options.http.host = host->profile.server.host;
  options.http.port = host->profile.server.port;
  options.log = [json = args.log_json](const std::string& line) { log_line(json, "info", line); };
  std::thread loader;
  bool all_failed = false, no_memory = false;
  // Loading goes on behind the open port; its end is one line a model. Nothing to serve ends it.
  options.listening = [&](const std::string& url, std::function<void()> stop) {
    log_line(args.log_json, "info", fmt::format("listening on {}", url));
    loader = std::thread([&, stop = std::move(stop)] {
      (void)wait_models(**service);
      all_failed = true;
      for (const engine::ModelStatus& m : (*service)->models()) {
        say_model(args.log_json, m);
        all_failed = all_failed && m.state == engine::ModelState::failed;
        no_memory = no_memory || m.no_memory;
      }
      if (all_failed) stop();
    });
  };
  const auto served = serve::serve_until_signal(**service, std::move(options));
  if (!served) report(served.error());
  if (loader.joinable()) loader.join();
  if (!served) return served.error().param == "port" ? kPort : kFailed;
  if (!all_failed) return kOk;
  return no_memory ? kMemory : kModel;
}

}  // namespace pn::cli
