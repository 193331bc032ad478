// SPDX-License-Identifier: Apache-2.0
//
// Weights of a plugin that loads them itself (pantheon.load/1): the file's descriptors go over,
// then ranges of tiles.
//
// Owns the plugin's view of the file's shards, until destroyed. Used by several threads at once.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/plan/convert.h"
#include "hal/host/load.h"

namespace pn::engine {

class RemoteLoad {
 public:
  static Result<RemoteLoad> open(const pn_load_api& api, const hal::Device& device,
                                 const gguf::File& file);
  RemoteLoad(RemoteLoad&& other) noexcept
      : api_(other.api_), device_(other.device_), sources_(std::move(other.sources_)) {
    other.sources_.clear();
  }
  RemoteLoad& operator=(RemoteLoad&&) = delete;
  ~RemoteLoad();

  // Blocks until the tiles are in place. layout: nullptr for a plain copy.
  Result<void> place(const Transfer& transfer, uint64_t first, uint64_t count,
                     const hal::Layout* layout) const;

 private:
  RemoteLoad(const pn_load_api& api, pn_device device) : api_(&api), device_(device) {}
  const pn_load_api* api_;
  pn_device device_;
  std::vector<uint64_t> sources_;  // one a shard
};

}  // namespace pn::engine
