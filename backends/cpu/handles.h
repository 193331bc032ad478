// SPDX-License-Identifier: Apache-2.0
//
// Integer handles for objects that other threads look up without a lock.
//
// Owns the objects. A handle is kind, generation and slot in one integer, so a stale or foreign one
// is told apart from a live one; lookups on the serving path are one load and one compare. Adding
// and removing take a mutex: they happen on control threads only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace pn::cpu {

template <typename T, uint8_t kKind, uint32_t kSlots>
class HandleTable {
 public:
  ~HandleTable() { clear(); }

  // 0 when every slot is taken.
  uint64_t add(std::unique_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (uint32_t n = 0; n < kSlots; ++n) {
      const uint32_t index = (next_ + n) % kSlots;
      Slot& slot = slots_[index];
      if (slot.id.load(std::memory_order_relaxed) != 0) continue;
      next_ = index + 1;
      const uint64_t id = uint64_t{kKind} << 56 | (++generation_ & 0xffffffff) << 24 | (index + 1);
      slot.object = object.release();
      slot.id.store(id, std::memory_order_release);
      return id;
    }
    return 0;
  }

  // nullptr when the handle names nothing alive. Any thread.
  T* find(uint64_t id) const {
    const uint64_t index = (id & 0xffffff) - 1;
    if (index >= kSlots) return nullptr;
    const Slot& slot = slots_[index];
    return slot.id.load(std::memory_order_acquire) == id ? slot.object : nullptr;
  }

  std::unique_ptr<T> remove(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    T* object = find(id);
    if (object == nullptr) return nullptr;
    slots_[(id & 0xffffff) - 1].id.store(0, std::memory_order_release);
    return std::unique_ptr<T>(object);
  }

  template <typename Visit>
  void each(Visit&& visit) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Slot& slot : slots_)
      if (slot.id.load(std::memory_order_relaxed) != 0) visit(*slot.object);
  }

  void clear() {
    for (Slot& slot : slots_)
      if (slot.id.exchange(0) != 0) delete slot.object;
  }

 private:
  struct Slot {
    std::atomic<uint64_t> id{0};
    T* object = nullptr;
  };
  std::mutex mutex_;
  uint32_t next_ = 0;
  uint64_t generation_ = 0;
  Slot slots_[kSlots];
};

}  // namespace pn::cpu
