// SPDX-License-Identifier: Apache-2.0
//
// The HTTP API: paths, methods, and what each does with the Service.
//
// Owns routing and the life of an answer between engine and client. Knows no socket: it sees
// requests and Exchanges. A client that leaves cancels its generation; an answer that cannot be
// finished ends with an error body, never with silence.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/serve/errors.h"
#include "engine/serve/http.h"
#include "engine/serve/requests.h"
#include "engine/service/generate.h"

namespace pn::serve {

struct ApiOptions {
  // One line a request, when it ends: method, path, status, tokens, milliseconds. No prompts.
  std::function<void(const std::string&)> log;
};

ApiError unknown_model(const engine::Service& service, const std::string& name);

class Api {
 public:
  // The Service outlives the Api.
  Api(engine::Service& service, ApiOptions options);
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  struct Route {
    const char* method;
    const char* path;  // a trailing * takes the rest of the path
    void (Api::*handler)(const HttpRequest&, const std::shared_ptr<Exchange>&);
  };
  static const std::vector<Route>& routes();

 private:
  void health(const HttpRequest&, const std::shared_ptr<Exchange>&);
  void ready(const HttpRequest&, const std::shared_ptr<Exchange>&);
  void models(const HttpRequest&, const std::shared_ptr<Exchange>&);
  void model(const HttpRequest&, const std::shared_ptr<Exchange>&);
  void chat(const HttpRequest&, const std::shared_ptr<Exchange>&);
  void completions(const HttpRequest&, const std::shared_ptr<Exchange>&);

  Result<engine::ModelStatus> ready_model(const std::string& name) const;
  void generate(const engine::ModelStatus& model, Common request, bool chat, std::string echo,
                const std::shared_ptr<Exchange>& exchange);
  void refuse(const Error& error, const std::shared_ptr<Exchange>& exchange) const;
  std::string next_id(const char* prefix);

  engine::Service& service_;
  ApiOptions options_;
  std::atomic<uint64_t> requests_{0};
  std::string run_;  // differs between starts, so that ids do
};

}  // namespace pn::serve
