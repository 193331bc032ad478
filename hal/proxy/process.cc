// SPDX-License-Identifier: Apache-2.0
//
// See process.h. A line that begins with kLogMark is a log line of the plugin, its level next; any
// other is something that was printed, by an assertion or a runtime that gives up: last words.
#include "hal/proxy/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hal/proxy/backend_log.h"
#include "hal/proxy/wire.h"

extern char** environ;

namespace pn::proxy {

namespace {

constexpr size_t kLastWords = 4;  // lines
constexpr size_t kLineMax = 512;  // bytes
constexpr int kLookMs = 200;      // between looks at a child without pidfd
constexpr int kChannelFd = 3;     // where the backend host finds its socket

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    return std::string("was killed by SIG") + (name != nullptr ? name : "?") + " (" +
           ::strsignal(WTERMSIG(status)) + ")";
  }
  return "ended itself with exit(" + std::to_string(WEXITSTATUS(status)) + ")";
}

}  // namespace

Result<std::unique_ptr<Process>> Process::start(ProcessSpec spec, Fd child_end) {
  std::unique_ptr<Process> process(new Process);
  process->spec_ = std::move(spec);
  auto started = std::make_shared<std::promise<int>>();
  std::future<int> error = started->get_future();
  process->thread_ = std::thread([p = process.get(), end = std::move(child_end),
                                  started]() mutable { p->run(std::move(end), started.get()); });
  const int code = error.get();
  if (code == 0) return process;
  return fail(Code::failed, process->spec_.program + ": cannot be started: " + std::strerror(code) +
                                ": isolation needs it beside pantheon or in libexec");
}

Process::~Process() { stop(); }

void Process::stop() {
  expect_end();
  kill("was taken down");
  if (thread_.joinable()) thread_.join();
}

void Process::run(Fd child_end, std::promise<int>* started) {
  ::pthread_setname_np(::pthread_self(), "pn-isolation");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    dead_.store(true);
    reaped_ = true;
    return started->set_value(errno);
  }
  Fd reader(ends[0]), writer(ends[1]);
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  const int code = spawn(child_end.get(), writer.get());
  child_end = Fd();
  writer = Fd();
  if (code != 0) {
    reaped_ = true;
    dead_.store(true);
    return started->set_value(code);
  }
  started->set_value(0);
  watch(reader.get());
}

// Own process group: Ctrl-C at the terminal is the server's to hear. No signal mask is inherited.
int Process::spawn(int child_end, int stderr_end) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, stderr_end, 1);
  ::posix_spawn_file_actions_adddup2(&files, stderr_end, 2);
  ::posix_spawn_file_actions_adddup2(&files, child_end, kChannelFd);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string parent = std::to_string(::getpid());
  char* argv[] = {spec_.program.data(), spec_.plugin.data(), parent.data(), nullptr};
  pid_t pid = -1;
  const int code = ::posix_spawn(&pid, spec_.program.c_str(), &files, &attributes, argv, environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (code == 0) pid_ = pid;
  return code;
}

void Process::watch(int stderr_fd) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  bool open = true;
  for (int status = 0;;) {
    pollfd p[2] = {{open ? stderr_fd : -1, POLLIN, 0}, {pidfd.get(), POLLIN, 0}};
    ::poll(p, 2, kLookMs);
    if (open) open = read_lines(stderr_fd);
    check_beat();
    std::unique_lock lock(mutex_);
    if (::waitpid(pid_, &status, WNOHANG) != pid_) continue;
    reaped_ = true;
    lock.unlock();
    if (open) read_lines(stderr_fd);
    if (!partial_.empty()) line(partial_);
    return conclude(status);
  }
}

// False at the end of the pipe.
bool Process::read_lines(int fd) {
  char chunk[4096];
  for (;;) {
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    for (ssize_t i = 0; i < n; ++i) {
      if (chunk[i] == '\n') {
        line(partial_);
        partial_.clear();
      } else if (partial_.size() < kLineMax) {
        partial_ += chunk[i];
      }
    }
  }
}

void Process::line(const std::string& text) {
  const bool logged = text.size() > 2 && text[0] == kLogMark;
  const uint32_t level = logged ? static_cast<uint32_t>(text[1] - '0') : PN_LOG_WARN;
  const std::string words = logged ? text.substr(2) : text;
  if (words.empty()) return;
  if (level >= PN_LOG_WARN) {
    std::lock_guard lock(mutex_);
    last_words_.push_back(words);
    if (last_words_.size() > kLastWords) last_words_.pop_front();
  }
  if (spec_.log) spec_.log(level, words);
}

void Process::check_beat() {
  const std::atomic<uint64_t>* beat = beat_.load();
  const uint64_t now = monotonic_ns();
  if (beat == nullptr) return;
  const uint64_t count = beat->load(std::memory_order_relaxed);
  if (count != last_beat_ || beat_seen_ns_ == 0) {
    last_beat_ = count;
    beat_seen_ns_ = now;
    return;
  }
  if (now - beat_seen_ns_ < spec_.silence_ms * 1'000'000ull) return;
  beat_.store(nullptr);
  kill("gave no sign of life for " + std::to_string(spec_.silence_ms) + " ms and was killed");
}

void Process::kill(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (reaped_) return;
  if (why_.empty()) why_ = why;
  ::kill(pid_, SIGKILL);
}

void Process::conclude(int status) {
  {
    std::lock_guard lock(mutex_);
    std::string text = "its backend host (pid " + std::to_string(pid_) + ") " +
                       (why_.empty() ? how_it_ended(status) : why_);
    std::string words;
    for (const std::string& each : last_words_) words += (words.empty() ? "" : " | ") + each;
    if (!words.empty()) text += "; last words: " + words;
    verdict_ = no_error();
    set_error(&verdict_, PN_DEVICE_LOST, text);
    verdict_.scope = PN_SCOPE_PLUGIN;
    verdict_.recovery = PN_RECOVER_RESTART_PROCESS;
    verdict_.native_code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    if (spec_.log && !expected_.load()) spec_.log(PN_LOG_ERROR, text);
    dead_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

bool Process::wait_dead(uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return dead(); });
}

pn_error Process::verdict() {
  wait_dead(1'000'000'000);
  std::lock_guard lock(mutex_);
  if (dead()) return verdict_;
  pn_error error = no_error();
  set_error(&error, PN_DEVICE_LOST, "its backend host does not answer any more");
  error.scope = PN_SCOPE_PLUGIN;
  error.recovery = PN_RECOVER_RESTART_PROCESS;
  return error;
}

}  // namespace pn::proxy
