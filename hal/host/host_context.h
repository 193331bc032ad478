// SPDX-License-Identifier: Apache-2.0
//
// The host's side of the contract for one plugin: what its pn_host points to.
//
// Owns the option texts, the cache folder's name, the log's rate limit. Lives until the process
// ends, because a plugin may log from its threads until shutdown. Never throws into a plugin.
#pragma once

#include <pantheon/plugin.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pn::hal {

struct HostContext {
  HostContext(const std::string& name, const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& options);
  HostContext(const HostContext&) = delete;
  HostContext& operator=(const HostContext&) = delete;

  // Creates root/plugins/<name>, private to the user; without a root cache_dir stays NULL.
  void set_cache_root(const std::string& root);
  const pn_host* abi() const { return &host_; }
  static uint64_t now_ns();

 private:
  static void log(void* self, uint32_t level, const char* text, uint64_t length);
  static uint64_t clock(void* self);
  static uint32_t thread_check(void* self, uint32_t tag);

  std::string name_;
  std::string path_;
  std::string cache_dir_;
  std::vector<std::pair<std::string, std::string>> options_;
  std::vector<pn_pair> pairs_;
  pn_host host_{};
  std::atomic<uint64_t> second_{0};  // of the lines counted below
  std::atomic<uint32_t> lines_{0};
};

}  // namespace pn::hal
