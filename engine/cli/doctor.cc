// SPDX-License-Identifier: Apache-2.0
//
// pantheon doctor: named checks of this host; each says what it found and what to do.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/cli/commands.h"
#include "engine/cli/host.h"
#include "engine/cli/terminal.h"

namespace pn::cli {

namespace {

using Json = nlohmann::ordered_json;

enum class Verdict { ok, warn, fail };

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string found;
  std::string advice;  // when not ok
};

const char* name_of(Verdict v) {
  return v == Verdict::ok ? "ok" : v == Verdict::warn ? "warn" : "fail";
}

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding check_profile(const Args& args) {
  const auto profile = load_profile(args);
  if (!profile) return {Verdict::fail, profile.error().message, "correct the profile"};
  return {Verdict::ok, profile->path.empty() ? "none; defaults hold" : profile->path, ""};
}

Finding check_plugins(const Args& args) {
  const auto profile = load_profile(args);
  if (!profile) return {Verdict::fail, "the profile cannot be read", "see the check profile"};
  int usable = 0;
  std::string refused;
  for (const hal::Candidate& c : hal::discover(search_of(*profile)).candidates) {
    if (c.state == hal::CandidateState::usable) ++usable;
    if (c.state == hal::CandidateState::refused)
      refused += fmt::format("; {}: {}", c.path, c.reason);
  }
  const Verdict v = usable == 0 ? Verdict::fail : refused.empty() ? Verdict::ok : Verdict::warn;
  return {v, fmt::format("{} usable{}", usable, refused),
          "pantheon plugin list says what was found where"};
}

Finding check_dies(const Args& args) {
  const auto host = open_host(args);
  if (!host) return {Verdict::fail, host.error().message, "install a plugin for this machine"};
  return {Verdict::ok, host->choice, ""};
}

Finding check_isolation(const Args& args) {
  const auto profile = load_profile(args);
  if (!profile) return {Verdict::fail, "the profile cannot be read", "see the check profile"};
  std::string names;
  for (const profile::Plugin& plugin : profile->plugins)
    if (plugin.isolated) names += (names.empty() ? "" : ", ") + plugin.name;
  const auto program = hal::backend_host(search_of(*profile));
  if (names.empty()) return {Verdict::ok, "no plugin is isolated", ""};
  if (!program) return {Verdict::fail, program.error().message, "install pantheon-backend-host"};
  return {Verdict::ok, fmt::format("{} in processes of their own, {}", names, *program), ""};
}

Finding check_demo(const Args&) {
  const auto demo = demo_model();
  if (!demo)
    return {Verdict::warn, demo.error().message, "name models with --model or in the profile"};
  return {Verdict::ok, *demo, ""};
}

Finding check_huge_pages(const Args&) {
  const std::string mode = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (mode.empty())
    return {Verdict::warn, "no transparent huge pages", "decode on the CPU reads slower"};
  const bool off = mode.find("[never]") != std::string::npos;
  return {off ? Verdict::warn : Verdict::ok, mode,
          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: decode reads memory up to a "
          "third faster"};
}

Finding check_files(const Args&) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool low = limit.rlim_cur < 256;
  return {low ? Verdict::warn : Verdict::ok, fmt::format("{} open files allowed", limit.rlim_cur),
          "ulimit -n 4096: every client holds one"};
}

Finding check_memory(const Args&) {
  const uint64_t total =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {Verdict::ok, bytes_text(total) + " of host memory", ""};
}

}  // namespace

int doctor_command(const Args& args) {
  const std::pair<const char*, std::function<Finding(const Args&)>> checks[] = {
      {"profile", check_profile},     {"plugins", check_plugins}, {"dies", check_dies},
      {"isolation", check_isolation}, {"demo-model", check_demo}, {"huge-pages", check_huge_pages},
      {"open-files", check_files},    {"memory", check_memory}};
  Json list = Json::array();
  bool failed = false;
  for (const auto& [name, check] : checks) {
    const Finding f = check(args);
    failed = failed || f.verdict == Verdict::fail;
    const std::string advice = f.verdict == Verdict::ok ? "" : f.advice;
    if (args.json) {
      list.push_back({{"check", name},
                      {"verdict", name_of(f.verdict)},
                      {"found", f.found},
                      {"advice", advice}});
      continue;
    }
    print_out(fmt::format("{:<5} {:<11} {}\n", name_of(f.verdict), name, f.found));
    if (!advice.empty()) print_out(fmt::format("{:18}{}\n", "", advice));
  }
  if (args.json) print_out(list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return failed ? kFailed : kOk;
}

}  // namespace pn::cli
