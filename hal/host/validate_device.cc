// SPDX-License-Identifier: Apache-2.0
//
// The judge on dies, memory and programs; see validate_state.h.
#include <algorithm>
#include <bit>
#include <cstring>

#include "hal/host/validate_state.h"

namespace pn::hal {

namespace {

std::string number(uint64_t n) { return std::to_string(n); }

// The struct sizes of a list that the plugin fills, kept to be compared.
template <class T>
std::vector<uint32_t> sizes_of(const T* list, uint32_t count) {
  std::vector<uint32_t> sizes;
  for (uint32_t i = 0; list != nullptr && i < count; ++i) {
    sizes.push_back(PN_AT_CONST(T, list, i)->struct_size);
  }
  return sizes;
}

}  // namespace

// ---- dies ---------------------------------------------------------------------------------------

pn_status Validator::devices(uint32_t* count, pn_device_info* infos, pn_error* err) {
  constexpr const char* kCall = "devices";
  check_thread(kCall, PN_THREAD_LOAD);
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (count == nullptr) return refuse(kCall, "count is NULL", err);
  const uint32_t room = infos == nullptr ? 0 : *count;
  pn_status status = PN_OK;
  for (uint32_t i = 0; i < room; ++i) {
    const auto* each = PN_AT_CONST(pn_device_info, infos, i);
    if (!check_struct(kCall, "pn_device_info", each, sizeof(pn_device_info), err, &status))
      return status;
  }
  const std::vector<uint32_t> sizes = sizes_of(infos, room);
  status = answered(kCall, inner_.devices(count, infos, err), err, before, {PN_INCOMPLETE});
  if (status < 0) return status;
  check_list(kCall, status, room, *count);
  {
    Lock lock(mutex_);
    if (device_count_ != PN_NONE && device_count_ != *count) {
      plugin_bug("devices: there were " + number(device_count_) + " dies, now " + number(*count));
    }
    device_count_ = *count;
  }
  for (uint32_t i = 0; i < std::min(room, *count); ++i) {
    auto* info = PN_AT(pn_device_info, infos, i);
    if (info->struct_size != sizes[i]) {
      plugin_bug("devices: changed struct_size of die " + number(i));
      info->struct_size = sizes[i];
      continue;
    }
    check_text(kCall, "uid", info->uid, sizeof info->uid);
    check_text(kCall, "name", info->name, sizeof info->name);
    check_text(kCall, "reason", info->reason, sizeof info->reason);
    if (info->state > PN_STATE_ABSENT || info->die_index >= info->dies_on_card) {
      plugin_bug("devices: die " + number(i) + " is in state " + number(info->state) + ", die " +
                 number(info->die_index) + " of " + number(info->dies_on_card) + " on its card");
    }
    if (info->state != PN_STATE_READY && info->reason[0] == 0) {
      plugin_bug("devices: die " + number(i) + " is not READY and says no reason");
    }
  }
  return status;
}

pn_status Validator::device_open(uint32_t index, pn_device* out, pn_error* err) {
  constexpr const char* kCall = "device_open";
  check_thread(kCall, PN_THREAD_LOAD);
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (out == nullptr) return refuse(kCall, "out is NULL", err);
  const pn_status status = answered(kCall, inner_.device_open(index, out, err), err, before);
  if (status != PN_OK) return status;
  Lock lock(mutex_);
  born(kCall, Kind::device, out->id, out->id, {});
  return status;
}

void Validator::device_close(pn_device device) {
  {
    Lock lock(mutex_);
    for (Kind kind : {Kind::buffer, Kind::program, Kind::queue}) {
      const auto alive =
          std::count_if(books(kind).begin(), books(kind).end(),
                        [&](const auto& each) { return each.second.device == device.id; });
      if (alive != 0) {
        host_bug("device_close: " + number(static_cast<uint64_t>(alive)) + " " +
                 kKindNames[static_cast<size_t>(kind)] + "(s) of the device are alive");
      }
    }
    if (!buried("device_close", Kind::device, device.id)) return;
  }
  inner_.device_close(device);
}

pn_status Validator::heaps(pn_device device, uint32_t* count, pn_heap_info* infos, pn_error* err) {
  constexpr const char* kCall = "heaps";
  check_thread(kCall, PN_THREAD_LOAD);
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (count == nullptr) return refuse(kCall, "count is NULL", err);
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
  }
  const uint32_t room = infos == nullptr ? 0 : *count;
  const std::vector<uint32_t> sizes = sizes_of(infos, room);
  const pn_status status =
      answered(kCall, inner_.heaps(device, count, infos, err), err, before, {PN_INCOMPLETE});
  sticky(kCall, device.id, status, err);
  if (status < 0) return status;
  check_list(kCall, status, room, *count);
  bool results = false, odd = false;
  std::vector<pn_heap_info> found;
  for (uint32_t i = 0; i < std::min(room, *count); ++i) {
    auto* heap = PN_AT(pn_heap_info, infos, i);
    if (heap->struct_size != sizes[i]) plugin_bug("heaps: changed struct_size");
    heap->struct_size = sizes[i];
    results = results || (heap->flags & PN_HEAP_RESULTS) != 0;
    odd = odd || !std::has_single_bit(heap->alignment) || heap->copy_alignment == 0 ||
          heap->granule == 0 || heap->bytes_max > heap->total;
    found.push_back(*heap);
  }
  if (found.size() < *count) return status;
  if (!results) plugin_bug("heaps: none has PN_HEAP_RESULTS");
  if (odd) plugin_bug("heaps: an alignment is no power of two, a granule 0, or bytes_max > total");
  Lock lock(mutex_);
  auto judged = books(Kind::device).find(device.id);
  if (judged == books(Kind::device).end()) return status;
  const std::vector<pn_heap_info>& old = judged->second.heaps;
  if (!old.empty() && old.size() != found.size()) plugin_bug("heaps: the list has changed");
  judged->second.heaps = std::move(found);
  return status;
}

