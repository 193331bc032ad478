// SPDX-License-Identifier: Apache-2.0
//
// One backend host as the server sees it: started, watched, and its end in words.
//
// Owns the child process, its stderr, the thread that waits for it, and the verdict. Knows no call
// and no plugin. The one idea: whatever ends the child (a signal, an exit, a hang), it ends as one
// pn_error that says how and repeats the last lines that it wrote.
//
// The thread that starts the child is the one that watches it, since the kernel ties the child's
// parent-death signal to that thread.
#pragma once

#include <pantheon/core.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "hal/proxy/channel.h"

namespace pn::proxy {

struct ProcessSpec {
  std::string program;  // pantheon-backend-host
  std::string plugin;   // its path: an argument, so that ps shows it
  uint32_t silence_ms = 0;
  // Every line of its stderr. level: PN_LOG_*. The watching thread.
  std::function<void(uint32_t level, const std::string& text)> log;
};

class Process {
 public:
  // Errors: the program cannot be started.
  static Result<std::unique_ptr<Process>> start(ProcessSpec spec, Fd child_end);
  ~Process();   // as stop()
  void stop();  // kills what still runs, joins; the verdict stays. Its owner alone calls it

  pid_t pid() const { return pid_; }
  bool dead() const { return dead_.load(std::memory_order_acquire); }
  // Counts while it moves; set once the child has said hello.
  void watch_beat(const std::atomic<uint64_t>* beat) { beat_.store(beat); }
  // Kills it; `why` ("was ...") becomes the verdict unless it was dead already.
  void kill(const std::string& why);
  // It is told to end: an exit from here on is no accident.
  void expect_end() { expected_.store(true); }
  bool wait_dead(uint64_t timeout_ns);
  // Scope PLUGIN, recovery RESTART_PROCESS. Waits until the child is gone, at most a second.
  pn_error verdict();

 private:
  Process() = default;
  void run(Fd child_end, std::promise<int>* started);
  int spawn(int child_end, int stderr_end);
  void watch(int stderr_fd);
  bool read_lines(int fd);
  void line(const std::string& text);
  void check_beat();
  void conclude(int status);

  ProcessSpec spec_;
  std::thread thread_;
  pid_t pid_ = -1;
  std::atomic<bool> dead_{false};
  std::atomic<bool> expected_{false};
  std::atomic<const std::atomic<uint64_t>*> beat_{nullptr};
  uint64_t last_beat_ = 0, beat_seen_ns_ = 0;  // the thread's
  std::string partial_;                        // of a line, the thread's
  std::mutex mutex_;                           // guards what follows
  std::condition_variable changed_;
  bool reaped_ = false;
  std::string why_;
  std::deque<std::string> last_words_;
  pn_error verdict_{};
};

}  // namespace pn::proxy
