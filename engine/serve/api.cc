// SPDX-License-Identifier: Apache-2.0
//
// Routing, model listing, health; see api.h. The two generating endpoints are in generate_api.cc.
#include "engine/serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace pn::serve {

namespace {

const char* state_name(engine::ModelState state) {
  switch (state) {
    case engine::ModelState::loading:
      return "loading";
    case engine::ModelState::ready:
      return "ready";
    case engine::ModelState::failed:
      return "failed";
  }
  return "unknown";
}

Json model_json(const engine::ModelStatus& m, int64_t created_s) {
  Json out;
  out["id"] = m.name;
  out["object"] = "model";
  out["created"] = created_s;
  out["owned_by"] = "pantheon";
  out["aliases"] = m.aliases;
  Json status{{"state", state_name(m.state)}};
  if (m.state == engine::ModelState::loading) {
    status["bytes_done"] = m.bytes_done;
    status["bytes_total"] = m.bytes_total;
  }
  if (!m.error.empty()) status["error"] = m.error;
  out["status"] = std::move(status);
  out["meta"] = {{"architecture", m.architecture},
                 {"plugin", m.plugin},
                 {"die", m.die},
                 {"context", m.context},
                 {"context_trained", m.context_trained},
                 {"slots", m.slots},
                 {"running", m.running},
                 {"queued", m.queued},
                 {"weight_bytes", m.weight_bytes},
                 {"kv_bytes", m.kv_bytes},
                 {"batch_invariant", m.batch_invariant}};
  return out;
}

HttpResponse json_response(int status, const Json& body) {
  HttpResponse response;
  response.status = status;
  response.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

bool matches(const std::string& pattern, const std::string& path) {
  if (pattern.back() != '*') return pattern == path;
  const size_t stem = pattern.size() - 1;
  return path.size() > stem && path.compare(0, stem, pattern, 0, stem) == 0;
}

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Passes everything on and writes the log line when the answer's status is known.
class LoggedExchange final : public Exchange {
 public:
  LoggedExchange(std::shared_ptr<Exchange> inner, std::string what,
                 std::function<void(const std::string&)> log)
      : inner_(std::move(inner)), what_(std::move(what)), log_(std::move(log)) {}

  void respond(HttpResponse response) override {
    note(response.status);
    inner_->respond(std::move(response));
  }
  void start_stream(HttpResponse head) override {
    note(head.status);
    inner_->start_stream(std::move(head));
  }
  void write(std::string part) override { inner_->write(std::move(part)); }
  void finish_stream() override { inner_->finish_stream(); }
  void on_gone(std::function<void()> callback) override { inner_->on_gone(std::move(callback)); }

 private:
  void note(int status) {
    const auto spent = std::chrono::steady_clock::now() - start_;
    log_(fmt::format("{} {} {:.1f} ms to first byte", what_, status,
                     std::chrono::duration<double, std::milli>(spent).count()));
  }
  std::shared_ptr<Exchange> inner_;
  std::string what_;
  std::function<void(const std::string&)> log_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Api::Api(engine::Service& service, ApiOptions options)
    : service_(service), options_(std::move(options)), run_(fmt::format("{:x}", now_s())) {}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> table = {
      {"GET", "/health", &Api::health},
      {"GET", "/ready", &Api::ready},
      {"GET", "/v1/models", &Api::models},
      {"GET", "/v1/models/*", &Api::model},
      {"POST", "/v1/chat/completions", &Api::chat},
      {"POST", "/v1/completions", &Api::completions},
  };
  return table;
}

void Api::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (options_.log)
    exchange = std::make_shared<LoggedExchange>(exchange, request.method + " " + request.path,
                                                options_.log);
  std::string allowed;
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const Route& route : routes()) {
    if (!matches(route.path, request.path)) continue;
    if (method == route.method) return (this->*route.handler)(request, exchange);
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  ApiError error;
  error.status = allowed.empty() ? 404 : 405;
  error.code = allowed.empty() ? "unknown_path" : "method_not_allowed";
  error.message = allowed.empty()
                      ? fmt::format("there is no {}; /v1/models lists the models", request.path)
                      : fmt::format("{} takes {}, not {}", request.path, allowed, request.method);
  HttpResponse response = error_response(error);
  if (!allowed.empty()) response.headers.emplace_back("Allow", allowed);
  exchange->respond(std::move(response));
}

void Api::health(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  Json body{{"status", "ok"}, {"version", PN_VERSION}};
  const std::string reason = service_.restart_reason();
  if (!reason.empty()) {  // alive, and what is left is served: a restart is for the operator
    body["status"] = "degraded";
    body["restart_needed"] = true;
    body["reason"] = reason;
  }
  exchange->respond(json_response(200, body));
}

void Api::ready(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  Json list = Json::array();
  bool all = true;
  for (const engine::ModelStatus& m : service_.models()) {
    all = all && m.state == engine::ModelState::ready;
    Json one{{"id", m.name}, {"state", state_name(m.state)}, {"die", m.die}};
    if (m.state == engine::ModelState::loading) {
      one["bytes_done"] = m.bytes_done;
      one["bytes_total"] = m.bytes_total;
    }
    if (!m.error.empty()) one["error"] = m.error;
    list.push_back(std::move(one));
  }
  const std::vector<std::string> notes = service_.notes();
  Json body{{"status", !all            ? "not_ready"
                       : notes.empty() ? "ready"
                                       : "degraded"},
            {"models", list}};
  if (!notes.empty()) body["notes"] = notes;
  HttpResponse response = json_response(all ? 200 : 503, body);
  if (!all) response.headers.emplace_back("Retry-After", "1");
  exchange->respond(std::move(response));
}

void Api::models(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  Json data = Json::array();
  for (const engine::ModelStatus& m : service_.models()) data.push_back(model_json(m, now_s()));
  exchange->respond(json_response(200, {{"object", "list"}, {"data", data}}));
}

void Api::model(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const std::string name = request.path.substr(std::string("/v1/models/").size());
  const auto found = service_.model(name);
  if (!found) return exchange->respond(error_response(unknown_model(service_, name)));
  exchange->respond(json_response(200, model_json(*found, now_s())));
}

ApiError unknown_model(const engine::Service& service, const std::string& name) {
  std::string names;
  for (const engine::ModelStatus& m : service.models())
    names += (names.empty() ? "" : ", ") + m.name;
  ApiError error;
  error.status = 404;
  error.code = "model_not_found";
  error.param = "model";
  error.message = fmt::format("the model \"{}\" is not served here; these are: {}", name, names);
  return error;
}

void Api::refuse(const Error& error, const std::shared_ptr<Exchange>& exchange) const {
  exchange->respond(error_response(to_api_error(error)));
}

std::string Api::next_id(const char* prefix) {
  return fmt::format("{}-{}{:06x}", prefix, run_, requests_.fetch_add(1) + 1);
}

}  // namespace pn::serve
