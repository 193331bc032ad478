// SPDX-License-Identifier: Apache-2.0
//
// The server's life; see server.h. The loop's thread answers, one further thread drains, so that a
// second signal is still heard while running answers end.
#include "engine/serve/server.h"

#include <fmt/format.h>
#include <signal.h>

#include <thread>

#include "engine/serve/api.h"

namespace pn::serve {

namespace {

std::string refusal_body(int status, const std::string& message) {
  ApiError error;
  error.status = status;
  error.message = message;
  error.code = status == 413 || status == 431 ? "request_too_large"
               : status == 503                ? "capacity_busy"
                                              : "invalid_request";
  return error_json(error);
}

std::string url(const HttpOptions& http, uint16_t port) {
  const bool v6 = http.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", http.host, v6 ? "]" : "", port);
}

}  // namespace

Result<void> serve_until_signal(engine::Service& service, ServerOptions options) {
  Api api(service, {options.log});
  options.http.error_body = refusal_body;
  // A client that closes early must not end the process.
  ::signal(SIGPIPE, SIG_IGN);
  PN_TRY(auto server, HttpServer::listen(options.http, [&api](HttpRequest request,
                                                              std::shared_ptr<Exchange> exchange) {
           api.handle(std::move(request), std::move(exchange));
         }));
  std::thread drainer;
  int signals = 0;
  server->on_signals({SIGTERM, SIGINT}, [&](int number) {
    const auto say = [&](const std::string& text) {
      if (options.log) options.log(text);
    };
    if (++signals == 2) {
      say("second signal: cancelling what still runs");
      service.drain(0);
    }
    if (signals > 1) return;
    say(fmt::format("{}: no new requests; running ones may end within {} s",
                    number == SIGINT ? "SIGINT" : "SIGTERM", options.drain_ns / 1'000'000'000));
    drainer = std::thread([&] {
      service.drain(options.drain_ns);
      server->stop(2'000'000'000);
    });
  });
  if (options.listening)
    options.listening(url(options.http, server->port()), [&server] { server->stop(0); });
  server->run();
  if (drainer.joinable()) drainer.join();
  return {};
}

}  // namespace pn::serve
