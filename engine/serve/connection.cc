// SPDX-License-Identifier: Apache-2.0
//
// A connection's life: read a request, hand it over, write the answer, again. See connection.h.
//
// Everything runs on the server's thread. Exchange calls from other threads are posted here, so the
// answer's state needs no lock; a generation number ties each of them to its own request.
#include "engine/serve/connection.h"

#include <sys/socket.h>

#include <utility>  // before Asio: its 1.74 headers miss std::exchange under C++20

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <optional>

namespace pn::serve {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

const char* reason(int status) {
  return http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))).data();
}

std::string lower(boost::beast::string_view text) {
  std::string out(text.data(), text.size());
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string chunk(const std::string& part) {
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", part.size());
  return size + part + "\r\n";
}

class Connection final : public Closable, public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<SharedState> shared, tcp::socket socket)
      : shared_(std::move(shared)), socket_(std::move(socket)), timer_(socket_.get_executor()) {}

  ~Connection() override {
    --shared_->connections;
    auto& open = shared_->open;
    open.erase(std::remove_if(open.begin(), open.end(), [](auto& w) { return w.expired(); }),
               open.end());
    if (shared_->on_closed) shared_->on_closed();
  }

  void start() {
    error_code ec;
    socket_.set_option(tcp::no_delay(true), ec);
    if (shared_->connections > shared_->options.connections_max)
      return refuse(503, "too many connections: try again later");
    read(shared_->options.read_timeout_s);
  }

  void close(bool only_idle) override {
    if (only_idle && (answering_ || !out_.empty())) return;
    drop();
  }

  // Exchange calls, already on the server's thread.
  void respond(uint64_t turn, HttpResponse response) {
    if (turn != turn_ || !answering_ || streaming_) return;
    send(head(response, false) + (head_only_ ? std::string() : response.body));
    end_answer();
  }
  void start_stream(uint64_t turn, const HttpResponse& response) {
    if (turn != turn_ || !answering_ || streaming_) return;
    streaming_ = true;
    send(head(response, true));
  }
  void write(uint64_t turn, const std::string& part) {
    if (turn != turn_ || !streaming_ || part.empty()) return;
    send(chunked_ ? chunk(part) : part);
    // A reader this slow would make the server hold the whole answer.
    if (unsent_ > shared_->options.unsent_bytes_max) drop();
  }
  void finish_stream(uint64_t turn) {
    if (turn != turn_ || !streaming_) return;
    if (chunked_) send("0\r\n\r\n");
    end_answer();
  }
  void on_gone(uint64_t turn, std::function<void()> callback) {
    if (turn == turn_ && answering_ && socket_.is_open())
      gone_ = std::move(callback);
    else if (turn != ended_turn_)
      callback();
  }

 private:
  void read(uint32_t timeout_s) {
    reading_ = true;
    parser_.emplace();
    parser_->body_limit(shared_->options.body_bytes_max);
    parser_->header_limit(shared_->options.header_bytes_max);
    arm_read(timeout_s);
    auto self = shared_from_this();
    http::async_read_header(socket_, buffer_, *parser_, [self](error_code ec, size_t) {
      if (ec) return self->read_failed(ec);
      self->read_body();
    });
  }

  void read_body() {
    arm_read(shared_->options.read_timeout_s);
    if (boost::beast::iequals(parser_->get()[http::field::expect], "100-continue"))
      send("HTTP/1.1 100 Continue\r\n\r\n");
    auto self = shared_from_this();
    http::async_read(socket_, buffer_, *parser_, [self](error_code ec, size_t) {
      if (ec) return self->read_failed(ec);
      self->dispatch();
    });
  }

  void read_failed(error_code ec) {
    if (!socket_.is_open()) return;
    const HttpOptions& o = shared_->options;
    // Who has begun a request is told; an idle connection just ends.
    if (late_ && parser_->got_some())
      return refuse(408, "the request was not complete within " + std::to_string(o.read_timeout_s) +
                             " seconds");
    if (ec == http::error::body_limit)
      return refuse(413, "the body is larger than " + std::to_string(o.body_bytes_max) + " bytes");
    if (ec == http::error::header_limit)
      return refuse(431,
                    "the header is larger than " + std::to_string(o.header_bytes_max) + " bytes");
    const bool theirs = ec.category() == make_error_code(http::error::bad_method).category();
    if (theirs && ec != http::error::end_of_stream && ec != http::error::partial_message)
      return refuse(400, std::string("not an HTTP request: ") + ec.message());
    drop();
  }

  void dispatch();

  // Answers before any handler saw the request, and closes.
  void refuse(int status, const std::string& message) {
    reading_ = false;
    answering_ = true;
    ++turn_;
    keep_alive_ = false;
    http11_ = true;
    HttpResponse response;
    response.status = status;
    response.body =
        shared_->options.error_body ? shared_->options.error_body(status, message) : message;
    respond(turn_, std::move(response));
  }

  std::string head(const HttpResponse& r, bool stream) {
    std::string out = http11_ ? "HTTP/1.1 " : "HTTP/1.0 ";
    out += std::to_string(r.status) + " " + reason(r.status) + "\r\n";
    out += "Content-Type: " + r.content_type + "\r\n";
    for (const auto& [name, value] : r.headers) out += name + ": " + value + "\r\n";
    chunked_ = stream && http11_;
    if (chunked_) out += "Transfer-Encoding: chunked\r\n";
    if (!stream) out += "Content-Length: " + std::to_string(r.body.size()) + "\r\n";
    if (stream && !http11_) keep_alive_ = false;
    if (shared_->stopping) keep_alive_ = false;
    out += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return out;
  }

  void send(std::string bytes) {
    unsent_ += bytes.size();
    out_.push_back(std::move(bytes));
    if (out_.size() == 1) write_next();
  }

  void write_next() {
    arm(shared_->options.write_timeout_s);
    auto self = shared_from_this();
    asio::async_write(socket_, asio::buffer(out_.front()), [self](error_code ec, size_t) {
      if (ec) return self->drop();
      self->unsent_ -= self->out_.front().size();
      self->out_.pop_front();
      self->timer_.cancel();
      if (!self->out_.empty()) return self->write_next();
      self->written();
    });
  }

  void end_answer() {
    answering_ = streaming_ = false;
    ended_turn_ = turn_;
    gone_ = nullptr;
    if (out_.empty()) written();
  }

  // Everything queued is out: the next request, or the end.
  void written() {
    if (answering_ || reading_ || !socket_.is_open()) return;
    if (!keep_alive_) return shut();
    reading_ = true;
    auto self = shared_from_this();
    asio::post(socket_.get_executor(), [self] {
      if (self->socket_.is_open()) self->read(self->shared_->options.idle_timeout_s);
    });
  }

  // Readable while an answer is pending: data is a pipelined request (left alone), end is a client
  // that left.
  void watch() {
    auto self = shared_from_this();
    socket_.async_wait(tcp::socket::wait_read, [self, turn = turn_](error_code ec) {
      if (ec || !self->answering_ || turn != self->turn_) return;
      char byte;
      const ssize_t n = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) return;
      self->drop();
    });
  }

  void arm(uint32_t seconds) {
    timer_.expires_after(std::chrono::seconds(seconds));
    auto self = shared_from_this();
    timer_.async_wait([self](error_code ec) {
      if (!ec) self->drop();
    });
  }

  // Cancelling ends the pending read, so nothing of a late request is dispatched after its refusal.
  void arm_read(uint32_t seconds) {
    late_ = false;
    timer_.expires_after(std::chrono::seconds(seconds));
    auto self = shared_from_this();
    timer_.async_wait([self](error_code ec) {
      if (ec) return;
      self->late_ = true;
      self->socket_.cancel(ec);
    });
  }

  void shut() {
    error_code ec;
    socket_.shutdown(tcp::socket::shutdown_send, ec);
    drop();
  }

  void drop() {
    timer_.cancel();
    error_code ec;
    socket_.close(ec);
    answering_ = streaming_ = false;
    if (auto gone = std::exchange(gone_, nullptr)) gone();
  }

  std::shared_ptr<SharedState> shared_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::deque<std::string> out_;
  uint64_t unsent_ = 0;      // bytes in out_
  uint64_t turn_ = 0;        // number of the request being answered
  uint64_t ended_turn_ = 0;  // last one whose answer is complete
  bool answering_ = false, streaming_ = false, chunked_ = false;
  bool keep_alive_ = false, http11_ = true, head_only_ = false;
  bool late_ = false;     // the time of the read in progress is over
  bool reading_ = false;  // a request is being read, or will be next
  std::function<void()> gone_;
};

