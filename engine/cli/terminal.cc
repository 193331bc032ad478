// SPDX-License-Identifier: Apache-2.0
//
// Printing, progress and Ctrl-C; see terminal.h.
#include "engine/cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/cli/args.h"

namespace pn::cli {

namespace {

std::atomic<int> g_interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Wakes whoever waits for input: the signal may reach another thread, or come just before the wait.
int g_wake[2] = {-1, -1};

void on_interrupt(int) {
  // The second one means it: a wait that does not look at the flag must not hold the user.
  if (g_interrupts.fetch_add(1) >= 1) _exit(kInterrupted);
  const int saved = errno;
  [[maybe_unused]] const ssize_t n = write(g_wake[1], "", 1);
  errno = saved;
}

}  // namespace

void print_out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_err(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stderr);
}

void log_line(bool json, const char* level, const std::string& text) {
  if (!json) return print_err("pantheon: " + text);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  nlohmann::ordered_json line{
      {"time", static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9},
      {"level", level},
      {"message", text}};
  print_err(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int report(const Error& error) {
  print_err("pantheon: " + error.message);
  // Whatever is wrong with a plugin that was asked for, the command line itself was understood.
  if (error.param == "backend-plugin") return kPlugin;
  switch (error.code) {
    case Code::invalid:
      return kUsage;
    case Code::not_found:
      return kPlugin;
    case Code::unsupported:
      return kModel;
    case Code::out_of_memory:
      return kMemory;
    case Code::cancelled:
      return kInterrupted;
    case Code::busy:
      return error.param == "port" ? kPort : kFailed;
    default:
      return kFailed;
  }
}

std::string bytes_text(uint64_t bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double n = static_cast<double>(bytes);
  size_t unit = 0;
  while (n >= 1024 && unit + 1 < std::size(units)) n /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", n, units[unit]);
}

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (terminal_ && drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::update(uint64_t done, uint64_t total) {
  if (total == 0) return;
  const int tenth = static_cast<int>(done * 10 / total);
  if (!terminal_) {
    // Only what takes long enough to be waited for is worth lines in a log.
    const bool slow = std::chrono::steady_clock::now() - start_ > std::chrono::seconds(2);
    if (tenth > last_tenth_ && slow)
      print_err(fmt::format("{}: {} of {}", what_, bytes_text(done), bytes_text(total)));
    last_tenth_ = std::max(last_tenth_, tenth);
    return;
  }
  const int width = 30;
  const int filled = static_cast<int>(done * width / total);
  drawn_ = true;
  std::fputs(fmt::format("\r\033[K{} [{}{}] {} of {}", what_, std::string(filled, '#'),
                         std::string(width - filled, '.'), bytes_text(done), bytes_text(total))
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

void catch_interrupts() {
  if (g_wake[0] < 0 && pipe2(g_wake, O_CLOEXEC | O_NONBLOCK) != 0) g_wake[0] = g_wake[1] = -1;
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a read of the next question must return
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return g_interrupts.load() > 0; }
void clear_interrupt() {
  g_interrupts.store(0);
  char bytes[64];
  while (read(g_wake[0], bytes, sizeof bytes) > 0) {
  }
}

bool read_line(std::string& line) {
  static std::string pending;
  static bool ended = false;
  for (;;) {
    const size_t end = pending.find('\n');
    if (end != std::string::npos || (ended && !pending.empty())) {
      line = pending.substr(0, end);
      pending.erase(0, end == std::string::npos ? end : end + 1);
      return true;
    }
    if (ended || interrupted()) return false;
    pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {g_wake[0], POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return false;
    if (interrupted()) return false;
    if (fds[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n > 0)
      pending.append(bytes, static_cast<size_t>(n));
    else
      ended = n == 0 || errno != EINTR;
  }
}

}  // namespace pn::cli
