// SPDX-License-Identifier: Apache-2.0
//
// backend_chaos: who it is, its entry, its dies and how they are opened.
//
// In a process that links it, the entry may be called again after shutdown: a test makes a thousand
// of them. Two at a time there cannot be, since the C table has no context.
#include <pantheon/note.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "plugins/chaos/chaos.h"

PN_TEST_PLUGIN_NOTE("chaos", "", PN_VERSION, "Pantheon", "");

namespace chaos {
namespace {

State* g_state;                   // the last one stays: counts() is read after shutdown
std::vector<State*>* g_occupied;  // those that a call hangs in, or has hung in

pn_device_info describe(const Die& die) {
  State& s = state();
  const DieOptions& o = s.of(die);
  const auto per_card = static_cast<uint32_t>(s.options.dies_per_card);
  const uint32_t card = die.index / per_card;
  auto group = [&](uint64_t kind) { return kind == 0 ? die.index : kind == 1 ? card : 0; };
  pn_device_info info{};
  info.struct_size = sizeof info;
  info.state = die.lost ? PN_STATE_LOST : static_cast<uint32_t>(o.state);
  const std::string place = std::to_string(card) + "-" + std::to_string(die.index % per_card);
  copy_text(info.uid, sizeof info.uid, "chaos-" + place);
  copy_text(info.name, sizeof info.name, o.name);
  if (info.state != PN_STATE_READY) {
    const std::string reason = die.lost ? die.loss.message : o.reason;
    copy_text(info.reason, sizeof info.reason, reason.empty() ? "the script says so" : reason);
  }
  std::memcpy(info.card_uid, "chaos-card", 10);
  info.card_uid[14] = static_cast<uint8_t>(card >> 8);
  info.card_uid[15] = static_cast<uint8_t>(card);
  info.die_index = die.index % per_card;
  info.dies_on_card = per_card;
  info.host_link_group = group(s.options.links);
  info.reset_domain = group(s.options.resets);
  info.pci_domain = s.options.pci != 0 ? 0 : PN_NONE;
  info.pci_bdf = s.options.pci != 0 ? (0x80 + card) << 8 | info.die_index << 3 : 0;
  info.numa_node = -1;
  info.lost_settle_ms = static_cast<uint32_t>(o.settle_ns / 1'000'000 + 1);
  info.context_bytes = o.context_bytes;
  return info;
}

pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  if (count == nullptr) return fail(err, PN_INVALID, "devices: count is NULL");
  Call call("devices");
  const auto all = static_cast<uint32_t>(state().dies.size());
  const uint32_t room = *count;
  *count = all;
  if (room == 0 || infos == nullptr) return PN_OK;
  for (uint32_t i = 0; i < std::min(room, all); ++i) {
    const pn_device_info info = describe(state().dies[i]);
    pn_write(PN_AT(pn_device_info, infos, i), &info, sizeof info);
  }
  return room < all ? PN_INCOMPLETE : PN_OK;
}

// Whether opening again is the cure that the loss asks for.
bool cured_by_opening(const Die& die) {
  return die.loss.recovery == PN_RECOVER_REOPEN_DEVICE || die.loss.recovery == PN_RECOVER_NONE ||
         die.loss.recovery == PN_RECOVER_RETRY_LATER;
}

pn_status device_open(uint32_t index, pn_device* out, pn_error* err) {
  Call call("device_open", index, kOfIndex);
  Die* die = call.die();
  if (die == nullptr) {
    return host_broke(err, "device_open: no die " + std::to_string(index) + ", there are " +
                               std::to_string(state().dies.size()));
  }
  State& s = state();
  const DieOptions& o = s.of(*die);
  if (!o.fail_open.empty()) return fail(err, PN_FAILED, "device_open: " + o.fail_open);
  if (die->handle != 0) return host_broke(err, "device_open: the die is open already");
  if (die->lost && !cured_by_opening(*die)) return fail(err, die->loss);
  const pn_device_info info = describe(*die);
  if (info.state != PN_STATE_READY && !die->lost) {
    return fail(err, PN_UNSUPPORTED, std::string("device_open: ") + info.reason);
  }
  die->lost = false;
  if (!take(*die, kDeviceHeap, o.context_bytes)) {
    return fail(err, PN_OUT_OF_MEMORY,
                "device_open: " + std::to_string(o.context_bytes) + " bytes asked, " +
                    std::to_string(free_bytes(*die)) + " free");
  }
  die->handle = s.next_id++;
  ++s.counts.devices;
  out->id = die->handle;
  return PN_OK;
}

void device_close(pn_device device) {
  Call call("device_close", device.id, kOfDevice);
  Die* die = call.die();
  if (die == nullptr) {
    host_broke(nullptr, "device_close: no such device");
    return;
  }
  State& s = state();
  auto mine = [die](const auto& each) { return each.second.die == die->index; };
  if (std::any_of(s.buffers.begin(), s.buffers.end(), mine) ||
      std::any_of(s.programs.begin(), s.programs.end(), mine) ||
      std::any_of(s.queues.begin(), s.queues.end(), mine)) {
    host_broke(nullptr, "device_close: objects of the device are alive");
  }
  give(*die, kDeviceHeap, s.of(*die).context_bytes);
  die->handle = 0;
  --s.counts.devices;
}

void shutdown(uint64_t) {
  Call call("shutdown");
  State& s = state();
  if (s.counts.devices + s.counts.buffers + s.counts.programs + s.counts.queues != 0) {
    host_broke(nullptr, "shutdown: alive are " + std::to_string(s.counts.devices) + " devices, " +
                            std::to_string(s.counts.buffers) + " buffers, " +
                            std::to_string(s.counts.programs) + " programs, " +
                            std::to_string(s.counts.queues) + " queues");
  }
  s.down = true;
}

const pn_plugin kTable = {.struct_size = sizeof(pn_plugin),
                          .abi_minor = PN_ABI_MINOR,
                          .min_host_minor = PN_ABI_MINOR,
                          .reserved = 0,
                          .devices = devices,
                          .device_open = device_open,
                          .device_close = device_close,
                          .heaps = heaps,
                          .memory_status = memory_status,
                          .buffer_create = buffer_create,
                          .buffer_destroy = buffer_destroy,
                          .program_query = program_query,
                          .program_create = program_create,
                          .program_status = program_status,
                          .program_destroy = program_destroy,
                          .queue_create = queue_create,
                          .queue_submit = queue_submit,
                          .queue_query = queue_query,
                          .queue_wait = queue_wait,
                          .queue_error = queue_error,
                          .queue_destroy = queue_destroy,
                          .get_interface = get_interface,
                          .shutdown = shutdown};

pn_status begin(const pn_host* host, pn_error* err) {
  if (g_state != nullptr && !g_state->down) {
    return fail(err, PN_FAILED, "entry: called again before shutdown");
  }
  auto fresh = std::make_unique<State>();
  Pairs pairs;
  for (uint32_t i = 0; i < host->config_count; ++i) {
    pairs.emplace_back(host->config[i].key, host->config[i].value);
  }
  std::string why;
  if (!parse(pairs, &fresh->options, &why)) return fail(err, PN_INVALID, why);
  fresh->host = host;
  fresh->random = fresh->options.seed;
  fresh->began_ns = host->now_ns(host->self);
  fresh->dies.resize(fresh->options.dies.size());
  for (uint32_t i = 0; i < fresh->dies.size(); ++i) fresh->dies[i].index = i;
  if (g_state != nullptr && (g_state->counts.hung != 0 || g_state->release)) {
    if (g_occupied == nullptr) g_occupied = new std::vector<State*>;
    g_occupied->push_back(g_state);
  } else {
    delete g_state;
  }
  g_state = fresh.release();
  return PN_OK;
}

}  // namespace

