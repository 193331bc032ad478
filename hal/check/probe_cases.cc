// SPDX-License-Identifier: Apache-2.0
//
// Group probe: the first load, through the bare entry, and what it does to the process.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "hal/check/contract.h"

extern char** environ;

namespace pn::check {

namespace {

// ---- the entry, without the host wrapper --------------------------------------------------------

void log(void*, uint32_t, const char*, uint64_t) {}
uint64_t now(void*) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}
uint32_t any_thread(void*, uint32_t) { return 1; }

// Lives as long as the process, as a host must.
struct RawHost {
  pn_host host{};
  uint64_t tail[3] = {};
  std::vector<pn_pair> pairs;
};
RawHost& raw_host(const Bench& bench) {
  static auto* raw = new RawHost;
  raw->host = {};
  raw->host.struct_size = sizeof(pn_host);
  raw->host.abi_minor = PN_ABI_MINOR;
  raw->host.self = raw;
  raw->host.plugin_path = bench.setup().file.c_str();
  raw->pairs.clear();
  for (const auto& [key, value] : bench.setup().options)
    raw->pairs.push_back({key.c_str(), value.c_str()});
  raw->host.config = raw->pairs.data();
  raw->host.config_count = static_cast<uint32_t>(raw->pairs.size());
  raw->host.log = log;
  raw->host.now_ns = now;
  raw->host.thread_check = any_thread;
  return *raw;
}

Result<pn_entry_fn> entry_of(const Bench& bench) {
  void* library = ::dlopen(bench.setup().file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return fail(Code::failed, why != nullptr ? why : "dlopen failed");
  }
  auto entry = reinterpret_cast<pn_entry_fn>(::dlsym(library, PN_PLUGIN_ENTRY_1));
  if (entry == nullptr) return fail(Code::invalid, "no symbol " PN_PLUGIN_ENTRY_1);
  return entry;
}

std::string text_of(const pn_error& err) {
  return {err.message, ::strnlen(err.message, sizeof err.message)};
}

Result<void> load(Bench& bench) {
  PN_TRY(const pn_entry_fn entry, entry_of(bench));
  const pn_plugin* table = nullptr;
  pn_error err = new_error();
  const pn_status status = entry(&raw_host(bench).host, &table, &err);
  if (status == PN_OK && table == nullptr)
    return fail(Code::failed, "the entry gives PN_OK and no table");
  if (status != PN_OK)
    return fail(Code::failed, fmt::format("the entry gives status {}: {}", status, text_of(err)));
  bench.expect(table->struct_size >= sizeof(pn_plugin), "a table of {} bytes, wanted {}",
               table->struct_size, sizeof(pn_plugin));
  uint32_t count = 0;
  const pn_status listed = table->devices(&count, nullptr, &err);
  bench.expect(listed == PN_OK, "devices: status {}: {}", listed, text_of(err));
  std::vector<pn_device_info> infos(count, pn_device_info{sizeof(pn_device_info)});
  if (count != 0) table->devices(&count, infos.data(), &err);
  for (uint32_t i = 0; i < count; ++i) {
    if (infos[i].state != PN_STATE_READY) continue;
    pn_device device{};
    const pn_status opened = table->device_open(i, &device, &err);
    if (bench.expect(opened == PN_OK && device.id != 0, "device_open({}): status {}: {}", i, opened,
                     text_of(err)))
      table->device_close(device);
  }
  table->shutdown(now(nullptr) + 5'000'000'000);
  bench.note(fmt::format("{} dies", count));
  return {};
}

Result<void> minor(Bench& bench) {
  PN_TRY(const pn_entry_fn entry, entry_of(bench));
  RawHost& raw = raw_host(bench);
  for (const uint32_t other : {PN_ABI_MINOR + 1, PN_ABI_MINOR - 1}) {
    raw.host.abi_minor = other;
    const pn_plugin* table = nullptr;
    pn_error err = new_error();
    const pn_status status = entry(&raw.host, &table, &err);
    bench.expect(status == PN_UNSUPPORTED, "a host of minor {}: status {}, wanted PN_UNSUPPORTED",
                 other, status);
    bench.expect(text_of(err).find(std::to_string(other)) != std::string::npos,
                 "the refusal of minor {} does not name it: {}", other, text_of(err));
    if (status == PN_OK) return {};  // an entry is called once
  }
  raw.host.abi_minor = PN_ABI_MINOR;
  const pn_plugin* table = nullptr;
  pn_error err = new_error();
  const pn_status status = entry(&raw.host, &table, &err);
  if (!bench.expect(status == PN_OK && table != nullptr, "the right minor: status {}: {}", status,
                    text_of(err)))
    return {};
  bench.expect(table->abi_minor == PN_ABI_MINOR, "the table says minor {}, wanted {}",
               table->abi_minor, PN_ABI_MINOR);
  bench.expect(table->min_host_minor <= PN_ABI_MINOR, "min_host_minor {} past {}",
               table->min_host_minor, PN_ABI_MINOR);
  return {};
}

Result<void> host_growth(Bench& bench) {
  PN_TRY(const pn_entry_fn entry, entry_of(bench));
  RawHost& raw = raw_host(bench);
  raw.host.struct_size = offsetof(RawHost, pairs);
  raw.tail[1] = 7;
  const pn_plugin* table = nullptr;
  pn_error err = new_error();
  pn_status status = entry(&raw.host, &table, &err);
  bench.expect(status == PN_UNSUPPORTED,
               "a pn_host that says more: status {}, wanted "
               "PN_UNSUPPORTED",
               status);
  if (status == PN_OK) return {};
  raw.tail[1] = 0;
  status = entry(&raw.host, &table, &err);
  bench.expect(status == PN_OK, "a longer pn_host of zeros: status {}: {}", status, text_of(err));
  return {};
}

Result<void> options(Bench& bench) {
  PN_TRY(const pn_entry_fn entry, entry_of(bench));
  RawHost& raw = raw_host(bench);
  raw.pairs.push_back({"no_such_option_anywhere", "1"});
  raw.host.config = raw.pairs.data();
  raw.host.config_count = static_cast<uint32_t>(raw.pairs.size());
  const pn_plugin* table = nullptr;
  pn_error err = new_error();
  const pn_status status = entry(&raw.host, &table, &err);
  bench.expect(status == PN_INVALID, "an unknown option: status {}, wanted PN_INVALID", status);
  bench.expect(text_of(err).find("no_such_option_anywhere") != std::string::npos,
               "the refusal does not name the option: {}", text_of(err));
  return {};
}

// ---- what it does to the process ----------------------------------------------------------------

// Loads, opens, runs the simplest plan, closes, and ends the plugin.
Result<void> whole_life(Bench& bench) {
  {
    auto rig = simple_rig(bench);
    if (!rig) return tl::unexpected<Error>(rig.error());
    Steps steps = simple_steps();
    if (*rig != nullptr) PN_TRY((*rig)->run(steps));
  }
  bench.close_subject();
  PN_TRY(auto plugin, bench.plugin());
  bench.expect(plugin->shutdown(5'000'000'000), "a device is still open at the end");
  return {};
}

using Facts = std::map<std::string, std::string>;
Facts process_facts() {
  Facts facts;
  std::string all;
  for (char** e = environ; *e != nullptr; ++e) all += std::string(*e) + "\n";
  facts["the environment"] = all;
  char folder[4096] = {};
  facts["the working directory"] = ::getcwd(folder, sizeof folder) != nullptr ? folder : "";
  facts["the locale"] = std::setlocale(LC_ALL, nullptr);
  sigset_t mask;
  ::sigemptyset(&mask);
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  std::string blocked, handled;
  for (int s = 1; s < 32; ++s) {
    blocked += ::sigismember(&mask, s) == 1 ? '1' : '0';
    struct sigaction action {};
    if (::sigaction(s, nullptr, &action) == 0)
      handled += fmt::format("{} ", reinterpret_cast<const void*>(action.sa_handler));
  }
  facts["the signal mask"] = blocked;
  facts["signal handlers"] = handled;
  facts["the rounding mode"] = std::to_string(std::fegetround());
#if defined(__x86_64__)
  facts["floating point modes"] = std::to_string(__builtin_ia32_stmxcsr() & 0xffc0u);
#endif
  return facts;
}

Result<void> process_state(Bench& bench) {
  const Facts before = process_facts();
  PN_TRY(whole_life(bench));
  const Facts after = process_facts();
  for (const auto& [what, value] : before)
    bench.expect(after.at(what) == value, "{} is another one after it ran", what);
  return {};
}

// Descriptors 1 and 2 go to a file of no name meanwhile.
Result<void> quiet(Bench& bench) {
  hal::set_log_sink([](uint32_t, const std::string&, const char*) {});
  const int file = ::memfd_create("printed", MFD_CLOEXEC);
  if (file < 0) return bench.unsupported("memfd_create is refused here"), Result<void>{};
  std::fflush(nullptr);
  const int out = ::dup(1), err = ::dup(2);
  ::dup2(file, 1), ::dup2(file, 2);
  const Result<void> lived = whole_life(bench);
  std::fflush(nullptr);
  ::dup2(out, 1), ::dup2(err, 2);
  ::close(out), ::close(err);
  char text[200] = {};
  const ssize_t n = ::pread(file, text, sizeof text - 1, 0);
  bench.expect(n <= 0, "printed: {}", std::string(text, n > 0 ? static_cast<size_t>(n) : 0));
  ::close(file);
  return lived;
}

std::map<std::string, std::string> threads() {
  std::map<std::string, std::string> found;
  DIR* folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream in(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::getline(in, found[entry->d_name]);
  }
  ::closedir(folder);
  return found;
}

Result<void> thread_names(Bench& bench) {
  const auto before = threads();
  const std::string own = before.empty() ? "" : before.begin()->second;
  {
    PN_TRY(auto rig, simple_rig(bench));
    Steps steps = simple_steps();
    if (rig != nullptr) PN_TRY(rig->run(steps));
    uint32_t more = 0;
    for (const auto& [id, name] : threads()) {
      if (before.count(id) != 0) continue;
      ++more;
      bench.expect(name != own && !name.empty(), "a thread of the plugin has the program's name");
    }
    bench.note(fmt::format("{} threads", more));
  }
  bench.close_subject();
  PN_TRY(auto plugin, bench.plugin());
  plugin->shutdown(5'000'000'000);
  size_t left = 0;
  for (int i = 0; i < 200; ++i) {  // a joined thread may be listed for a moment
    left = threads().size();
    if (left <= before.size()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  bench.expect(left <= before.size(), "{} threads outlive shutdown", left - before.size());
  return {};
}

constexpr Case kCases[] = {
    {"probe/load", "entry", "load, entry, devices, open, close, shutdown", load, true},
    {"probe/minor", "R16", "hosts of other minors are refused, naming both", minor, true},
    {"probe/host_growth", "R5", "a longer pn_host: zeros are taken, more is refused", host_growth,
     true},
    {"probe/options", "R7", "an unknown option is refused by name", options, true},
    {"probe/process_state", "R13", "environment, folder, locale, signals, FP modes stay",
     process_state, true},
    {"probe/quiet", "R13", "nothing is printed", quiet, true},
    {"probe/threads", "R14", "threads have names, and end in shutdown", thread_names, true},
};

}  // namespace

std::span<const Case> probe_cases() { return kCases; }

}  // namespace pn::check
