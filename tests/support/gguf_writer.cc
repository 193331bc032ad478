// SPDX-License-Identifier: Apache-2.0
//
// The writing side of the container.
//
// Owns the order of bytes in a file and the spread of tensors over a split set. Knows no
// architecture. Tensor data pass through one buffer of a few MiB.
#include "tests/support/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "models/gguf/file.h"

namespace pn::test {
namespace {

constexpr uint64_t kBuffer = uint64_t{4} << 20;

template <typename T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& to, const std::string& text) {
  put(to, uint64_t{text.size()});
  to += text;
}

template <typename T>
std::string scalar(T value) {
  std::string bytes;
  put(bytes, value);
  return bytes;
}

template <typename T>
std::string array(uint32_t type, const std::vector<T>& values) {
  std::string bytes;
  put(bytes, type);
  put(bytes, uint64_t{values.size()});
  for (const T& v : values) {
    if constexpr (std::is_same_v<T, std::string>)
      put_text(bytes, v);
    else
      put(bytes, v);
  }
  return bytes;
}

uint64_t padded(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

struct Row {
  uint64_t bytes = 0, count = 1;
};

Row row_of(const GgufWriter::Tensor& t) {
  const gguf::TypeInfo* info = gguf::type_info(t.type);
  if (info == nullptr || t.shape.empty()) return {4, 1};  // a broken file that a test asked for
  Row row;
  row.bytes = static_cast<uint64_t>(t.shape[0]) / info->block * info->block_bytes;
  for (size_t d = 1; d < t.shape.size(); ++d) row.count *= static_cast<uint64_t>(t.shape[d]);
  return row;
}

}  // namespace

uint64_t tensor_bytes(const GgufWriter::Tensor& tensor) {
  Row row = row_of(tensor);
  return row.bytes * row.count;
}

GgufWriter& GgufWriter::raw(const std::string& key, uint32_t type, std::string bytes) {
  auto at = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == key; });
  if (at == keys.end()) at = keys.insert(keys.end(), {key, type, {}});
  at->type = type;
  at->bytes = std::move(bytes);
  return *this;
}

GgufWriter& GgufWriter::u16(const std::string& key, uint16_t v) {
  return raw(key, kU16, scalar(v));
}
GgufWriter& GgufWriter::u32(const std::string& key, uint32_t v) {
  return raw(key, kU32, scalar(v));
}
GgufWriter& GgufWriter::i32(const std::string& key, int32_t v) { return raw(key, kI32, scalar(v)); }
GgufWriter& GgufWriter::f32(const std::string& key, float v) { return raw(key, kF32, scalar(v)); }

GgufWriter& GgufWriter::boolean(const std::string& key, bool v) {
  return raw(key, kBool, scalar(static_cast<uint8_t>(v)));
}

GgufWriter& GgufWriter::text(const std::string& key, const std::string& value) {
  std::string bytes;
  put_text(bytes, value);
  return raw(key, kString, std::move(bytes));
}

GgufWriter& GgufWriter::texts(const std::string& key, const std::vector<std::string>& values) {
  return raw(key, kArray, array(kString, values));
}

GgufWriter& GgufWriter::f32s(const std::string& key, const std::vector<float>& values) {
  return raw(key, kArray, array(kF32, values));
}

GgufWriter& GgufWriter::i32s(const std::string& key, const std::vector<int32_t>& values) {
  return raw(key, kArray, array(kI32, values));
}

GgufWriter& GgufWriter::erase(const std::string& key) {
  std::erase_if(keys, [&](const Key& k) { return k.name == key; });
  return *this;
}

GgufWriter& GgufWriter::tensor(const std::string& name, uint32_t type, std::vector<int64_t> shape,
                               Rows rows) {
  tensors.push_back({name, type, std::move(shape), std::move(rows)});
  return *this;
}

GgufWriter& GgufWriter::values(const std::string& name, std::vector<int64_t> shape,
                               std::vector<float> numbers) {
  auto width = static_cast<uint64_t>(shape[0]);
  return tensor(
      name, 0, std::move(shape),
      [width, numbers = std::move(numbers)](uint64_t first, uint64_t count, std::byte* out) {
        std::memcpy(out, numbers.data() + first * width, count * width * sizeof(float));
      });
}

