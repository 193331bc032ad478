// SPDX-License-Identifier: Apache-2.0
//
// See validate.h. The sets of functions, the books, and the words of a complaint.
#include "hal/host/validate.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "hal/host/validate_state.h"

namespace pn::hal {

namespace {

constexpr size_t kSlots = 8;  // plugins judged at once
constexpr size_t kDeadMax = 1 << 16;

std::atomic<Validator*> g_judges[kSlots];

// The function of set N that hands over to a member of its judge.
template <size_t N, auto Member>
struct Thunk;
template <size_t N, class R, class... Args, R (Validator::*Member)(Args...)>
struct Thunk<N, Member> {
  static R call(Args... args) {
    Validator* judge = g_judges[N].load(std::memory_order_acquire);
    return (judge->*Member)(args...);
  }
};

template <size_t N>
void fill_interfaces(Validator& judge) {
  if (judge.inner_hostmem.import != nullptr)
    judge.hostmem.import = Thunk<N, &Validator::import_range>::call;
  if (judge.inner_sampler.describe != nullptr)
    judge.sampler_api.describe = Thunk<N, &Validator::sampler>::call;
  if (judge.inner_telemetry.health != nullptr)
    judge.telemetry.health = Thunk<N, &Validator::health>::call;
  if (judge.inner_layout.rank != nullptr) judge.layout.rank = Thunk<N, &Validator::rank>::call;
}

template <size_t N>
void fill(pn_plugin* table, Validator* judge) {
  table->devices = Thunk<N, &Validator::devices>::call;
  table->device_open = Thunk<N, &Validator::device_open>::call;
  table->device_close = Thunk<N, &Validator::device_close>::call;
  table->heaps = Thunk<N, &Validator::heaps>::call;
  table->memory_status = Thunk<N, &Validator::memory_status>::call;
  table->buffer_create = Thunk<N, &Validator::buffer_create>::call;
  table->buffer_destroy = Thunk<N, &Validator::buffer_destroy>::call;
  table->program_query = Thunk<N, &Validator::program_query>::call;
  table->program_create = Thunk<N, &Validator::program_create>::call;
  table->program_status = Thunk<N, &Validator::program_status>::call;
  table->program_destroy = Thunk<N, &Validator::program_destroy>::call;
  table->queue_create = Thunk<N, &Validator::queue_create>::call;
  table->queue_submit = Thunk<N, &Validator::queue_submit>::call;
  table->queue_query = Thunk<N, &Validator::queue_query>::call;
  table->queue_wait = Thunk<N, &Validator::queue_wait>::call;
  table->queue_error = Thunk<N, &Validator::queue_error>::call;
  table->queue_destroy = Thunk<N, &Validator::queue_destroy>::call;
  table->get_interface = Thunk<N, &Validator::get_interface>::call;
  table->shutdown = Thunk<N, &Validator::shutdown>::call;
  judge->fill_interfaces = fill_interfaces<N>;
}

template <size_t... N>
void fill_slot(size_t slot, pn_plugin* table, Validator* judge, std::index_sequence<N...>) {
  ((slot == N ? fill<N>(table, judge) : void()), ...);
}

}  // namespace

bool validation_wanted() {
  const char* text = std::getenv("PANTHEON_HAL_VALIDATE");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

Result<std::unique_ptr<Validation>> Validation::begin(const pn_plugin& inner, const pn_host* host) {
  std::unique_ptr<Validation> made(new Validation);
  made->judge_ = std::make_unique<Validator>(inner, host);
  for (size_t slot = 0; slot < kSlots; ++slot) {
    Validator* none = nullptr;
    if (!g_judges[slot].compare_exchange_strong(none, made->judge_.get())) continue;
    made->slot_ = slot;
    made->table_ = inner;
    fill_slot(slot, &made->table_, made->judge_.get(), std::make_index_sequence<kSlots>());
    return made;
  }
  made->slot_ = kSlots;
  return fail(Code::busy, "PANTHEON_HAL_VALIDATE: " + std::to_string(kSlots) +
                              " plugins are judged already: load fewer, or unset it");
}

Validation::~Validation() {
  if (slot_ < kSlots) g_judges[slot_].store(nullptr, std::memory_order_release);
}

// ---- complaints ---------------------------------------------------------------------------------

void Validator::host_bug(const std::string& text) const {
  host_->log(host_->self, PN_LOG_HOST_BUG, text.data(), text.size());
}

void Validator::plugin_bug(const std::string& text) const {
  host_->log(host_->self, PN_LOG_PLUGIN_BUG, text.data(), text.size());
}

pn_status Validator::refuse(const char* call, const std::string& text, pn_error* err) const {
  const std::string message = std::string(call) + ": " + text;
  host_bug(message);
  if (err != nullptr && err->struct_size >= sizeof(pn_error)) {
    err->code = PN_INVALID;
    err->scope = PN_SCOPE_CALL;
    err->recovery = PN_RECOVER_NONE;
    err->native_code = 0;
    const size_t bytes = std::min(message.size(), sizeof err->message - 1);
    std::memcpy(err->message, message.data(), bytes);
    err->message[bytes] = 0;
  }
  return PN_INVALID;
}

// ---- books --------------------------------------------------------------------------------------

Judged* Validator::find(const char* call, Kind kind, uint64_t id) {
  Books& all = books(kind);
  auto found = all.find(id);
  if (found != all.end()) return &found->second;
  const auto index = static_cast<size_t>(kind);
  const std::string what = std::string(kKindNames[index]) + " " + std::to_string(id);
  host_bug(std::string(call) + ": " +
           (dead_[index].count(id) != 0 ? what + " was destroyed before"
                                        : what + " was never given by this plugin"));
  return nullptr;
}

void Validator::born(const char* call, Kind kind, uint64_t id, uint64_t device, Judged judged) {
  const char* name = kKindNames[static_cast<size_t>(kind)];
  judged.device = device;
  if (id == 0) return plugin_bug(std::string(call) + ": said PN_OK and gave " + name + " 0, none");
  dead_[static_cast<size_t>(kind)].erase(id);
  if (!books(kind).try_emplace(id, std::move(judged)).second) {
    plugin_bug(std::string(call) + ": gave " + name + " " + std::to_string(id) +
               ", which is alive already");
  }
}

bool Validator::buried(const char* call, Kind kind, uint64_t id) {
  if (find(call, kind, id) == nullptr) return false;
  books(kind).erase(id);
  std::set<uint64_t>& dead = dead_[static_cast<size_t>(kind)];
  if (dead.size() >= kDeadMax) dead.erase(dead.begin());
  dead.insert(id);
  return true;
}

bool Validator::flies(const char* what, uint64_t id, bool program) const {
  for (const auto& [queue_id, queue] : books_[static_cast<size_t>(Kind::queue)]) {
    for (const InFlight& flight : queue.flight) {
      for (uint64_t named : program ? flight.programs : flight.buffers) {
        if (named != id) continue;
        host_bug(std::string(what) + " " + std::to_string(id) + " is destroyed while value " +
                 std::to_string(flight.value) + " of queue " + std::to_string(queue_id) +
                 " names it");
        return true;
      }
    }
  }
  return false;
}

void Validator::check_slice(const char* call, const char* what, const pn_slice& slice) {
  Judged* buffer = find(call, Kind::buffer, slice.buffer.id);
  if (buffer == nullptr) return;
  if (slice.offset <= buffer->bytes && slice.bytes <= buffer->bytes - slice.offset) return;
  host_bug(std::string(call) + ": " + what + ": bytes " + std::to_string(slice.offset) + " + " +
           std::to_string(slice.bytes) + " of a buffer of " + std::to_string(buffer->bytes));
}

// ---- the host's side ----------------------------------------------------------------------------

void Validator::check_thread(const char* call, uint32_t tag) const {
  if (host_->thread_check(host_->self, tag) != 0) return;
  host_bug(std::string(call) + ": " +
           (tag == PN_THREAD_LOAD ? "a [load] function" : "a function that blocks") +
           " was called on a serving thread");
}

// Keeps what the error was before, to see what the plugin makes of it. False: not to be passed on.
bool Validator::check_error(const char* call, pn_error* err, pn_error* before) const {
  *before = pn_error{};
  if (err == nullptr) return true;
  if (err->struct_size < sizeof(pn_error) || err->struct_size % 8 != 0) {
    host_bug(std::string(call) + ": pn_error.struct_size is " + std::to_string(err->struct_size) +
             ", at least " + std::to_string(sizeof(pn_error)) + " is asked");
    return false;
  }
  *before = *err;
  return true;
}

Inside::Inside(Validator& judge, const char* call, const char* tag, Kind kind, uint64_t id)
    : judge_(judge), kind_(kind), id_(id) {
  Validator::Lock lock(judge_.mutex_);
  auto found = judge_.books(kind).find(id);
  if (found == judge_.books(kind).end()) return;
  if (++found->second.inside > 1) {
    judge_.host_bug(std::string(call) + ": overlaps another [" + tag + "] call on " +
                    kKindNames[static_cast<size_t>(kind)] + " " + std::to_string(id));
  }
}

Inside::~Inside() {
  Validator::Lock lock(judge_.mutex_);
  auto found = judge_.books(kind_).find(id_);
  if (found != judge_.books(kind_).end() && found->second.inside > 0) --found->second.inside;
}

// ---- the plugin's side --------------------------------------------------------------------------

pn_status Validator::answered(const char* call, pn_status status, pn_error* err,
                              const pn_error& before,
                              std::initializer_list<pn_status> positive) const {
  bool known = status <= PN_OK && status >= PN_FAILED;
  for (pn_status each : positive) known = known || status == each;
  const std::string name = call;
  if (!known) plugin_bug(name + ": returned " + std::to_string(status) + ", which it may not");
  if (err == nullptr) return status;
  if (err->struct_size != before.struct_size) {
    plugin_bug(name + ": changed pn_error.struct_size");
    err->struct_size = before.struct_size;
  }
  check_text(call, "pn_error.message", err->message, sizeof err->message);
  if (status >= 0) return status;
  if (err->code != status) {
    plugin_bug(name + ": returned " + std::to_string(status) + " and wrote code " +
               std::to_string(err->code));
  }
  if (err->message[0] == 0) plugin_bug(name + ": failed without a message");
  if (err->scope > PN_SCOPE_PLUGIN || err->recovery > PN_RECOVER_OPERATOR) {
    plugin_bug(name + ": scope " + std::to_string(err->scope) + ", recovery " +
               std::to_string(err->recovery) + " are none");
  }
  return status;
}

// Rule R11. The lock is not held.
void Validator::sticky(const char* call, uint64_t device, pn_status status, const pn_error* err) {
  Lock lock(mutex_);
  auto found = books(Kind::device).find(device);
  if (found == books(Kind::device).end()) return;
  const bool whole = err == nullptr || err->scope >= PN_SCOPE_DEVICE;
  if (status == PN_DEVICE_LOST && whole) found->second.lost = true;
  if (status == PN_OK && found->second.lost) {
    plugin_bug(std::string(call) + ": said PN_DEVICE_LOST of this device before, and PN_OK now");
  }
}

void Validator::check_text(const char* call, const char* name, char* text, size_t room) const {
  if (strnlen(text, room) < room) return;
  plugin_bug(std::string(call) + ": " + name + " does not end with NUL");
  text[room - 1] = 0;
}

void Validator::check_list(const char* call, pn_status status, uint32_t room,
                           uint32_t found) const {
  if (status < 0) return;
  const bool short_list = room != 0 && room < found;
  if (short_list == (status == PN_INCOMPLETE) || (room == 0 && status >= 0)) return;
  plugin_bug(std::string(call) + ": room for " + std::to_string(room) + ", there are " +
             std::to_string(found) + ", and it returned " + std::to_string(status));
}

}  // namespace pn::hal
