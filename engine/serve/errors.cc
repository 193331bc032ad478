// SPDX-License-Identifier: Apache-2.0
//
// Error bodies and statuses; see errors.h.
#include "engine/serve/errors.h"

#include <nlohmann/json.hpp>

namespace pn::serve {

namespace {

// Codes that the engine hands over in Error.param, since they are part of the contract with
// clients.
bool is_contract_code(const std::string& param) {
  return param == "context_length_exceeded" || param == "model_loading" ||
         param == "capacity_busy" || param == "model_failed";
}

}  // namespace

std::string error_type(int status) {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 503 || status == 429) return "overloaded_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

ApiError to_api_error(const Error& error) {
  ApiError out;
  out.message = error.message;
  out.param = is_contract_code(error.param) ? "" : error.param;
  switch (error.code) {
    case Code::invalid:
    case Code::unsupported:
      out.status = 400;
      out.code = "invalid_request";
      break;
    case Code::not_found:
      out.status = 404;
      out.code = "not_found";
      break;
    case Code::busy:
    case Code::out_of_memory:
      out.status = 503;
      out.code = "capacity_busy";
      out.retry_after_s = 1;
      break;
    case Code::device_lost:
      out.status = 503;
      out.code = "device_lost";
      out.retry_after_s = 5;
      break;
    case Code::cancelled:
      out.status = 503;
      out.code = "cancelled";
      out.retry_after_s = 1;
      break;
    case Code::failed:
      out.status = 500;
      out.code = "internal_error";
      break;
  }
  if (is_contract_code(error.param)) out.code = error.param;
  if (error.code == Code::not_found && error.param == "model") out.code = "model_not_found";
  return out;
}

std::string error_json(const ApiError& error) {
  nlohmann::ordered_json body;
  body["message"] = error.message;
  body["type"] = error_type(error.status);
  body["param"] =
      error.param.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(error.param);
  body["code"] = error.code;
  if (error.retry_after_s) body["retry_after"] = error.retry_after_s;
  for (const auto& [name, value] : error.extra) body[name] = value;
  // Text of a client may be echoed: invalid UTF-8 must not make the answer invalid JSON.
  return nlohmann::ordered_json{{"error", body}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = error_json(error);
  if (error.retry_after_s)
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  return response;
}

}  // namespace pn::serve