GgufWriter::Tensor& GgufWriter::find(const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const Tensor& t) { return t.name == name; });
}

GgufWriter& GgufWriter::erase_tensor(const std::string& name) {
  std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  return *this;
}

Result<void> GgufWriter::emit(const Sink& sink) const {
  std::vector<Key> all = keys;
  if (alignment != 32) all.push_back({"general.alignment", kU32, scalar(alignment)});
  std::string head = "GGUF";
  put(head, version);
  put(head, uint64_t{tensors.size()});
  put(head, uint64_t{all.size()});
  for (const Key& k : all) {
    put_text(head, k.name);
    put(head, k.type);
    head += k.bytes;
  }
  uint64_t offset = 0;
  for (const Tensor& t : tensors) {
    put_text(head, t.name);
    put(head, static_cast<uint32_t>(t.shape.size()));
    for (int64_t n : t.shape) put(head, n);
    put(head, t.type);
    put(head, offset);
    offset += padded(tensor_bytes(t), alignment);
  }
  if (!tensors.empty()) head.resize(padded(head.size(), alignment), '\0');
  PN_TRY(sink(std::as_bytes(std::span(head))));
  std::vector<std::byte> buffer;
  for (const Tensor& t : tensors) {
    Row row = row_of(t);
    uint64_t step = row.bytes == 0 ? row.count : std::max<uint64_t>(1, kBuffer / row.bytes);
    for (uint64_t at = 0; at < row.count; at += step) {
      uint64_t count = std::min(step, row.count - at);
      buffer.assign(count * row.bytes, std::byte{0});
      if (t.rows) t.rows(at, count, buffer.data());
      PN_TRY(sink(buffer));
    }
    buffer.assign(padded(tensor_bytes(t), alignment) - tensor_bytes(t), std::byte{0});
    PN_TRY(sink(buffer));
  }
  return {};
}

std::vector<std::byte> GgufWriter::image() const {
  std::vector<std::byte> out;
  auto done = emit([&](std::span<const std::byte> piece) -> Result<void> {
    out.insert(out.end(), piece.begin(), piece.end());
    return {};
  });
  return done ? out : std::vector<std::byte>{};
}

Result<void> GgufWriter::write(const std::string& path) const {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (!file)
    return fail(Code::failed, fmt::format("{}: cannot create: {}", path, std::strerror(errno)));
  std::setvbuf(file.get(), nullptr, _IONBF, 0);  // pieces are large already
  PN_TRY(emit([&](std::span<const std::byte> piece) -> Result<void> {
    if (std::fwrite(piece.data(), 1, piece.size(), file.get()) == piece.size()) return {};
    return fail(Code::failed, fmt::format("{}: cannot write: {}", path, std::strerror(errno)));
  }));
  if (std::fclose(file.release()) != 0)
    return fail(Code::failed, fmt::format("{}: cannot close: {}", path, std::strerror(errno)));
  return {};
}

Result<std::vector<std::string>> GgufWriter::write_split(const std::string& prefix, uint32_t parts,
                                                         bool empty_first) const {
  uint64_t total = 0, placed = 0;
  for (const Tensor& t : tensors) total += tensor_bytes(t);
  std::vector<GgufWriter> part(parts);
  part[0].keys = keys;
  uint32_t first = empty_first ? 1 : 0;
  for (const Tensor& t : tensors) {
    uint64_t n = first + placed * (parts - first) / std::max<uint64_t>(total, 1);
    part[n].tensors.push_back(t);
    placed += tensor_bytes(t);
  }
  std::vector<std::string> paths;
  for (uint32_t n = 0; n < parts; ++n) {
    part[n].alignment = alignment;
    part[n].version = version;
    part[n].u16("split.no", static_cast<uint16_t>(n));
    part[n].u16("split.count", static_cast<uint16_t>(parts));
    part[n].i32("split.tensors.count", static_cast<int32_t>(tensors.size()));
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", prefix, n + 1, parts));
    PN_TRY(part[n].write(paths.back()));
  }
  return paths;
}

}  // namespace pn::test
