// SPDX-License-Identifier: Apache-2.0
//
// See remote_load.h.
#include "engine/plan/remote_load.h"

#include "engine/plan/layouts.h"

namespace pn::engine {

Result<RemoteLoad> RemoteLoad::open(const pn_load_api& api, const hal::Device& device,
                                    const gguf::File& file) {
  RemoteLoad load(api, device.handle());
  for (const gguf::Shard& shard : file.shards()) {
    pn_error err{};
    err.struct_size = sizeof err;
    uint64_t source = 0;
    const pn_status status = api.open(shard.fd, shard.bytes, &source, &err);
    if (status != PN_OK)
      return tl::make_unexpected(hal::to_error(device.id() + ": " + shard.path, status, err));
    load.sources_.push_back(source);
  }
  return load;
}

RemoteLoad::~RemoteLoad() {
  for (const uint64_t source : sources_) api_->close(source);
}

Result<void> RemoteLoad::place(const Transfer& t, uint64_t first, uint64_t count,
                               const hal::Layout* layout) const {
  const gguf::Tensor* tensor = t.source->tensor;
  pn_load_piece piece{};
  piece.struct_size = sizeof piece;
  piece.weight = t.weight;
  piece.target = layout != nullptr ? layout->target() : 0;
  piece.layout = t.choice.layout;
  piece.first = first;
  piece.count = count;
  piece.tile_count = t.choice.tile_count;
  piece.tile_bytes = t.choice.tile_bytes;
  piece.source = tensor != nullptr ? sources_[tensor->shard] : 0;
  piece.offset = tensor != nullptr ? tensor->offset : 0;
  piece.bytes = source_size(*t.source);
  piece.computed = tensor != nullptr ? nullptr : source_bytes(*t.source);
  piece.plain = layout == nullptr ? 1 : 0;
  const uint64_t bytes = count * t.choice.tile_bytes;
  piece.to = {t.target.buffer, t.target.offset + first * t.choice.tile_bytes, bytes};
  pn_error err{};
  err.struct_size = sizeof err;
  const pn_status status = api_->place(device_, &piece, &err);
  if (status == PN_OK) return {};
  Error error = hal::to_error("tensor " + t.source->name, status, err);
  error.param = t.source->name;
  return tl::make_unexpected(std::move(error));
}

}  // namespace pn::engine
