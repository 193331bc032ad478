// SPDX-License-Identifier: Apache-2.0
//
// Path -> File: mapping, split sets.
//
// Owns the descriptors and mappings until the File does, and the rules of split sets. Knows nothing
// inside one image (parse.h). The one idea: the size is taken once from the open descriptor, so a
// file that is still being written is judged by the bytes that were there, and told to be growing.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/gguf/parse.h"

namespace pn::gguf {

class Reader {
 public:
  Result<std::shared_ptr<const File>> open(const std::string& path);

  // Parses IMAGE, which must outlive the File. For tests and fuzzing; no split sets.
  Result<std::shared_ptr<const File>> from_memory(std::span<const std::byte> image,
                                                  const std::string& name);

  // After a refusal: more bytes would help (a cut download, a missing shard).
  bool incomplete() const { return incomplete_; }

 private:
  Result<void> map(const std::string& path);
  Result<Parsed> read_last(const std::string& name);
  Result<void> add(Parsed parsed);
  Result<void> split_set(const std::string& path);
  Result<void> shard_keys(const Parsed& parsed, const std::string& path, uint64_t number);
  std::shared_ptr<const File> finish();

  std::shared_ptr<File> file_;
  bool incomplete_ = false;
  uint64_t split_count_ = 0;
};

}  // namespace pn::gguf
