// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server over real sockets: keep-alive, limits, streams, clients that go away.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "engine/serve/http.h"

namespace {

using namespace pn::serve;

class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const timeval limit{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Client() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(const std::string& text) {
    REQUIRE(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
  }
  // Reads until `end` was seen, or the other side closed.
  std::string until(const std::string& end) {
    char buffer[4096];
    while (seen_.find(end) == std::string::npos) {
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      seen_.append(buffer, static_cast<size_t>(n));
    }
    const size_t at = seen_.find(end);
    const size_t take = at == std::string::npos ? seen_.size() : at + end.size();
    std::string out = seen_.substr(0, take);
    seen_.erase(0, take);
    return out;
  }
  bool closed() {
    char byte;
    return seen_.empty() && ::recv(fd_, &byte, 1, 0) == 0;
  }

 private:
  int fd_;
  std::string seen_;
};

// A server on a free port whose handler answers by path.
class Rig {
 public:
  explicit Rig(HttpOptions options = {}) {
    options.port = 0;
    options.error_body = [](int status, const std::string&) {
      return "refused " + std::to_string(status);
    };
    auto made = HttpServer::listen(
        options, [this](HttpRequest r, std::shared_ptr<Exchange> e) { handle(r, e); });
    REQUIRE(made);
    server_ = std::move(*made);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Rig() {
    server_->stop(0);
    thread_.join();
    std::lock_guard lock(mutex_);
    held_.reset();
  }
  uint16_t port() const { return server_->port(); }
  HttpServer& server() { return *server_; }
  std::shared_ptr<Exchange> held() {
    for (int i = 0; i < 500; ++i) {
      std::lock_guard lock(mutex_);
      if (held_) return held_;
      usleep(10000);
    }
    return nullptr;
  }
  std::promise<void> gone;

 private:
  void handle(const HttpRequest& r, const std::shared_ptr<Exchange>& e) {
    if (r.path == "/hold") {
      e->on_gone([this] { gone.set_value(); });
      std::lock_guard lock(mutex_);
      held_ = e;
      return;
    }
    HttpResponse response;
    response.body = r.method + " " + r.path + " [" + r.query + "] " + std::to_string(r.body.size());
    e->respond(std::move(response));
  }
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::shared_ptr<Exchange> held_;
};

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

}  // namespace

TEST_CASE("requests follow each other on one connection, also pipelined") {
  Rig rig;
  Client client(rig.port());
  client.send("GET /a?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.until("GET /a [x=1] 0").find("200 OK") != std::string::npos);
  client.send(post("/b", "hello") + post("/c", "you"));
  CHECK(client.until("POST /b [] 5").find("keep-alive") != std::string::npos);
  CHECK(client.until("POST /c [] 3").find("200") != std::string::npos);
}

TEST_CASE("Expect: 100-continue is answered, also on a used connection") {
  Rig rig;
  Client client(rig.port());
  for (int i = 0; i < 2; ++i) {
    client.send(
        "POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    CHECK(client.until("\r\n\r\n").find("100 Continue") != std::string::npos);
    client.send("data");
    CHECK(client.until("POST /big [] 4").find("200 OK") != std::string::npos);
  }
}

TEST_CASE("too large, too long and malformed requests get their status and a body") {
  HttpOptions options;
  options.body_bytes_max = 100;
  options.header_bytes_max = 1000;
  Rig rig(options);
  Client big(rig.port());
  big.send(post("/", std::string(101, 'a')));
  CHECK(big.until("refused 413").find("HTTP/1.1 413") == 0);
  CHECK(big.closed());
  Client wide(rig.port());
  wide.send("GET / HTTP/1.1\r\nX: " + std::string(2000, 'a') + "\r\n\r\n");
  CHECK(wide.until("refused 431").find("431") != std::string::npos);
  Client noise(rig.port());
  noise.send("\x16\x03\x01 not http at all\r\n\r\n");
  CHECK(noise.until("refused 400").find("400") != std::string::npos);
}

TEST_CASE("a request that does not arrive whole is refused in time, an idle connection ends") {
  HttpOptions options;
  options.read_timeout_s = 1;
  Rig rig(options);
  Client headers(rig.port()), body(rig.port()), silent(rig.port());
  headers.send("GET /a HTTP/1.1\r\nHos");
  body.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
  CHECK(headers.until("refused 408").find("HTTP/1.1 408 ") == 0);
  CHECK(headers.closed());
  CHECK(body.until("refused 408").find("HTTP/1.1 408 ") == 0);
  CHECK(body.closed());
  CHECK(silent.closed());
}

TEST_CASE("a stream is chunked, and HTTP/1.0 gets it plain") {
  for (const bool old : {false, true}) {
    CAPTURE(old);
    Rig rig;
    Client client(rig.port());
    client.send(std::string("GET /hold HTTP/1.") + (old ? "0" : "1") + "\r\nHost: x\r\n\r\n");
    const auto exchange = rig.held();
    REQUIRE(exchange);
    HttpResponse head;
    head.content_type = "text/event-stream";
    exchange->start_stream(head);
    exchange->write("data: a\n\n");
    const std::string seen = client.until("data: a\n\n");
    CHECK((seen.find("chunked") == std::string::npos) == old);
    exchange->write("data: b\n\n");
    exchange->finish_stream();
    if (old)
      CHECK(client.until("data: b\n\n").find("data: b") != std::string::npos);
    else
      CHECK(client.until("0\r\n\r\n").find("9\r\ndata: b\n\n\r\n") != std::string::npos);
  }
}

TEST_CASE("a client that leaves is noticed at once") {
  Rig rig;
  Client client(rig.port());
  client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(rig.held());
  client.close();
  CHECK(rig.gone.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready);
}

TEST_CASE("a client that reads nothing is dropped, not buffered for") {
  HttpOptions options;
  options.unsent_bytes_max = 1 << 20;
  Rig rig(options);
  Client client(rig.port());
  client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = rig.held();
  REQUIRE(exchange);
  exchange->start_stream({});
  const std::string part(64 << 10, 'x');
  for (int i = 0; i < 400; ++i) exchange->write(part);
  CHECK(rig.gone.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE("the port of another program is named") {
  Rig rig;
  HttpOptions options;
  options.port = rig.port();
  const auto second = HttpServer::listen(options, [](HttpRequest, std::shared_ptr<Exchange>) {});
  REQUIRE(!second);
  CHECK(second.error().param == "port");
  CHECK(second.error().message.find(std::to_string(rig.port())) != std::string::npos);
}

TEST_CASE("stop lets an open answer end and then closes") {
  auto rig = std::make_unique<Rig>();
  Client client(rig->port());
  client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = rig->held();
  REQUIRE(exchange);
  rig->server().stop(5'000'000'000);
  HttpResponse late;
  late.body = "late answer";
  exchange->respond(std::move(late));
  const std::string seen = client.until("late answer");
  CHECK(seen.find("Connection: close") != std::string::npos);
  CHECK(client.closed());
}
