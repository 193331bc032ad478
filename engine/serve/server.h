// SPDX-License-Identifier: Apache-2.0
//
// Service + Api + HTTP + signals: a server from start to graceful end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/serve/http.h"
#include "engine/service/generate.h"

namespace pn::serve {

struct ServerOptions {
  HttpOptions http;
  uint64_t drain_ns = 30'000'000'000;           // running answers may end within this
  std::function<void(const std::string&)> log;  // one line a request, and what happens
  // Once, with the URL and a function that ends the server at once; any thread may call it.
  std::function<void(const std::string& url, std::function<void()> stop)> listening;
};

// Serves until SIGTERM or SIGINT, then refuses new requests and lets running ones end; a second
// signal cancels them. The port opens at once, also while models load.
Result<void> serve_until_signal(engine::Service& service, ServerOptions options);

}  // namespace pn::serve
