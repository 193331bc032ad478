// SPDX-License-Identifier: Apache-2.0
//
// A GGUF model on disk, mapped: metadata and tensor directory, one file or a split set.
//
// Owns the mappings and the parsed directory. Knows nothing of architectures or devices. The one
// idea: everything is checked once, while opening and before anything is allocated from counts that
// the file names; afterwards every tensor is a plain in-bounds byte range.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hal/host/result.h"

namespace pn::gguf {

// One metadata value. Integers are widened; arrays are homogeneous and never nested.
using Array = std::variant<std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>,
                           std::vector<std::string>>;
using Value = std::variant<int64_t, uint64_t, double, bool, std::string, Array>;

struct Tensor {
  std::string name;
  uint32_t type = 0;                         // GGUF type number
  uint32_t rank = 0;                         // dimensions named in the file
  std::array<int64_t, 4> shape{1, 1, 1, 1};  // shape[0] contiguous, the input side
  uint32_t shard = 0;                        // which file of a split set
  uint64_t offset = 0;                       // of the first byte in that file
  uint64_t bytes = 0;
  const std::byte* data = nullptr;  // in the mapping; lives as long as the File
};

struct Shard {
  std::string path;
  int fd = -1;  // open for reading as long as the File lives
  const std::byte* map = nullptr;
  uint64_t bytes = 0;
};

class File {
 public:
  // Opens PATH, and all shards when it is the first of a split set. Refuses what table 1.2 of the
  // format notes lists, each by name, before any allocation that a count in the file sizes.
  static Result<std::shared_ptr<const File>> open(const std::string& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const Value* find(std::string_view key) const;  // nullptr when absent
  const Tensor* tensor(std::string_view name) const;
  const std::vector<std::pair<std::string, Value>>& metadata() const { return metadata_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Shard>& shards() const { return shards_; }
  uint32_t version() const { return version_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Typed reads: absent -> fallback (or an error naming the key for require_*); a wrong type, a
  // negative or a too large number is an error that names the key and what was found.
  Result<uint32_t> u32(std::string_view key, uint32_t fallback) const;
  Result<uint32_t> require_u32(std::string_view key) const;
  Result<float> f32(std::string_view key, float fallback) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key, std::string_view fallback) const;

  // Tells the kernel that a tensor's pages are no longer needed (after conversion).
  void drop_pages(const Tensor& tensor) const;

 private:
  File() = default;
  friend class Reader;
  uint32_t version_ = 0;
  std::vector<std::pair<std::string, Value>> metadata_;
  std::vector<Tensor> tensors_;
  std::vector<Shard> shards_;
  std::vector<std::string> warnings_;
  struct Index;
  std::unique_ptr<Index> index_;
};

// The types that exist: name, elements and bytes a block. nullptr: unknown or removed.
struct TypeInfo {
  const char* name;
  uint32_t block;
  uint32_t block_bytes;
};
const TypeInfo* type_info(uint32_t type);

// Why type_info() is nullptr: `retired` numbers had a meaning once and never will again, `unknown`
// ones belong to a newer format or to a fork.
enum class TypeState { known, retired, unknown };
TypeState type_state(uint32_t type);

}  // namespace pn::gguf
