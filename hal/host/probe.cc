// SPDX-License-Identifier: Apache-2.0
//
// See probe.h. The child writes marks into a pipe: 'L' before dlopen, 'E' before the entry, 'S'
// before shutdown, then 'K' (fine) or 'R' and the reason. A pipe that ends without K or R means
// that the plugin ended the child.
#include "hal/host/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

#include "hal/host/host_context.h"
#include "hal/host/negotiate.h"

namespace pn::hal {

namespace {

constexpr time_t kQuarantineSeconds = 24 * 3600;

void put(int fd, const char* text, size_t bytes) {
  while (bytes > 0) {
    ssize_t n = ::write(fd, text, bytes);
    if (n <= 0) return;
    text += n;
    bytes -= static_cast<size_t>(n);
  }
}

// Ends in _exit on every path of ours. dlopen directly: Boost's object would add nothing here.
[[noreturn]] void child(int fd, const std::string& path) {
  ::setpgid(0, 0);
  struct rlimit no_core {};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (int sig : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTERM, SIGINT}) {
    ::signal(sig, SIG_DFL);
  }
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int std_fd : {0, 1, 2}) ::dup2(null, std_fd);
  auto refuse = [fd](const std::string& why) {
    put(fd, "R", 1);
    put(fd, why.data(), why.size());
    ::_exit(0);
  };
  put(fd, "L", 1);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    refuse(path + ": cannot be loaded: " + (why != nullptr ? why : "dlopen failed") +
           ": install what is missing, or rebuild the plugin");
  }
  auto entry = reinterpret_cast<pn_entry_fn>(::dlsym(library, PN_PLUGIN_ENTRY_1));
  if (entry == nullptr) {
    refuse(path + ": expected the symbol " PN_PLUGIN_ENTRY_1
                  ", found none: link it with the map of the plugin kit");
  }
  put(fd, "E", 1);
  HostContext host("probe", path, {});
  Result<pn_plugin> table = negotiate(entry, host.abi(), path);
  if (!table) refuse(table.error().message);
  put(fd, "S", 1);
  table->shutdown(HostContext::now_ns() + 1'000'000'000);
  put(fd, "K", 1);
  ::_exit(0);
}

// Reads until the pipe ends or the time is over. False: over.
bool listen_until(int fd, uint32_t timeout_ms, std::string* said) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (said->size() < 8192) {
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    struct pollfd p {
      fd, POLLIN, 0
    };
    if (::poll(&p, 1, static_cast<int>(ms)) <= 0) continue;
    char chunk[512];
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    said->append(chunk, static_cast<size_t>(n));
    if (said->find('K') == said->size() - 1 && said->find('R') == std::string::npos) return true;
  }
  return true;
}

std::string where(const std::string& marks) {
  if (marks.find('S') != std::string::npos) return "its shutdown";
  if (marks.find('E') != std::string::npos) return "its entry";
  return "a constructor, while it was being loaded";
}

Result<void> verdict(const std::string& path, const std::string& said, int status, bool in_time) {
  const size_t reason = said.find('R');
  const std::string marks = said.substr(0, reason);
  if (!in_time) {
    return fail(Code::failed, path + ": expected to be loaded in a test process, hung in " +
                                  where(marks) + ": it is left out; fix or remove the file");
  }
  if (reason != std::string::npos) return fail(Code::invalid, said.substr(reason + 1));
  if (!marks.empty() && marks.back() == 'K') return {};
  std::string how = "ended";
  if (WIFSIGNALED(status)) {
    how = std::string("crashed (") + ::strsignal(WTERMSIG(status)) + ")";
  } else if (WIFEXITED(status)) {
    how = "called exit(" + std::to_string(WEXITSTATUS(status)) + ")";
  }
  return fail(Code::failed, path + ": expected to be loaded in a test process, " + how + " in " +
                                where(marks) + ": it is left out; fix or remove the file");
}

}  // namespace

Result<void> probe_now(const std::string& path, uint32_t timeout_ms) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return fail(Code::failed, path + ": no pipe for the test load: " + std::strerror(errno));
  }
  std::fflush(nullptr);  // else the child's exit() would write our buffers again
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(fds[0]);
    child(fds[1], path);
  }
  ::close(fds[1]);
  if (pid < 0) {
    const int error = errno;
    ::close(fds[0]);
    return fail(Code::failed,
                path + ": no process for the test load: " + std::string(std::strerror(error)));
  }
  std::string said;
  const bool in_time = listen_until(fds[0], timeout_ms, &said);
  ::close(fds[0]);
  // The whole group when it got that far, else the child alone; a finished child does not mind.
  if (::kill(-pid, SIGKILL) != 0 && !in_time) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return verdict(path, said, status, in_time);
}

Result<void> probe_cached(const std::string& path, const Note& note, const std::string& cache_dir,
                          uint32_t timeout_ms) {
  if (cache_dir.empty()) return probe_now(path, timeout_ms);
  const std::string folder = cache_dir + "/probe";
  const std::string record = folder + "/" + note.build_id + "-" + host_abi();
  struct stat st {};
  if (::stat(record.c_str(), &st) == 0) {
    std::ifstream in(record);
    std::string first, rest;
    std::getline(in, first);
    std::getline(in, rest);
    if (first == "pass") return {};
    if (first == "fail" && ::time(nullptr) - st.st_mtime < kQuarantineSeconds) {
      return fail(Code::failed, path + ": " + rest + " (found at an earlier start; delete " +
                                    record + " to try again)");
    }
  }
  Result<void> result = probe_now(path, timeout_ms);
  // An entry that refuses may accept tomorrow, and costs little to ask.
  if (!result && result.error().code == Code::invalid) return result;
  ::mkdir(folder.c_str(), 0700);
  const std::string fresh = record + "." + std::to_string(::getpid());
  {
    std::ofstream out(fresh);
    if (result) {
      out << "pass\n";
    } else {
      out << "fail\n" << result.error().message.substr(path.size() + 2) << "\n";
    }
  }
  if (::rename(fresh.c_str(), record.c_str()) != 0) ::unlink(fresh.c_str());
  return result;
}

}  // namespace pn::hal
