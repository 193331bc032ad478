// SPDX-License-Identifier: Apache-2.0
//
// See plugin.h. Loading, negotiation, the registry of loaded libraries.
#include "hal/host/plugin.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <boost/dll/shared_library.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "hal/host/host_context.h"
#include "hal/host/negotiate.h"
#include "hal/host/validate.h"
#include "hal/proxy/proxy.h"

namespace pn::hal {

namespace {

struct Registry {
  std::mutex mutex;
  // By file, and by whether it is isolated: tests compare both.
  std::map<std::tuple<dev_t, ino_t, bool>, std::shared_ptr<Plugin>> loaded;
  std::vector<std::unique_ptr<boost::dll::shared_library>> libraries;  // closing would unmap them
  std::vector<proxy::Fd> files;  // of isolated plugins: open, so that no other file gets their key
};

// Never destroyed: libraries stay mapped until the process ends, and so does this.
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

constexpr uint64_t kShutdownNs = 2'000'000'000;

// Registered after a library's own static destructors, so it runs before them. A shutdown that does
// not return is left behind: the process ends all the same.
void at_exit() {
  auto over = std::make_shared<std::promise<void>>();
  std::future<void> done = over->get_future();
  std::thread([over] {
    for (auto& [key, plugin] : registry().loaded) plugin->shutdown(kShutdownNs);
    over->set_value();
  }).detach();
  done.wait_for(std::chrono::nanoseconds(2 * kShutdownNs));
}

// dlopen with the rules of the contract: absolute path, all symbols now, none shared, never closed.
// The registry is locked.
Result<pn_entry_fn> open_library(const std::string& path) {
  try {
    namespace mode = boost::dll::load_mode;
    auto opened =
        std::make_unique<boost::dll::shared_library>(path, mode::rtld_now | mode::rtld_local);
    boost::dll::shared_library* library = opened.get();
    registry().libraries.push_back(std::move(opened));
    if (!library->has(PN_PLUGIN_ENTRY_1)) {
      return fail(Code::invalid, path + ": expected the symbol " PN_PLUGIN_ENTRY_1
                                        ", found none: link it with the map of the plugin kit");
    }
    return reinterpret_cast<pn_entry_fn>(
        &library->get<pn_status(const pn_host*, const pn_plugin**, pn_error*)>(PN_PLUGIN_ENTRY_1));
  } catch (const std::exception& e) {  // Boost puts the text of dlerror() into what()
    return fail(Code::failed, path + ": cannot be loaded: " + e.what() +
                                  ": install what is missing, or rebuild the plugin");
  }
}

}  // namespace

Result<std::shared_ptr<Plugin>> Plugin::load(const LoadRequest& request) {
  PN_TRY(Candidate candidate, resolve(request.plugin, request.search));
  struct stat st {};
  if (::stat(candidate.path.c_str(), &st) != 0) {
    return fail(Code::not_found, candidate.path + ": gone since it was found; try again");
  }
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto key = std::make_tuple(st.st_dev, st.st_ino, request.isolated);
  auto found = r.loaded.find(key);
  if (found != r.loaded.end()) {
    if (found->second->options_ != request.options) {
      return fail(Code::invalid, candidate.path +
                                     ": is loaded already with other options; options are fixed "
                                     "once per process");
    }
    return found->second;
  }
  std::shared_ptr<Plugin> plugin(new Plugin(*candidate.note, candidate.path, request.options));
  const std::string cache = user_cache_dir(request.search);
  pn_entry_fn entry = nullptr;
  if (request.isolated) {
    PN_TRY(const std::string program, backend_host(request.search));
    PN_TRY(const proxy::Proxy::Seat seat,
           proxy::Proxy::seat(
               {program, candidate.path, cache, request.deadline_ms, request.mirror_results}));
    entry = seat.entry;
    plugin->isolation_ = seat.isolation;
    r.files.emplace_back(::open(candidate.path.c_str(), O_RDONLY | O_CLOEXEC));
  } else {
    PN_TRY(entry, open_library(candidate.path));
    plugin->host_->set_cache_root(cache);
  }
  PN_TRY(plugin->start(entry));
  std::atexit(at_exit);
  r.loaded.emplace(key, plugin);
  return plugin;
}

Result<std::shared_ptr<Plugin>> Plugin::from_entry(pn_entry_fn entry, const Note& note,
                                                   const Options& options) {
  std::shared_ptr<Plugin> plugin(new Plugin(note, "/proc/self/exe", options));
  PN_TRY(plugin->start(entry));
  return plugin;
}

Plugin::Plugin(Note note, std::string path, Options options)
    : note_(std::move(note)),
      path_(std::move(path)),
      options_(std::move(options)),
      host_(std::make_unique<HostContext>(note_.name, path_, options_)),
      interfaces_(std::make_unique<Interfaces>()) {}

Plugin::~Plugin() { shutdown(kShutdownNs); }

Result<void> Plugin::start(pn_entry_fn entry) {
  PN_TRY(table_, negotiate(entry, host_->abi(), path_));
  if (validation_wanted()) {
    PN_TRY(validation_, Validation::begin(table_, host_->abi()));
    table_ = validation_->table();
  }
  fetch_interfaces();
  return {};
}

void Plugin::abandon() {
  if (abandoned_.exchange(true)) return;
  static const char text[] =
      "a call did not return: the plugin is not called any more; restart pantheon to use it again";
  host_->abi()->log(host_->abi()->self, PN_LOG_PLUGIN_BUG, text, sizeof text - 1);
}

bool Plugin::shutdown(uint64_t timeout_ns) {
  if (abandoned()) return false;
  {
    std::lock_guard lock(open_mutex_);
    if (!open_.empty()) return false;
  }
  if (table_.shutdown != nullptr && !down_.exchange(true)) {
    table_.shutdown(host_->now_ns() + timeout_ns);
  }
  return true;
}

Result<std::vector<pn_device_info>> Plugin::devices() const {
  pn_error err{};
  err.struct_size = sizeof err;
  uint32_t count = 0;
  pn_status st = table_.devices(&count, nullptr, &err);
  if (st < 0) return tl::unexpected<Error>(to_error(name() + ": devices", st, err));
  pn_device_info blank{};
  blank.struct_size = sizeof blank;
  std::vector<pn_device_info> infos(count, blank);
  st = table_.devices(&count, infos.data(), &err);
  if (st != PN_OK) return tl::unexpected<Error>(to_error(name() + ": devices", st, err));
  infos.resize(count);
  return infos;
}

// ---- named interfaces ---------------------------------------------------------------------------

struct Plugin::Interfaces {
  template <class T>
  struct Slot {
    T table{};
    bool present = false;
  };
  Slot<pn_layout_api> layout;
  Slot<pn_hostmem_api> hostmem;
  Slot<pn_sampler_api> sampler;
  Slot<pn_graph_api> graph;
  Slot<pn_topology_api> topology;
  Slot<pn_peer_api> peer;
  Slot<pn_telemetry_api> telemetry;
  Slot<pn_reset_api> reset;
};

void Plugin::fetch_interfaces() {
  auto fetch = [this](const char* id, auto& slot) {
    const void* given = table_.get_interface(id);
    slot.present = given != nullptr;
    if (slot.present) complete(given, &slot.table);
  };
  fetch("pantheon.layout/1", interfaces_->layout);
  fetch("pantheon.hostmem/1", interfaces_->hostmem);
  fetch("pantheon.sampler/1", interfaces_->sampler);
  fetch("pantheon.graph/1", interfaces_->graph);
  fetch("pantheon.topology/1", interfaces_->topology);
  fetch("pantheon.peer/1", interfaces_->peer);
  fetch("pantheon.telemetry/1", interfaces_->telemetry);
  fetch("pantheon.reset/1", interfaces_->reset);
}

#define PN_INTERFACE(T, member)                                                \
  template <>                                                                  \
  const T* Plugin::interface<T>() const {                                      \
    return interfaces_->member.present ? &interfaces_->member.table : nullptr; \
  }
PN_INTERFACE(pn_layout_api, layout)
PN_INTERFACE(pn_hostmem_api, hostmem)
PN_INTERFACE(pn_sampler_api, sampler)
PN_INTERFACE(pn_graph_api, graph)
PN_INTERFACE(pn_topology_api, topology)
PN_INTERFACE(pn_peer_api, peer)
PN_INTERFACE(pn_telemetry_api, telemetry)
PN_INTERFACE(pn_reset_api, reset)
#undef PN_INTERFACE

// ---- errors -------------------------------------------------------------------------------------

Error to_error(const std::string& asked, pn_status status, const pn_error& error) {
  Error out;
  switch (status) {
    case PN_NOT_READY:
    case PN_INCOMPLETE:
      out.code = Code::busy;
      break;
    case PN_INVALID:
      out.code = Code::invalid;
      break;
    case PN_UNSUPPORTED:
      out.code = Code::unsupported;
      break;
    case PN_OUT_OF_MEMORY:
      out.code = Code::out_of_memory;
      break;
    case PN_DEVICE_LOST:
      out.code = Code::device_lost;
      break;
    default:
      out.code = Code::failed;
      break;
  }
  std::string said(error.message, strnlen(error.message, sizeof error.message));
  if (said.empty()) said = "status " + std::to_string(status) + " without a message";
  out.message = asked + ": " + said;
  if (error.native_code != 0) out.message += " (code " + std::to_string(error.native_code) + ")";
  return out;
}

}  // namespace pn::hal
