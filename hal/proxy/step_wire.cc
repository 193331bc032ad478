// SPDX-License-Identifier: Apache-2.0
//
// See step_wire.h. Growable structs are written in this build's size; all of them hold multiples of
// 8 bytes, so only token lists need padding.
#include "hal/proxy/step_wire.h"

#include <cstring>

namespace pn::proxy {

namespace {

uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// Longer is understood only when the rest says nothing (R5).
template <class T>
bool fits(const T* items, uint32_t count) {
  if (count == 0) return true;
  if (items == nullptr || items->struct_size < sizeof(T)) return false;
  if (items->struct_size == sizeof(T)) return true;
  T one;
  for (uint32_t i = 0; i < count; ++i)
    if (!pn_read(&one, sizeof one, PN_AT_CONST(T, items, i), sizeof one)) return false;
  return true;
}

class Packer {
 public:
  explicit Packer(std::byte* at) : at_(at) {}
  template <class T>
  void frozen(const T* items, uint32_t count) {
    if (count == 0) return;
    std::memcpy(at_, items, count * sizeof(T));
    at_ += padded(count * sizeof(T));
  }
  template <class T>
  void grown(const T* items, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      std::memcpy(at_, PN_AT_CONST(T, items, i), sizeof(T));
      const uint32_t size = sizeof(T);
      std::memcpy(at_, &size, sizeof size);
      at_ += sizeof(T);
    }
  }

 private:
  std::byte* at_;
};

template <class T>
T* step_over(std::byte*& at, uint32_t count) {
  auto* here = reinterpret_cast<T*>(at);
  at += padded(count * sizeof(T));
  return count == 0 ? nullptr : here;
}

}  // namespace

uint64_t record_bytes(const pn_submit& submit, const char** unknown) {
  const auto refuse = [unknown](const char* name) {
    *unknown = name;
    return uint64_t{0};
  };
  if (!fits(&submit, 1)) return refuse("pn_submit");
  if (!fits(submit.steps, submit.step_count)) return refuse("pn_step");
  if (submit.wait_count != 0 && submit.waits == nullptr) return refuse("waits (NULL)");
  if (submit.command_count != 0 && submit.commands == nullptr) return refuse("commands (NULL)");
  uint64_t bytes = sizeof(pn_submit) + uint64_t{submit.wait_count} * sizeof(pn_point) +
                   uint64_t{submit.command_count} * sizeof(pn_command) +
                   uint64_t{submit.step_count} * sizeof(pn_step);
  for (uint32_t i = 0; i < submit.step_count; ++i) {
    const pn_step& step = *PN_AT_CONST(pn_step, submit.steps, i);
    const bool lists = (step.token_count == 0 || step.tokens != nullptr) &&
                       (step.page_count == 0 || step.pages != nullptr) &&
                       (step.entry_count == 0 || step.entries != nullptr) &&
                       (step.row_count == 0 || step.rows != nullptr);
    if (!lists) return refuse("a list of pn_step (NULL)");
    if (!fits(step.lanes, step.lane_count)) return refuse("pn_lane");
    bytes +=
        padded(uint64_t{step.token_count} * sizeof(int32_t)) +
        uint64_t{step.lane_count} * sizeof(pn_lane) + uint64_t{step.page_count} * sizeof(pn_pages) +
        uint64_t{step.entry_count} * sizeof(pn_entry) + uint64_t{step.row_count} * sizeof(pn_row);
  }
  return bytes;
}

void write_record(const pn_submit& submit, std::byte* to) {
  Packer out(to);
  out.grown(&submit, 1);
  out.frozen(submit.waits, submit.wait_count);
  out.frozen(submit.commands, submit.command_count);
  out.grown(submit.steps, submit.step_count);
  for (uint32_t i = 0; i < submit.step_count; ++i) {
    const pn_step& step = *PN_AT_CONST(pn_step, submit.steps, i);
    out.frozen(step.tokens, step.token_count);
    out.grown(step.lanes, step.lane_count);
    out.frozen(step.pages, step.page_count);
    out.frozen(step.entries, step.entry_count);
    out.frozen(step.rows, step.row_count);
  }
}

pn_submit* open_record(std::byte* at) {
  auto* submit = step_over<pn_submit>(at, 1);
  submit->waits = step_over<pn_point>(at, submit->wait_count);
  submit->commands = step_over<pn_command>(at, submit->command_count);
  auto* steps = step_over<pn_step>(at, submit->step_count);
  submit->steps = steps;
  for (uint32_t i = 0; i < submit->step_count; ++i) {
    pn_step& step = steps[i];
    step.tokens = step_over<int32_t>(at, step.token_count);
    step.lanes = step_over<pn_lane>(at, step.lane_count);
    step.pages = step_over<pn_pages>(at, step.page_count);
    step.entries = step_over<pn_entry>(at, step.entry_count);
    step.rows = step_over<pn_row>(at, step.row_count);
  }
  return submit;
}

}  // namespace pn::proxy
