// SPDX-License-Identifier: Apache-2.0
//
// See channel.h. A frame is a fixed head, then the body; descriptors ride on the head's first byte.
#include "hal/proxy/channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pn::proxy {

namespace {

struct Head {
  uint32_t call;
  uint32_t fds;
  uint64_t bytes;
};
constexpr uint64_t kBodyMax = 4ull << 30;  // more than any tensor that a test converts

}  // namespace

Outcome Channel::wait(short events, uint64_t deadline) {
  for (;;) {
    int ms = -1;
    if (deadline != kNever) {
      const uint64_t now = monotonic_ns();
      if (now >= deadline) return Outcome::late;
      ms = static_cast<int>(std::min<uint64_t>((deadline - now) / 1'000'000 + 1, 1'000'000));
    }
    pollfd p{fd_.get(), events, 0};
    const int n = ::poll(&p, 1, ms);
    if (n > 0) return Outcome::ok;
    if (n < 0 && errno != EINTR) return Outcome::closed;
  }
}

Outcome Channel::send_all(const std::byte* at, size_t bytes, std::span<const int> fds,
                          uint64_t deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))] = {};
  while (bytes > 0) {
    iovec part{const_cast<std::byte*>(at), bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
    }
    const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
      fds = {};
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (const Outcome o = wait(POLLOUT, deadline); o != Outcome::ok) return o;
    } else if (n < 0 && errno != EINTR) {
      return Outcome::closed;
    }
  }
  return Outcome::ok;
}

Outcome Channel::send(uint32_t call, std::span<const std::byte> body, std::span<const int> fds,
                      uint64_t deadline) {
  if (fds.size() > kFdsMax) return Outcome::closed;
  const Head head{call, static_cast<uint32_t>(fds.size()), body.size()};
  const Outcome o = send_all(reinterpret_cast<const std::byte*>(&head), sizeof head, fds, deadline);
  return o != Outcome::ok ? o : send_all(body.data(), body.size(), {}, deadline);
}

Outcome Channel::receive_all(std::byte* at, size_t bytes, std::vector<Fd>* fds, uint64_t deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))];
  while (bytes > 0) {
    if (const Outcome o = wait(POLLIN, deadline); o != Outcome::ok) return o;
    iovec part{at, bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    if (n <= 0) return Outcome::closed;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        fds->emplace_back(fd);
      }
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return Outcome::ok;
}

Outcome Channel::receive(Message* out, uint64_t deadline) {
  Head head{};
  out->fds.clear();
  const Outcome o =
      receive_all(reinterpret_cast<std::byte*>(&head), sizeof head, &out->fds, deadline);
  if (o != Outcome::ok) return o;
  if (head.bytes > kBodyMax || out->fds.size() != head.fds) return Outcome::closed;
  out->call = head.call;
  out->body.resize(head.bytes);
  return receive_all(out->body.data(), head.bytes, &out->fds, deadline);
}

Result<std::pair<Fd, Fd>> socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return fail(Code::failed, std::string("no socket pair: ") + std::strerror(errno));
  }
  return std::make_pair(Fd(fds[0]), Fd(fds[1]));
}

}  // namespace pn::proxy
