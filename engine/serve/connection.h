// SPDX-License-Identifier: Apache-2.0
//
// One connection: reads requests, lets a handler answer, keeps alive. Internal to the HTTP server.
//
// Owns the socket. The one idea: while an answer is pending the socket is only watched, not read,
// so a client that leaves is noticed at once and a pipelined request stays in the kernel.
#pragma once

#include <utility>  // before Asio: its 1.74 headers miss std::exchange under C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "engine/serve/http.h"

namespace pn::serve {

class Closable {
 public:
  virtual ~Closable() = default;
  virtual void close(bool only_idle) = 0;  // only_idle: not while an answer is pending
};

// What all connections of a server share; touched on its thread only. Holds the loop, so that an
// Exchange kept by another thread can always post, also when the server is gone.
struct SharedState {
  boost::asio::io_context io{1};
  HttpOptions options;
  Handler handler;
  uint32_t connections = 0;
  bool stopping = false;
  std::vector<std::weak_ptr<Closable>> open;
  std::function<void()> on_closed;
};

void start_connection(std::shared_ptr<SharedState> shared, boost::asio::ip::tcp::socket socket);

}  // namespace pn::serve