pn_status Validator::memory_status(pn_device device, pn_memory_status* out, pn_error* err) {
  constexpr const char* kCall = "memory_status";
  pn_error before;
  pn_status status = PN_OK;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_memory_status", out, sizeof(pn_memory_status), err, &status))
    return status;
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
  }
  const uint32_t size = out->struct_size;
  status = answered(kCall, inner_.memory_status(device, out, err), err, before);
  sticky(kCall, device.id, status, err);
  if (status != PN_OK) return status;
  if (out->struct_size != size) plugin_bug("memory_status: changed struct_size");
  out->struct_size = size;
  const bool exact = out->quality == 2;
  if (out->quality > 2 || (exact && (out->free_now > out->total || out->used_by_us > out->total ||
                                     out->free_now + out->used_by_us > out->total))) {
    plugin_bug("memory_status: " + number(out->free_now) + " free, " + number(out->used_by_us) +
               " ours, of " + number(out->total) + " in all, quality " + number(out->quality));
  }
  return status;
}

// ---- buffers ------------------------------------------------------------------------------------

pn_status Validator::buffer_create(pn_device device, uint32_t heap, uint64_t bytes, pn_buffer* out,
                                   void** host, pn_error* err) {
  constexpr const char* kCall = "buffer_create";
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (out == nullptr || host == nullptr) return refuse(kCall, "out or host is NULL", err);
  pn_heap_info info{};
  {
    Lock lock(mutex_);
    const Judged* judged = find(kCall, Kind::device, device.id);
    if (judged == nullptr) return PN_INVALID;
    const bool known = heap < judged->heaps.size();
    if (known) info = judged->heaps[heap];
    if (!judged->heaps.empty() && !known)
      host_bug("buffer_create: there is no heap " + number(heap));
    if (bytes == 0 || (known && info.bytes_max != 0 && bytes > info.bytes_max)) {
      host_bug("buffer_create: " + number(bytes) + " bytes, allowed are 1 to " +
               number(info.bytes_max));
    }
  }
  Inside inside(*this, kCall, "control", Kind::device, device.id);
  const pn_status status =
      answered(kCall, inner_.buffer_create(device, heap, bytes, out, host, err), err, before);
  sticky(kCall, device.id, status, err);
  if (status != PN_OK) return status;
  const bool visible = (info.flags & PN_HEAP_HOST_VISIBLE) != 0;
  if (info.struct_size != 0 && visible != (*host != nullptr)) {
    plugin_bug("buffer_create: heap " + number(heap) + (visible ? " is" : " is not") +
               " HOST_VISIBLE, and the address says otherwise");
  }
  Judged judged;
  judged.bytes = bytes;
  judged.heap = heap;
  Lock lock(mutex_);
  born(kCall, Kind::buffer, out->id, device.id, std::move(judged));
  return status;
}