State& state() { return *g_state; }

uint64_t State::now() const {
  if (options.virtual_clock != 0) return virtual_ns;
  return host->now_ns(host->self) - began_ns + 1;
}

uint64_t State::draw() {  // splitmix64
  uint64_t z = random += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

void State::log(uint32_t level, const std::string& text) const {
  host->log(host->self, level, text.data(), text.size());
}

// ---- every call ---------------------------------------------------------------------------------

Call::Call(const char* function) : function_(function), lock_(state().mutex) {
  enter(&state().dies.front());
}

Call::Call(const char* function, uint64_t handle, uint32_t kind)
    : function_(function), lock_(state().mutex) {
  State& s = state();
  uint32_t index = PN_NONE;
  if (kind == kOfIndex && handle < s.dies.size()) index = static_cast<uint32_t>(handle);
  for (const Die& die : s.dies) {
    if (kind == kOfDevice && handle != 0 && die.handle == handle) index = die.index;
  }
  auto look = [&](const auto& all) {
    auto found = all.find(handle);
    if (found != all.end()) index = found->second.die;
  };
  if (kind == kOfBuffer) look(s.buffers);
  if (kind == kOfProgram) look(s.programs);
  if (kind == kOfQueue) look(s.queues);
  if (index != PN_NONE) die_ = &s.dies[index];
  enter(die_);
}

Call::Call(const char* function, uint32_t count, const pn_queue* queues)
    : function_(function), lock_(state().mutex) {
  std::vector<uint32_t> dies;  // each is called once
  for (uint32_t i = 0; i < count; ++i) {
    auto found = state().queues.find(queues[i].id);
    if (found == state().queues.end()) continue;
    const uint32_t die = found->second.die;
    if (std::find(dies.begin(), dies.end(), die) != dies.end()) continue;
    dies.push_back(die);
    enter(&state().dies[die]);
  }
  if (dies.empty()) settle();
}

void Call::enter(Die* die) {
  if (die == nullptr) return settle();
  const uint64_t number = ++die->calls[function_];
  bool trapped = false;
  for (const Trap& trap : state().of(*die).hang) {
    trapped = trapped || (trap.call == number && trap.function == function_);
  }
  if (trapped) hang();
  settle();
}

void Call::hang() {
  State& s = state();
  ++s.counts.hung;
  s.released.wait(lock_, [&s] { return s.release; });
  --s.counts.hung;
}

void Call::pause(uint64_t ns) {
  lock_.unlock();
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
  lock_.lock();
  settle();
}

pn_status Call::check(pn_error* err) const {
  if (die_ == nullptr) return host_broke(err, std::string(function_) + ": no such handle");
  if (die_->lost) return fail(err, die_->loss);
  return PN_OK;
}

// ---- errors -------------------------------------------------------------------------------------

void copy_text(char* to, size_t room, const std::string& text) {
  const size_t bytes = std::min(room - 1, text.size());
  std::memcpy(to, text.data(), bytes);
  to[bytes] = 0;
}

pn_error make_error(pn_status code, const std::string& message) {
  pn_error error{};
  error.struct_size = sizeof error;
  error.code = code;
  copy_text(error.message, sizeof error.message, message);
  return error;
}

pn_status fail(pn_error* err, pn_status code, const std::string& message) {
  return fail(err, make_error(code, message));
}

pn_status fail(pn_error* err, const pn_error& error) {
  if (err != nullptr) pn_write(err, &error, sizeof error);
  return error.code;
}

pn_status host_broke(pn_error* err, const std::string& message) {
  ++state().counts.host_faults;
  state().log(PN_LOG_HOST_BUG, message);
  return fail(err, PN_INVALID, message);
}

}  // namespace chaos

pn_status pantheon_plugin_entry_1(const pn_host* host, const pn_plugin** out, pn_error* err) {
  if (host == nullptr || out == nullptr) {
    return chaos::fail(err, PN_INVALID, "entry: NULL argument");
  }
  if (host->abi_minor != PN_ABI_MINOR) {
    return chaos::fail(err, PN_UNSUPPORTED,
                       "speaks HAL 0." + std::to_string(PN_ABI_MINOR) + ", the host speaks 0." +
                           std::to_string(host->abi_minor));
  }
  const pn_status status = chaos::begin(host, err);
  if (status == PN_OK) *out = &chaos::kTable;
  return status;
}