// Posts every call to the connection's thread.
class PostedExchange final : public Exchange {
 public:
  PostedExchange(std::shared_ptr<Connection> connection, asio::any_io_executor executor,
                 uint64_t turn)
      : connection_(std::move(connection)), executor_(std::move(executor)), turn_(turn) {}

  void respond(HttpResponse response) override {
    post([c = connection_, t = turn_, r = std::move(response)]() mutable {
      c->respond(t, std::move(r));
    });
  }
  void start_stream(HttpResponse head) override {
    post([c = connection_, t = turn_, h = std::move(head)] { c->start_stream(t, h); });
  }
  void write(std::string part) override {
    post([c = connection_, t = turn_, p = std::move(part)] { c->write(t, p); });
  }
  void finish_stream() override {
    post([c = connection_, t = turn_] { c->finish_stream(t); });
  }
  void on_gone(std::function<void()> callback) override {
    post([c = connection_, t = turn_, f = std::move(callback)]() mutable {
      c->on_gone(t, std::move(f));
    });
  }

 private:
  template <typename F>
  void post(F&& f) {
    asio::post(executor_, std::forward<F>(f));
  }
  std::shared_ptr<Connection> connection_;
  asio::any_io_executor executor_;
  uint64_t turn_;
};

void Connection::dispatch() {
  timer_.cancel();
  reading_ = false;
  auto message = parser_->release();
  keep_alive_ = message.keep_alive();
  http11_ = message.version() == 11;
  head_only_ = message.method() == http::verb::head;
  answering_ = true;
  ++turn_;
  HttpRequest request;
  request.method = lower(message.method_string());
  for (char& c : request.method) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string target(message.target().data(), message.target().size());
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  for (const auto& field : message)
    request.headers.emplace_back(lower(field.name_string()),
                                 std::string(field.value().data(), field.value().size()));
  request.body = std::move(message.body());
  watch();
  shared_->handler(std::move(request), std::make_shared<PostedExchange>(
                                           shared_from_this(), socket_.get_executor(), turn_));
}

}  // namespace

void start_connection(std::shared_ptr<SharedState> shared, tcp::socket socket) {
  ++shared->connections;
  auto connection = std::make_shared<Connection>(shared, std::move(socket));
  shared->open.push_back(connection);
  connection->start();
}

}  // namespace pn::serve
