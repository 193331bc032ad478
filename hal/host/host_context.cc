// SPDX-License-Identifier: Apache-2.0
//
// See host_context.h; also the log sink and the serving mark, which all plugins share.
#include "hal/host/host_context.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <mutex>

#include "hal/host/plugin.h"

namespace pn::hal {

namespace {

constexpr uint32_t kLinesPerSecond = 100;

thread_local int serving_depth = 0;

void to_stderr(uint32_t level, const std::string& plugin, const char* text) {
  if (level < PN_LOG_WARN) return;
  const char* kind = level == PN_LOG_WARN         ? "warning"
                     : level == PN_LOG_HOST_BUG   ? "misuse by pantheon"
                     : level == PN_LOG_PLUGIN_BUG ? "bug in the plugin"
                                                  : "error";
  std::fprintf(stderr, "pantheon: %s: %s: %s\n", plugin.c_str(), kind, text);
}

struct Sink {
  std::mutex mutex;
  LogSink sink = to_stderr;
};
Sink& sink() {
  static auto* s = new Sink;
  return *s;
}

}  // namespace

void set_log_sink(LogSink new_sink) {
  std::lock_guard lock(sink().mutex);
  sink().sink = new_sink ? std::move(new_sink) : LogSink(to_stderr);
}

ServingThread::ServingThread() { ++serving_depth; }
ServingThread::~ServingThread() { --serving_depth; }

HostContext::HostContext(const std::string& name, const std::string& path,
                         const std::vector<std::pair<std::string, std::string>>& options)
    : name_(name), path_(path), options_(options) {
  for (const auto& [key, value] : options_) pairs_.push_back({key.c_str(), value.c_str()});
  host_.struct_size = sizeof host_;
  host_.abi_minor = PN_ABI_MINOR;
  host_.self = this;
  host_.plugin_path = path_.c_str();
  host_.config = pairs_.data();
  host_.config_count = static_cast<uint32_t>(pairs_.size());
  host_.log = log;
  host_.now_ns = clock;
  host_.thread_check = thread_check;
}

void HostContext::set_cache_root(const std::string& root) {
  if (root.empty()) return;
  std::string parent = root + "/plugins";
  cache_dir_ = parent + "/" + name_;
  ::mkdir(parent.c_str(), 0700);
  ::mkdir(cache_dir_.c_str(), 0700);
  struct stat st {};
  if (::stat(cache_dir_.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
    host_.cache_dir = cache_dir_.c_str();
  }
}

uint64_t HostContext::now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

uint64_t HostContext::clock(void*) { return now_ns(); }

// The time a line is written is the sink's affair; here lines are only counted. Two threads that
// meet at the turn of a second may let a few lines more pass.
void HostContext::log(void* self, uint32_t level, const char* text, uint64_t length) {
  auto* me = static_cast<HostContext*>(self);
  if (text == nullptr || length > 16384) return;
  const uint64_t second = now_ns() / 1'000'000'000;
  uint32_t dropped = 0;
  if (me->second_.exchange(second) != second) {
    uint32_t lines = me->lines_.exchange(0);
    if (lines > kLinesPerSecond) dropped = lines - kLinesPerSecond;
  }
  if (++me->lines_ > kLinesPerSecond) return;
  try {
    const std::string line(text, length);
    std::lock_guard lock(sink().mutex);
    if (dropped != 0) {
      const std::string note = std::to_string(dropped) + " lines dropped in the last second";
      sink().sink(PN_LOG_WARN, me->name_, note.c_str());
    }
    sink().sink(level, me->name_, line.c_str());
  } catch (...) {  // a line is lost; nothing may be thrown into a plugin
  }
}

uint32_t HostContext::thread_check(void*, uint32_t tag) {
  if (serving_depth == 0) return 1;
  return tag == PN_THREAD_LOAD || tag == PN_THREAD_BLOCK ? 0 : 1;
}

}  // namespace pn::hal
