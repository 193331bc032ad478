// SPDX-License-Identifier: Apache-2.0
//
// Offsets are handed out front to back; a new buffer begins where the largest one is full. Knows no
// use of a slice.
#include "engine/plan/pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace pn::engine {

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return multiple == 0 ? value : (value + multiple - 1) / multiple * multiple;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 1ull << 30) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= 1ull << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
}

size_t Pool::add(uint64_t bytes, uint32_t alignment) {
  uint64_t align = std::max<uint64_t>({alignment, info_.alignment, info_.copy_alignment, 1});
  uint64_t size = round_up(std::max<uint64_t>(bytes, 1), std::max(1u, info_.copy_alignment));
  uint64_t offset = sizes_.empty() ? 0 : round_up(sizes_.back(), align);
  if (sizes_.empty() || (info_.bytes_max != 0 && offset + size > info_.bytes_max)) {
    sizes_.push_back(0);
    offset = 0;
  }
  sizes_.back() = offset + size;
  items_.push_back({static_cast<uint32_t>(sizes_.size() - 1), offset, size});
  return items_.size() - 1;
}

uint64_t Pool::bytes() const {
  uint64_t sum = 0;
  for (uint64_t size : sizes_) sum += round_up(size, info_.granule);
  return sum;
}

Result<void> Pool::commit(const hal::Device& device) {
  for (uint64_t size : sizes_) {
    Result<hal::Buffer> buffer = device.create_buffer(heap_, round_up(size, info_.granule));
    if (!buffer) {
      buffers_.clear();
      return tl::make_unexpected(std::move(buffer).error());
    }
    buffers_.push_back(std::move(*buffer));
  }
  return {};
}

pn_slice Pool::slice(size_t item) const {
  const Item& i = items_[item];
  return buffers_[i.buffer].slice(i.offset, i.bytes);
}

std::byte* Pool::host(size_t item) const {
  const Item& i = items_[item];
  auto* base = static_cast<std::byte*>(buffers_[i.buffer].host());
  return base == nullptr ? nullptr : base + i.offset;
}

uint32_t find_heap(const hal::Device& device, uint32_t flags) {
  uint32_t heap = device.find_heap(PN_HEAP_DEVICE, flags);
  if (heap == PN_NONE) heap = device.find_heap(PN_HEAP_HOST_PINNED, flags);
  if (heap == PN_NONE) heap = device.find_heap(PN_HEAP_HOST_MAPPED, flags);
  return heap;
}

}  // namespace pn::engine
