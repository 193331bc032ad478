// SPDX-License-Identifier: Apache-2.0
//
// Lookups and typed reads of an open model.
//
// Owns the release of mappings. Knows no key by name. The one idea: a typed read either gives the
// number that the file holds or names the key and what stands there instead.
#include "models/gguf/file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "models/gguf/index.h"
#include "models/gguf/reader.h"
#include "models/gguf/text.h"

namespace pn::gguf {
namespace {

std::string shown(const Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("the number {}", *i);
  if (const auto* u = std::get_if<uint64_t>(&value)) return fmt::format("the number {}", *u);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("the number {}", *d);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&value)) return "the text " + quoted(*s);
  return "an array";
}

tl::unexpected<Error> wrong(const File& file, std::string_view key, const char* wanted,
                            const Value& found) {
  return fail(Code::invalid,
              fmt::format("{}: key {} must be {} and is {}", file.shards()[0].path, quoted(key),
                          wanted, shown(found)),
              std::string(key));
}

}  // namespace

Result<std::shared_ptr<const File>> File::open(const std::string& path) {
  return Reader().open(path);
}

File::~File() {
  for (const Shard& shard : shards_) {
    if (shard.fd < 0) continue;  // memory of the caller
    if (shard.map != nullptr) ::munmap(const_cast<std::byte*>(shard.map), shard.bytes);
    ::close(shard.fd);
  }
}

const Value* File::find(std::string_view key) const {
  auto at = index_->keys.find(key);
  return at == index_->keys.end() ? nullptr : &metadata_[at->second].second;
}

const Tensor* File::tensor(std::string_view name) const {
  auto at = index_->tensors.find(name);
  return at == index_->tensors.end() ? nullptr : &tensors_[at->second];
}

Result<uint32_t> File::u32(std::string_view key, uint32_t fallback) const {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  if (const auto* u = std::get_if<uint64_t>(value); u && *u <= kMax)
    return static_cast<uint32_t>(*u);
  if (const auto* i = std::get_if<int64_t>(value); i && *i >= 0 && *i <= int64_t{kMax})
    return static_cast<uint32_t>(*i);
  return wrong(*this, key, "a whole number from 0 to 4294967295", *value);
}

Result<uint32_t> File::require_u32(std::string_view key) const {
  if (find(key) == nullptr)
    return fail(Code::invalid,
                fmt::format("{}: the key {} is missing: convert the model again with a current "
                            "converter",
                            shards_[0].path, quoted(key)),
                std::string(key));
  return u32(key, 0);
}

Result<float> File::f32(std::string_view key, float fallback) const {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  const auto* number = std::get_if<double>(value);
  if (number == nullptr || !std::isfinite(static_cast<float>(*number)))
    return wrong(*this, key, "a finite floating-point number", *value);
  return static_cast<float>(*number);
}

Result<bool> File::boolean(std::string_view key, bool fallback) const {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  const auto* b = std::get_if<bool>(value);
  if (b == nullptr) return wrong(*this, key, "true or false", *value);
  return *b;
}

Result<std::string> File::text(std::string_view key, std::string_view fallback) const {
  const Value* value = find(key);
  if (value == nullptr) return std::string(fallback);
  const auto* s = std::get_if<std::string>(value);
  if (s == nullptr) return wrong(*this, key, "a text", *value);
  return *s;
}

void File::drop_pages(const Tensor& tensor) const {
  const Shard& shard = shards_[tensor.shard];
  if (shard.fd < 0) return;
  // Whole pages only: the pages at the ends are shared with the neighbours.
  auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  uint64_t first = (tensor.offset + page - 1) / page * page;
  uint64_t last = (tensor.offset + tensor.bytes) / page * page;
  if (first < last)
    ::madvise(const_cast<std::byte*>(shard.map) + first, last - first, MADV_DONTNEED);
}

}  // namespace pn::gguf
