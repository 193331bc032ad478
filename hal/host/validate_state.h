// SPDX-License-Identifier: Apache-2.0
//
// The judge of one plugin: its books, and one function for each slot.
//
// Owns what validate*.cc share. The lock is held while the books are read and written, never while
// the plugin is called: what hangs there hangs alone.
#pragma once

#include <pantheon/hal.h>
#include <pantheon/hostmem.h>
#include <pantheon/layout.h>
#include <pantheon/sampler.h>
#include <pantheon/telemetry.h>

#include <deque>
#include <initializer_list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace pn::hal {

enum class Kind { device, buffer, program, queue };
constexpr const char* kKindNames[] = {"device", "buffer", "program", "queue"};

struct InFlight {
  uint64_t value = 0;
  std::vector<uint64_t> buffers, programs;
};

struct Judged {  // one live handle
  uint64_t device = 0;
  uint32_t inside = 0;  // calls that may not overlap and are under way
  // device
  std::vector<pn_heap_info> heaps;
  bool lost = false;
  // buffer
  uint64_t bytes = 0;
  uint32_t heap = PN_NONE;
  // program
  uint32_t lanes = 0, shapes = 0, state = 0, done = 0;
  uint64_t queue = 0;
  std::vector<uint64_t> bound;
  // queue
  uint64_t submitted = 0, completed = 0;
  uint64_t looks = 0;  // queries that have ended
  pn_error error{};
  std::deque<InFlight> flight;
};

class Validator {
 public:
  Validator(const pn_plugin& inner, const pn_host* host) : inner_(inner), host_(host) {}

  // One a slot of pn_plugin.
  pn_status devices(uint32_t* count, pn_device_info* infos, pn_error* err);
  pn_status device_open(uint32_t index, pn_device* out, pn_error* err);
  void device_close(pn_device device);
  pn_status heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err);
  pn_status memory_status(pn_device device, pn_memory_status* out, pn_error* err);
  pn_status buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                          void** host, pn_error* err);
  void buffer_destroy(pn_buffer buffer);
  pn_status program_query(pn_device device, const pn_plan* plan, pn_report* report, pn_error* err);
  pn_status program_create(pn_device device, const pn_plan* plan, uint32_t count,
                           const pn_binding* bindings, pn_program* out, pn_error* err);
  pn_status program_status(pn_program program, pn_program_status* out, pn_error* err);
  void program_destroy(pn_program program);
  pn_status queue_create(pn_device device, uint32_t kind, uint32_t depth, pn_queue* out,
                         pn_error* err);
  pn_status queue_submit(pn_queue queue, const pn_submit* submit, pn_error* err);
  pn_status queue_query(uint32_t count, const pn_queue* queues, pn_progress* out, pn_error* err);
  pn_status queue_wait(pn_point point, uint64_t timeout_ns, pn_error* err);
  pn_status queue_error(pn_queue queue, pn_error* err);
  void queue_destroy(pn_queue queue);
  const void* get_interface(const char* id);
  void shutdown(uint64_t deadline_ns);

  // Of named interfaces: those that make or take handles, or fill texts.
  pn_status import_range(pn_device device, const pn_import* range, pn_buffer* out, pn_error* err);
  pn_status sampler(pn_device device, pn_sampler_info* out, pn_error* err);
  pn_status health(pn_device device, uint32_t* state, char reason[128], pn_error* err);
  pn_status rank(const pn_weight* weight, uint64_t target, uint32_t* count, pn_layout_choice* out,
                 pn_error* err);

  // The wrapped tables; functions are filled in where the thunks are.
  pn_hostmem_api hostmem{}, inner_hostmem{};
  pn_sampler_api sampler_api{}, inner_sampler{};
  pn_telemetry_api telemetry{}, inner_telemetry{};
  pn_layout_api layout{}, inner_layout{};
  void (*fill_interfaces)(Validator&) = nullptr;

 private:
  friend class Inside;
  using Lock = std::lock_guard<std::mutex>;
  using Books = std::map<uint64_t, Judged>;

  void host_bug(const std::string& text) const;
  void plugin_bug(const std::string& text) const;
  pn_status refuse(const char* call, const std::string& text, pn_error* err) const;

  // Books. find() logs what is wrong with a handle that is not alive. The lock is held.
  Judged* find(const char* call, Kind kind, uint64_t id);
  void born(const char* call, Kind kind, uint64_t id, uint64_t device, Judged judged);
  bool buried(const char* call, Kind kind, uint64_t id);
  Books& books(Kind kind) { return books_[static_cast<size_t>(kind)]; }
  bool flies(const char* what, uint64_t id, bool program) const;
  void check_slice(const char* call, const char* what, const pn_slice& slice);

  // What the host may get wrong; what it may not, ends the call.
  void check_thread(const char* call, uint32_t tag) const;
  bool check_error(const char* call, pn_error* err, pn_error* before) const;
  template <class T>
  bool check_struct(const char* call, const char* name, const T* given, uint32_t least,
                    pn_error* err, pn_status* status) const;
  void check_plan(const char* call, const pn_plan& plan);
  void check_submit(Judged& queue, const pn_submit& submit);
  void check_step(const Judged& program, const pn_command& command, const pn_step& step);
  void check_command(const pn_command& command, const pn_submit& submit, InFlight* flight);

  // What the plugin may get wrong.
  pn_status answered(const char* call, pn_status status, pn_error* err, const pn_error& before,
                     std::initializer_list<pn_status> positive = {}) const;
  void sticky(const char* call, uint64_t device, pn_status status, const pn_error* err);
  void check_text(const char* call, const char* name, char* text, size_t room) const;
  void check_list(const char* call, pn_status status, uint32_t room, uint32_t found) const;
  void check_report(const pn_plan& plan, const pn_report& report, uint32_t room, pn_status status);
  void settle(Judged& queue, const pn_progress& found, uint64_t id, bool alone);

  pn_plugin inner_;
  const pn_host* host_;
  std::mutex mutex_;
  Books books_[4];
  std::set<uint64_t> dead_[4];
  uint32_t device_count_ = PN_NONE;
};

// A call that may not overlap another one on the same handle: [control] on a device, [queue] on a
// queue. Marks it while it lives.
class Inside {
 public:
  Inside(Validator& judge, const char* call, const char* tag, Kind kind, uint64_t id);
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Validator& judge_;
  Kind kind_;
  uint64_t id_;
};

template <class T>
bool Validator::check_struct(const char* call, const char* name, const T* given, uint32_t least,
                             pn_error* err, pn_status* status) const {
  std::string wrong;
  if (given == nullptr) {
    wrong = std::string(name) + " is NULL";
  } else if (given->struct_size < least || given->struct_size % 8 != 0) {
    wrong = std::string(name) + ".struct_size is " + std::to_string(given->struct_size) +
            ", at least " + std::to_string(least) + " is asked";
  }
  if (wrong.empty()) return true;
  *status = refuse(call, wrong, err);
  return false;
}

}  // namespace pn::hal
