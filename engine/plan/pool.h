// SPDX-License-Identifier: Apache-2.0
//
// Many slices of one heap out of few buffers.
//
// Owns the buffers. Knows alignments and granules, not what a slice is for. The one idea: sizes are
// added first, and what the pool will take is known before anything is bought.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hal/host/hal.h"
#include "hal/host/result.h"

namespace pn::engine {

class Pool {
 public:
  Pool(const pn_heap_info& info, uint32_t heap) : info_(info), heap_(heap) {}

  // Returns the number of the slice. alignment 0: the heap's own.
  size_t add(uint64_t bytes, uint32_t alignment = 0);
  uint64_t bytes() const;  // of the buffers, whole granules
  bool empty() const { return items_.empty(); }
  bool host_visible() const { return (info_.flags & PN_HEAP_HOST_VISIBLE) != 0; }

  // Buys the buffers. A refusal leaves nothing behind.
  Result<void> commit(const hal::Device& device);

  // After commit().
  pn_slice slice(size_t item) const;
  std::byte* host(size_t item) const;  // nullptr when the heap is not host visible

 private:
  struct Item {
    uint32_t buffer;
    uint64_t offset;
    uint64_t bytes;
  };
  pn_heap_info info_;
  uint32_t heap_;
  std::vector<Item> items_;
  std::vector<uint64_t> sizes_;  // of the buffers to be
  std::vector<hal::Buffer> buffers_;
};

// The number of the first heap with these flags, DEVICE kind preferred; PN_NONE when none has them.
uint32_t find_heap(const hal::Device& device, uint32_t flags);

uint64_t round_up(uint64_t value, uint64_t multiple);
std::string bytes_text(uint64_t bytes);  // "1.5 GiB"

}  // namespace pn::engine
