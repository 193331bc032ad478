// SPDX-License-Identifier: Apache-2.0
//
// See proxy.h: the sets of functions, seats, the entry, and what a restart is.
#include "hal/proxy/proxy.h"

#include <array>
#include <atomic>
#include <utility>

#include "hal/proxy/proxy_queue.h"

namespace pn::proxy {

namespace {

std::array<std::atomic<Proxy*>, Proxy::kSlots> seats;

// Method of the Proxy in seat N, as a plain function.
template <size_t N, auto Method>
struct Via;
template <size_t N, class R, class... A, R (Proxy::*Method)(A...)>
struct Via<N, Method> {
  static R call(A... args) { return (seats[N].load(std::memory_order_relaxed)->*Method)(args...); }
};

}  // namespace

struct Tables {
  pn_plugin plugin{};
  pn_layout_api layout{};
  pn_hostmem_api hostmem{};
  pn_sampler_api sampler{};
  pn_graph_api graph{};
  pn_topology_api topology{};
  pn_peer_api peer{};
  pn_telemetry_api telemetry{};
  pn_reset_api reset{};
  pn_load_api load{};
};

namespace {

#define PN_VIA(method) &Via<N, &Proxy::method>::call

template <size_t N>
pn_plugin plugin_table() {
  pn_plugin t{};
  t.struct_size = sizeof t;
  t.abi_minor = t.min_host_minor = PN_ABI_MINOR;
  t.devices = PN_VIA(devices);
  t.device_open = PN_VIA(device_open);
  t.device_close = PN_VIA(device_close);
  t.heaps = PN_VIA(heaps);
  t.memory_status = PN_VIA(memory_status);
  t.buffer_create = PN_VIA(buffer_create);
  t.buffer_destroy = PN_VIA(buffer_destroy);
  t.program_query = PN_VIA(program_query);
  t.program_create = PN_VIA(program_create);
  t.program_status = PN_VIA(program_status);
  t.program_destroy = PN_VIA(program_destroy);
  t.queue_create = PN_VIA(queue_create);
  t.queue_submit = PN_VIA(queue_submit);
  t.queue_query = PN_VIA(queue_query);
  t.queue_wait = PN_VIA(queue_wait);
  t.queue_error = PN_VIA(queue_error);
  t.queue_destroy = PN_VIA(queue_destroy);
  t.get_interface = PN_VIA(get_interface);
  t.shutdown = PN_VIA(shutdown);
  return t;
}

template <size_t N>
Tables& tables() {
  static Tables all = {
      plugin_table<N>(),
      {sizeof(pn_layout_api), 0, PN_VIA(layout_rank), PN_VIA(layout_convert), PN_VIA(layout_decode),
       PN_VIA(layout_targets)},
      {sizeof(pn_hostmem_api), 1, PN_VIA(hostmem_import)},
      {sizeof(pn_sampler_api), 0, PN_VIA(sampler_describe)},
      {sizeof(pn_graph_api), 0, PN_VIA(graph_describe)},
      {sizeof(pn_topology_api), 0, PN_VIA(topology_edges)},
      {sizeof(pn_peer_api), 0, PN_VIA(peer_connect)},
      {sizeof(pn_telemetry_api), 0, PN_VIA(telemetry_health), PN_VIA(telemetry_readings),
       PN_VIA(telemetry_occupants)},
      {sizeof(pn_reset_api), 0, PN_VIA(reset_describe), PN_VIA(reset_reset),
       PN_VIA(reset_self_check)},
      {sizeof(pn_load_api), 0, PN_VIA(load_open), PN_VIA(load_close), PN_VIA(load_place)}};
  return all;
}

#undef PN_VIA

template <size_t N>
pn_status enter_seat(const pn_host* host, const pn_plugin** out, pn_error* err) {
  return seats[N].load()->enter(host, &tables<N>(), out, err);
}

template <size_t... N>
constexpr std::array<pn_entry_fn, sizeof...(N)> all_entries(std::index_sequence<N...>) {
  return {&enter_seat<N>...};
}
constexpr auto kEntries = all_entries(std::make_index_sequence<Proxy::kSlots>());

}  // namespace

Proxy::Proxy(Launch launch) : launch_(std::move(launch)) {}
Proxy::~Proxy() = default;

// A seat is for good: the plugin's table lives as long as the process.
Result<Proxy::Seat> Proxy::seat(Launch launch) {
  static std::mutex mutex;
  static size_t taken = 0;
  std::lock_guard lock(mutex);
  if (taken == kSlots) {
    return fail(Code::unsupported, launch.plugin + ": " + std::to_string(kSlots) +
                                       " plugins run in processes of their own already");
  }
  auto* proxy = new Proxy(std::move(launch));
  seats[taken].store(proxy);
  return Seat{kEntries[taken++], proxy};
}

// ---- entry, interfaces, shutdown ----------------------------------------------------------------

Answer Proxy::open_link(uint32_t generation) {
  Link::Options options;
  for (uint32_t i = 0; i < host_->config_count; ++i)
    options.emplace_back(host_->config[i].key, host_->config[i].value);
  auto log = [host = host_](uint32_t level, const std::string& text) {
    host->log(host->self, level, text.data(), text.size());
  };
  std::shared_ptr<Link> fresh;
  Answer answer = Link::open(launch_, generation, options, log, &fresh);
  if (answer.status != PN_OK) return answer;
  std::lock_guard lock(mutex_);
  link_ = std::move(fresh);
  return answer;
}

pn_status Proxy::enter(const pn_host* host, Tables* tables, const pn_plugin** out, pn_error* err) {
  host_ = host;
  Answer answer = open_link(1);
  if (answer.status != PN_OK) {
    if (err != nullptr) pn_write(err, &answer.error, sizeof answer.error);
    return answer.status;
  }
  offered_ = link()->interfaces();
  tables->hostmem.alignment = link()->import_alignment();
  tables_ = tables;
  *out = &tables->plugin;
  return PN_OK;
}

const void* Proxy::get_interface(const char* id) {
  if (id == nullptr) return nullptr;
  if (std::strcmp(id, PN_LOAD_ID) == 0) return &tables_->load;
  const struct {
    const char* id;
    Interface bit;
    const void* table;
  } known[] = {{"pantheon.layout/1", kLayout, &tables_->layout},
               {"pantheon.hostmem/1", kHostmem, &tables_->hostmem},
               {"pantheon.sampler/1", kSampler, &tables_->sampler},
               {"pantheon.graph/1", kGraph, &tables_->graph},
               {"pantheon.topology/1", kTopology, &tables_->topology},
               {"pantheon.peer/1", kPeer, &tables_->peer},
               {"pantheon.telemetry/1", kTelemetry, &tables_->telemetry},
               {"pantheon.reset/1", kReset, &tables_->reset}};
  for (const auto& each : known) {
    if (std::strcmp(each.id, id) == 0) return (offered_ & each.bit) != 0 ? each.table : nullptr;
  }
  return nullptr;
}

void Proxy::shutdown(uint64_t deadline_ns) {
  const std::shared_ptr<Link> now = link();
  if (now == nullptr) return;
  if (now->lost()) return now->process().stop();
  const uint64_t start = monotonic_ns();
  const uint64_t left = deadline_ns > start ? deadline_ns - start : 0;
  now->process().expect_end();
  Writer args;
  args.pod(left);
  now->call(Call::shutdown, args, static_cast<uint32_t>(left / 1'000'000 + 1'000));
  now->process().wait_dead(1'000'000'000);
  now->process().stop();
}

// ---- Isolation ----------------------------------------------------------------------------------

std::shared_ptr<Link> Proxy::link() const {
  std::lock_guard lock(mutex_);
  return link_;
}

int Proxy::pid() const { return link()->process().pid(); }
uint32_t Proxy::generation() const { return link()->generation(); }
bool Proxy::alive() const { return !link()->lost(); }

void Proxy::kill(const std::string& why) {
  link()->process().kill(why);
  link()->process().wait_dead(1'000'000'000);
}

Result<void> Proxy::restart(uint32_t seen) {
  static std::mutex one_at_a_time;
  std::lock_guard turn(one_at_a_time);
  const std::shared_ptr<Link> old = link();
  if (old->generation() != seen) return {};
  old->process().kill("was ended to be started again");
  const uint64_t now = monotonic_ns();
  {
    std::lock_guard lock(mutex_);
    last_loss_ = old->loss();
    while (!restarts_ns_.empty() && now - restarts_ns_.front() > kRestartWindowNs)
      restarts_ns_.pop_front();
    if (restarts_ns_.size() >= kRestarts) {
      return fail(Code::device_lost,
                  launch_.plugin + ": was started again " + std::to_string(kRestarts) +
                      " times within a minute and died each time, the last time: " +
                      last_loss_.message + ": correct the cause, then start pantheon again");
    }
    restarts_ns_.push_back(now);
    board_slots_.clear();
    program_seen_.clear();
  }
  const Answer answer = open_link(seen + 1);
  if (answer.status == PN_OK) return {};
  return fail(Code::device_lost,
              launch_.plugin + ": cannot be started again: " + std::string(answer.error.message));
}

// ---- handles and calls --------------------------------------------------------------------------

std::shared_ptr<Link> Proxy::link_of(uint64_t id, Answer* answer) const {
  std::shared_ptr<Link> now;
  {
    std::lock_guard lock(mutex_);
    now = link_;
    const uint32_t of = generation_of(id);
    if (id == 0 || of == now->generation()) return now;
    answer->error = last_loss_;
    if (of != 0 && of < now->generation()) {
      answer->status = PN_DEVICE_LOST;
      return nullptr;
    }
  }
  answer->error = no_error();
  answer->status = set_error(&answer->error, PN_INVALID, "the handle is none of this plugin's");
  return nullptr;
}

Answer Proxy::ask(uint64_t id, Call what, const Writer& args, pn_error* err, uint32_t ms,
                  std::span<const int> fds) {
  Answer answer;
  if (const std::shared_ptr<Link> to = link_of(id, &answer)) answer = to->call(what, args, ms, fds);
  if (err != nullptr && (answer.error.code != PN_OK || answer.error.message[0] != 0))
    pn_write(err, &answer.error, sizeof answer.error);
  return answer;
}

void Proxy::tell(uint64_t id, Call what) {
  Answer none;
  const std::shared_ptr<Link> to = link_of(id, &none);
  if (id == 0 || to == nullptr || to->lost()) return;
  Writer args;
  args.pod(id);
  to->call(what, args, kControlMs);
}

}  // namespace pn::proxy
