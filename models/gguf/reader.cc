// SPDX-License-Identifier: Apache-2.0
//
// Opens, maps and joins GGUF files.
//
// Owns system calls and split sets. Knows nothing inside one image. The one idea: a set is opened
// by its first part, every other part is found by name and checked against the set before any use.
#include "models/gguf/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "models/gguf/index.h"
#include "models/gguf/text.h"

namespace pn::gguf {
namespace {

// Integers of any width; nullptr and other types give `fallback`.
int64_t whole(const Value* value, int64_t fallback) {
  if (value == nullptr) return fallback;
  if (const auto* u = std::get_if<uint64_t>(value)) return static_cast<int64_t>(*u);
  if (const auto* i = std::get_if<int64_t>(value)) return *i;
  return fallback;
}

int64_t whole(const Parsed& parsed, std::string_view key, int64_t fallback) {
  for (const auto& [name, value] : parsed.metadata)
    if (name == key) return whole(&value, fallback);
  return fallback;
}

// "-00001-of-00003.gguf" for part 0 of 3.
std::string suffix(uint64_t number, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

}  // namespace

Result<std::shared_ptr<const File>> Reader::open(const std::string& path) {
  file_ = std::shared_ptr<File>(new File());
  PN_TRY(map(path));
  PN_TRY(Parsed parsed, read_last(path));
  int64_t count = whole(parsed, "split.count", 1);
  if (count > 1) {
    split_count_ = static_cast<uint64_t>(count);
    PN_TRY(shard_keys(parsed, path, 0));
  }
  file_->version_ = parsed.version;
  file_->metadata_ = std::move(parsed.metadata);
  PN_TRY(add(std::move(parsed)));
  if (count > 1) PN_TRY(split_set(path));
  return finish();
}

Result<std::shared_ptr<const File>> Reader::from_memory(std::span<const std::byte> image,
                                                        const std::string& name) {
  file_ = std::shared_ptr<File>(new File());
  file_->shards_.push_back({name, -1, image.data(), image.size()});
  PN_TRY(Parsed parsed, parse(image, name, &incomplete_));
  if (whole(parsed, "split.count", 1) > 1)
    return fail(Code::unsupported, name + ": a part of a split set cannot be opened from memory");
  file_->version_ = parsed.version;
  file_->metadata_ = std::move(parsed.metadata);
  PN_TRY(add(std::move(parsed)));
  return finish();
}

Result<void> Reader::map(const std::string& path) {
  // O_NONBLOCK: a FIFO must be refused, not waited for.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    Code code = errno == ENOENT || errno == ENOTDIR ? Code::not_found : Code::failed;
    return fail(code, fmt::format("{}: cannot open the model: {}", path, std::strerror(errno)));
  }
  file_->shards_.push_back({path, fd, nullptr, 0});  // ~File closes it from here on
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return fail(Code::failed, fmt::format("{}: fstat: {}", path, std::strerror(errno)));
  if (S_ISDIR(info.st_mode))
    return fail(Code::invalid, path + ": is a folder: name the .gguf file in it");
  if (!S_ISREG(info.st_mode))
    return fail(Code::invalid, path + ": is no regular file and cannot be mapped: copy it to one");
  Shard& shard = file_->shards_.back();
  shard.bytes = static_cast<uint64_t>(info.st_size);
  if (shard.bytes == 0) return {};  // nothing to map; parse() says that it is empty
  void* at = ::mmap(nullptr, shard.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED)
    return fail(Code::failed, fmt::format("{}: mapping {}: {}", path, byte_count(shard.bytes),
                                          std::strerror(errno)));
  shard.map = static_cast<const std::byte*>(at);
  return {};
}

Result<Parsed> Reader::read_last(const std::string& name) {
  const Shard& shard = file_->shards_.back();
  auto parsed = parse({shard.map, static_cast<size_t>(shard.bytes)}, name, &incomplete_);
  struct stat now {};
  if (!parsed && incomplete_ && ::fstat(shard.fd, &now) == 0 &&
      static_cast<uint64_t>(now.st_size) > shard.bytes) {
    Error error = std::move(parsed).error();
    error.code = Code::busy;
    error.message += fmt::format(" (it is growing, {} by now: wait for the writer to end)",
                                 byte_count(static_cast<uint64_t>(now.st_size)));
    return tl::make_unexpected(std::move(error));
  }
  return parsed;
}

Result<void> Reader::add(Parsed parsed) {
  auto shard = static_cast<uint32_t>(file_->shards_.size() - 1);
  for (Tensor& tensor : parsed.tensors) {
    tensor.shard = shard;
    file_->tensors_.push_back(std::move(tensor));
  }
  for (std::string& text : parsed.warnings) file_->warnings_.push_back(std::move(text));
  return {};
}

Result<void> Reader::shard_keys(const Parsed& parsed, const std::string& path, uint64_t number) {
  int64_t no = whole(parsed, "split.no", -1), count = whole(parsed, "split.count", -1);
  if (no < 0)
    return fail(Code::invalid, path + ": is a part of a split set without the key 'split.no'",
                "split.no");
  if (count != static_cast<int64_t>(split_count_))
    return fail(Code::invalid,
                fmt::format("{}: belongs to a set of {} parts, the first part says {}: it is of "
                            "another set, download it again",
                            path, count, split_count_),
                "split.count");
  if (no == static_cast<int64_t>(number)) return {};
  if (number == 0)
    return fail(Code::invalid,
                fmt::format("{}: is part {} of {}: open the first part, whose name ends in {}",
                            path, no + 1, count, suffix(0, split_count_)),
                "split.no");
  return fail(Code::invalid,
              fmt::format("{}: says that it is part {}, but stands for part {}: rename or download "
                          "it again",
                          path, no + 1, number + 1),
              "split.no");
}

Result<void> Reader::split_set(const std::string& path) {
  std::string first = suffix(0, split_count_);
  if (!std::string_view(path).ends_with(first))
    return fail(Code::invalid,
                fmt::format("{}: is part 1 of {}, so its name must end in {} for the others to be "
                            "found: rename the parts",
                            path, split_count_, first),
                "split.count");
  std::string prefix = path.substr(0, path.size() - first.size());
  std::unordered_set<std::string> names;
  for (const Tensor& t : file_->tensors_) names.insert(t.name);
  for (uint64_t n = 1; n < split_count_; ++n) {
    std::string part = prefix + suffix(n, split_count_);
    if (auto mapped = map(part); !mapped) {
      Error error = std::move(mapped).error();
      incomplete_ = error.code == Code::not_found;
      if (incomplete_)
        error.message =
            fmt::format("{}: part {} of {} is missing ({}): download it beside the first", path,
                        n + 1, split_count_, part);
      return tl::make_unexpected(std::move(error));
    }
    PN_TRY(Parsed parsed, read_last(part));
    PN_TRY(shard_keys(parsed, part, n));
    for (const Tensor& t : parsed.tensors)
      if (!names.insert(t.name).second)
        return fail(Code::invalid,
                    fmt::format("{}: tensor {} is also in an earlier part of the set", part,
                                quoted(t.name)),
                    t.name);
    PN_TRY(add(std::move(parsed)));
  }
  int64_t total = -1;
  for (const auto& [name, value] : file_->metadata_)
    if (name == "split.tensors.count") total = whole(&value, -1);
  if (total >= 0 && total != static_cast<int64_t>(file_->tensors_.size()))
    return fail(Code::invalid,
                fmt::format("{}: the set should hold {} tensors and holds {}: its parts are not of "
                            "one conversion, download them again",
                            path, total, file_->tensors_.size()),
                "split.tensors.count");
  return {};
}

std::shared_ptr<const File> Reader::finish() {
  file_->index_ = std::make_unique<File::Index>();
  for (uint32_t i = 0; i < file_->metadata_.size(); ++i)
    file_->index_->keys.emplace(file_->metadata_[i].first, i);
  for (uint32_t i = 0; i < file_->tensors_.size(); ++i)
    file_->index_->tensors.emplace(file_->tensors_[i].name, i);
  return std::move(file_);
}

}  // namespace pn::gguf
