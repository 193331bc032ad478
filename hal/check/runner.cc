// SPDX-License-Identifier: Apache-2.0
//
// See runner.h. A child writes "state\ntext" and ends with 0; all else is a failure, and the end of
// its stderr is shown with it.
#include "hal/check/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "hal/check/bench.h"

extern char** environ;

namespace pn::check {

namespace {

using Clock = std::chrono::steady_clock;

uint64_t since(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) == 0) read = fds[0], write = fds[1];
  }
  ~Pipe() {
    if (read >= 0) ::close(read);
    close_write();
  }
  void close_write() {
    if (write >= 0) ::close(write);
    write = -1;
  }
};

// What the child said on both pipes, until both end or the time is over.
struct Heard {
  std::string outcome, words;
  bool in_time = true;
};
Heard listen(const Pipe& outcome, const Pipe& words, uint32_t deadline_ms) {
  Heard heard;
  const auto end = Clock::now() + std::chrono::milliseconds(deadline_ms);
  pollfd fds[2] = {{outcome.read, POLLIN, 0}, {words.read, POLLIN, 0}};
  std::string* into[2] = {&heard.outcome, &heard.words};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      heard.in_time = false;
      break;
    }
    if (::poll(fds, 2, static_cast<int>(left)) <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char chunk[4096];
      const ssize_t n = ::read(fds[i].fd, chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        fds[i].fd = -1;
        continue;
      }
      into[i]->append(chunk, static_cast<size_t>(n));
      if (into[i]->size() > (1 << 16)) into[i]->erase(0, into[i]->size() - (1 << 15));
    }
  }
  return heard;
}

std::string last_lines(const std::string& text) {
  size_t at = text.size();
  for (int lines = 0; at > 0 && lines < 5; ++lines) {
    at = text.rfind('\n', at - 1);
    if (at == std::string::npos) at = 0;
  }
  std::string tail = text.substr(at);
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == ' ')) tail.pop_back();
  while (!tail.empty() && tail.front() == '\n') tail.erase(0, 1);
  return tail.empty() ? "" : "\nits last words: " + tail;
}

pid_t start(const std::vector<std::string>& command, const Pipe& outcome, const Pipe& words) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& part : command) argv.push_back(const_cast<char*>(part.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, words.write, 1);
  ::posix_spawn_file_actions_adddup2(&actions, words.write, 2);
  ::posix_spawn_file_actions_adddup2(&actions, outcome.write, kChildFd);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = -1;
  if (::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ) != 0) pid = -1;
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return pid;
}

Outcome verdict(const Heard& heard, int status, uint32_t deadline_ms) {
  Outcome out{State::failed, "", 0};
  const size_t line = heard.outcome.find('\n');
  const bool told = line != std::string::npos;
  const std::string told_state = heard.outcome.substr(0, line);
  const std::string when = told ? " after the case, while it ended" : "";
  if (!heard.in_time) {
    out.text = fmt::format("hung{}: nothing for {} s", when, deadline_ms / 1000);
  } else if (WIFSIGNALED(status)) {
    out.text = fmt::format("crashed{} (signal {}, {})", when, WTERMSIG(status),
                           ::strsignal(WTERMSIG(status)));
  } else if (!told || WEXITSTATUS(status) != 0) {
    out.text = fmt::format("called exit({}){}", WEXITSTATUS(status), when);
  } else {
    for (const State state : {State::passed, State::failed, State::unsupported})
      if (told_state == to_string(state)) out.state = state;
    out.text = heard.outcome.substr(line + 1);
    return out;
  }
  if (told && told_state != to_string(State::passed))
    out.text += "\n" + heard.outcome.substr(line + 1);
  out.text += last_lines(heard.words);
  return out;
}

}  // namespace

Outcome run_here(const Case& c, const Setup& setup) {
  const auto start = Clock::now();
  Outcome out;
  {
    Bench bench(setup);
    const Result<void> done = c.run(bench);
    if (!done) bench.fail(done.error().message);
    out = bench.outcome();
  }
  out.ns = since(start);
  return out;
}

void run_for_parent(const Case& c, const Setup& setup, int fd) {
  const Outcome out = run_here(c, setup);
  const std::string text = std::string(to_string(out.state)) + "\n" + out.text;
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
}

Outcome run_child(const std::vector<std::string>& command, uint32_t deadline_ms) {
  const auto began = Clock::now();
  Pipe outcome, words;
  const pid_t pid = start(command, outcome, words);
  if (pid < 0) return {State::failed, "no child process could be started", 0};
  outcome.close_write();
  words.close_write();
  const Heard heard = listen(outcome, words, deadline_ms);
  if (!heard.in_time) ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-pid, SIGKILL);  // whatever the plugin left behind
  Outcome out = verdict(heard, status, deadline_ms);
  out.ns = since(began);
  return out;
}

}  // namespace pn::check
