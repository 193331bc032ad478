// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1 on Boost.Beast: sockets, limits, keep-alive, streamed answers, clients that go away.
//
// Owns connections and bytes. Knows no path and no JSON but for the body of its own refusals. The
// one idea: a handler gets a whole request and an Exchange; it may answer at once or later from any
// thread, whole or in parts, and is told when the client is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hal/host/result.h"

namespace pn::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;   // without the query
  std::string query;  // after '?', empty when none
  Headers headers;    // names in lower case
  std::string body;

  std::string header(std::string_view lower_name) const;  // empty when absent
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;  // beside Content-Type, Content-Length and Connection
};

// The answer to one request. Any thread; calls after the end, or after the client left, do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(HttpResponse response) = 0;
  // Sends headers now; body parts follow, each flushed as it comes.
  virtual void start_stream(HttpResponse head) = 0;
  virtual void write(std::string part) = 0;
  virtual void finish_stream() = 0;
  // Called once, on the server's thread, when the client leaves before the answer's end; at once
  // when it already has.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                   // 0: any free port
  uint64_t body_bytes_max = 32u << 20;    // 413 above
  uint32_t header_bytes_max = 32u << 10;  // 431 above
  uint32_t read_timeout_s = 30;           // a request must arrive whole within this
  uint32_t idle_timeout_s = 75;           // of a kept-alive connection
  uint32_t write_timeout_s = 30;          // a client that reads nothing for so long is gone
  uint64_t unsent_bytes_max = 4u << 20;   // streamed and not yet taken by the client
  uint32_t connections_max = 1024;
  // Makes the body of the server's own refusals (400, 408, 413, 431, 503).
  std::function<std::string(int status, const std::string& message)> error_body;
};

class HttpServer {
 public:
  // Binds and listens; Code::busy with the port named when it is taken.
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options, Handler handler);
  virtual ~HttpServer() = default;
  virtual uint16_t port() const = 0;
  // Serves on the calling thread until stop().
  virtual void run() = 0;
  // Any thread, also a signal handler's caller. Stops accepting; open answers may end until the
  // deadline, then their connections close and run() returns.
  virtual void stop(uint64_t grace_ns) = 0;
  // Runs a function on the server's thread.
  virtual void post(std::function<void()> function) = 0;
  // Calls back on the server's thread when one of the signals arrives; repeats.
  virtual void on_signals(std::vector<int> signals, std::function<void(int)> callback) = 0;
};

}  // namespace pn::serve