void Validator::buffer_destroy(pn_buffer buffer) {
  constexpr const char* kCall = "buffer_destroy";
  uint64_t device = 0;
  {
    Lock lock(mutex_);
    flies("buffer_destroy: buffer", buffer.id, false);
    for (const auto& [id, program] : books(Kind::program)) {
      const auto& bound = program.bound;
      if (std::find(bound.begin(), bound.end(), buffer.id) == bound.end()) continue;
      host_bug("buffer_destroy: buffer " + number(buffer.id) + " is bound to program " +
               number(id));
      break;
    }
    const Judged* judged = find(kCall, Kind::buffer, buffer.id);
    if (judged == nullptr) return;
    device = judged->device;
    buried(kCall, Kind::buffer, buffer.id);
  }
  Inside inside(*this, kCall, "control", Kind::device, device);
  inner_.buffer_destroy(buffer);
}

// ---- interfaces, the end ------------------------------------------------------------------------

namespace {

template <class T>
const void* take(const void* given, T* inner, T* outer) {
  const uint32_t size = *static_cast<const uint32_t*>(given);
  *inner = T{};
  std::memcpy(inner, given, std::min<size_t>(size, sizeof(T)));
  *outer = *inner;
  return outer;
}

}  // namespace

const void* Validator::get_interface(const char* id) {
  if (id == nullptr) {
    host_bug("get_interface: id is NULL");
    return nullptr;
  }
  check_thread("get_interface", PN_THREAD_LOAD);
  const void* given = inner_.get_interface(id);
  if (given == nullptr || std::strncmp(id, "pantheon.", 9) != 0) return given;
  if (*static_cast<const uint32_t*>(given) % 8 != 0 || *static_cast<const uint32_t*>(given) < 16) {
    plugin_bug(std::string("get_interface: ") + id + ": struct_size is " +
               number(*static_cast<const uint32_t*>(given)));
    return nullptr;
  }
  Lock lock(mutex_);
  const std::string name = id;
  const void* wrapped = given;
  if (name == "pantheon.hostmem/1") wrapped = take(given, &inner_hostmem, &hostmem);
  if (name == "pantheon.sampler/1") wrapped = take(given, &inner_sampler, &sampler_api);
  if (name == "pantheon.telemetry/1") wrapped = take(given, &inner_telemetry, &telemetry);
  if (name == "pantheon.layout/1") wrapped = take(given, &inner_layout, &layout);
  fill_interfaces(*this);
  return wrapped;
}

pn_status Validator::import_range(pn_device device, const pn_import* range, pn_buffer* out,
                                  pn_error* err) {
  constexpr const char* kCall = "hostmem.import";
  pn_error before;
  pn_status status = PN_OK;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_import", range, sizeof(pn_import), err, &status)) return status;
  if (out == nullptr) return refuse(kCall, "out is NULL", err);
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
    const uint64_t align = std::max(1u, inner_hostmem.alignment);
    if (reinterpret_cast<uintptr_t>(range->address) % align != 0 || range->bytes % align != 0) {
      host_bug("hostmem.import: the range is not aligned to " + number(align));
    }
  }
  status = answered(kCall, inner_hostmem.import(device, range, out, err), err, before);
  sticky(kCall, device.id, status, err);
  if (status != PN_OK) return status;
  Judged judged;
  judged.bytes = range->bytes;
  Lock lock(mutex_);
  born(kCall, Kind::buffer, out->id, device.id, std::move(judged));
  return status;
}

