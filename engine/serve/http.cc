// SPDX-License-Identifier: Apache-2.0
//
// The listener: binds, accepts, counts connections, stops. One thread runs everything, so nothing
// here needs a lock; other threads reach it through post().
#include "engine/serve/http.h"

#include <utility>  // before Asio: its 1.74 headers miss std::exchange under C++20

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/serve/connection.h"

namespace pn::serve {

namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

class Listener final : public HttpServer {
 public:
  Listener(HttpOptions options, Handler handler) : shared_(std::make_shared<SharedState>()) {
    shared_->options = std::move(options);
    shared_->handler = std::move(handler);
    shared_->on_closed = [this] { finish_if_empty(); };
  }

  // Handlers that still wait hold their connections, and these the loop: run them out.
  ~Listener() override {
    shared_->on_closed = nullptr;
    error_code ec;
    acceptor_.close(ec);
    signals_.cancel(ec);
    deadline_.cancel();
    retry_.cancel();
    close_all(false);
    io_.restart();
    io_.poll();
    shared_->handler = nullptr;
  }

  Result<void> open() {
    const HttpOptions& o = shared_->options;
    const std::string where = o.host + ":" + std::to_string(o.port);
    error_code ec;
    const auto address = asio::ip::make_address(o.host == "localhost" ? "127.0.0.1" : o.host, ec);
    if (ec)
      return fail(Code::invalid,
                  "server.host " + o.host +
                      " is not an IP address: use 127.0.0.1, ::1 or "
                      "0.0.0.0",
                  "host");
    const tcp::endpoint endpoint(address, o.port);
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (ec == asio::error::address_in_use)
      return fail(Code::busy,
                  "cannot listen on " + where +
                      ": another program has the port; choose one with --port, or 0 for "
                      "any free port",
                  "port");
    if (ec) return fail(Code::failed, "cannot listen on " + where + ": " + ec.message(), "host");
    return {};
  }

  uint16_t port() const override {
    error_code ec;
    return acceptor_.local_endpoint(ec).port();
  }

  void run() override {
    accept();
    io_.run();
  }

  void stop(uint64_t grace_ns) override {
    asio::post(io_, [this, grace_ns] {
      if (shared_->stopping) return;
      shared_->stopping = true;
      error_code ec;
      acceptor_.close(ec);
      signals_.cancel(ec);
      deadline_.expires_after(std::chrono::nanoseconds(grace_ns));
      deadline_.async_wait([this](error_code) { close_all(false); });
      close_all(true);
      finish_if_empty();
    });
  }

  void post(std::function<void()> function) override { asio::post(io_, std::move(function)); }

  void on_signals(std::vector<int> signals, std::function<void(int)> callback) override {
    for (const int number : signals) signals_.add(number);
    wait_signal(std::move(callback));
  }

 private:
  void wait_signal(std::function<void(int)> callback) {
    signals_.async_wait([this, callback = std::move(callback)](error_code ec, int number) mutable {
      if (ec) return;
      callback(number);
      wait_signal(std::move(callback));
    });
  }

  void accept() {
    acceptor_.async_accept([this](error_code ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted || shared_->stopping) return;
      if (!ec) start_connection(shared_, std::move(socket));
      // Out of descriptors: try again shortly instead of spinning on the same error.
      if (!ec) return accept();
      retry_.expires_after(std::chrono::milliseconds(50));
      retry_.async_wait([this](error_code) { accept(); });
    });
  }

  void close_all(bool only_idle) {
    const std::vector<std::weak_ptr<Closable>> open = shared_->open;
    for (const auto& weak : open)
      if (const auto connection = weak.lock()) connection->close(only_idle);
  }

  void finish_if_empty() {
    if (shared_->stopping && shared_->connections == 0) io_.stop();
  }

  std::shared_ptr<SharedState> shared_;
  asio::io_context& io_ = shared_->io;
  tcp::acceptor acceptor_{io_};
  asio::signal_set signals_{io_};
  asio::steady_timer deadline_{io_};
  asio::steady_timer retry_{io_};
};

}  // namespace

std::string HttpRequest::header(std::string_view lower_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_name) return value;
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Handler handler) {
  auto listener = std::make_unique<Listener>(std::move(options), std::move(handler));
  PN_TRY(listener->open());
  return listener;
}

}  // namespace pn::serve
