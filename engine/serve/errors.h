// SPDX-License-Identifier: Apache-2.0
//
// Errors as HTTP: the status by who can fix it, and one body form everywhere.
//
// Owns the mapping of pn::Error to status, `code` and `type`. Measured on clients: 409, 429, 500,
// 503 and 507 are retried, 400, 413 and 422 are not; so what no retry can cure is a 4xx.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/serve/http.h"
#include "hal/host/result.h"

namespace pn::serve {

struct ApiError {
  int status = 400;
  std::string code;  // invalid_request, model_not_found, context_length_exceeded, ...
  std::string message;
  std::string param;                                    // null in the body when empty
  uint32_t retry_after_s = 0;                           // header and body when not 0
  std::vector<std::pair<std::string, uint64_t>> extra;  // numbers beside the four fields
};

ApiError to_api_error(const Error& error);
// {"error":{"message","type","param","code"}}
std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);
std::string error_type(int status);

}  // namespace pn::serve