pn_status Validator::sampler(pn_device device, pn_sampler_info* out, pn_error* err) {
  constexpr const char* kCall = "sampler.describe";
  pn_error before;
  pn_status status = PN_OK;
  check_thread(kCall, PN_THREAD_LOAD);
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_sampler_info", out, sizeof(pn_sampler_info), err, &status))
    return status;
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
  }
  const uint32_t size = out->struct_size;
  status = answered(kCall, inner_sampler.describe(device, out, err), err, before);
  sticky(kCall, device.id, status, err);
  if (out->struct_size != size) plugin_bug("sampler.describe: changed struct_size");
  out->struct_size = size;
  return status;
}

pn_status Validator::health(pn_device device, uint32_t* state, char reason[128], pn_error* err) {
  constexpr const char* kCall = "telemetry.health";
  pn_error before;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (state == nullptr || reason == nullptr) return refuse(kCall, "an argument is NULL", err);
  {
    Lock lock(mutex_);
    if (find(kCall, Kind::device, device.id) == nullptr) return PN_INVALID;
  }
  const pn_status status =
      answered(kCall, inner_telemetry.health(device, state, reason, err), err, before);
  sticky(kCall, device.id, status, err);
  if (status != PN_OK) return status;
  check_text(kCall, "reason", reason, 128);
  if (*state > PN_HEALTH_FAILING) plugin_bug("telemetry.health: state " + number(*state));
  if (*state != PN_HEALTH_OK && reason[0] == 0) plugin_bug("telemetry.health: no reason");
  return status;
}

pn_status Validator::rank(const pn_weight* weight, uint64_t target, uint32_t* count,
                          pn_layout_choice* out, pn_error* err) {
  constexpr const char* kCall = "layout.rank";
  pn_error before;
  pn_status status = PN_OK;
  if (!check_error(kCall, err, &before)) return PN_INVALID;
  if (!check_struct(kCall, "pn_weight", weight, sizeof(pn_weight), err, &status)) return status;
  if (count == nullptr) return refuse(kCall, "count is NULL", err);
  const uint32_t room = out == nullptr ? 0 : *count;
  const std::vector<uint32_t> sizes = sizes_of(out, room);
  status = answered(kCall, inner_layout.rank(weight, target, count, out, err), err, before,
                    {PN_INCOMPLETE});
  if (status < 0) return status;
  check_list(kCall, status, room, *count);
  for (uint32_t i = 0; i < std::min(room, *count); ++i) {
    auto* choice = PN_AT(pn_layout_choice, out, i);
    if (choice->struct_size != sizes[i]) plugin_bug("layout.rank: changed struct_size");
    choice->struct_size = sizes[i];
    check_text(kCall, "name", choice->name, sizeof choice->name);
    if (choice->tile_count == 0 || choice->tile_bytes == 0 || choice->loss > PN_LOSS_LOSSY) {
      plugin_bug(std::string("layout.rank: ") + choice->name + ": no tiles, or an unknown loss");
    }
  }
  return status;
}

void Validator::shutdown(uint64_t deadline_ns) {
  {
    Lock lock(mutex_);
    std::string leaks;
    for (Kind kind : {Kind::device, Kind::buffer, Kind::program, Kind::queue}) {
      if (books(kind).empty()) continue;
      leaks += (leaks.empty() ? "" : ", ") + number(books(kind).size()) + " " +
               kKindNames[static_cast<size_t>(kind)] + "(s), the first is " +
               number(books(kind).begin()->first);
    }
    if (!leaks.empty()) host_bug("shutdown: still alive: " + leaks);
  }
  inner_.shutdown(deadline_ns);
}

}  // namespace pn::hal
