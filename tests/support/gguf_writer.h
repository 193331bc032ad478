// SPDX-License-Identifier: Apache-2.0
//
// Writes GGUF files, good ones and bad ones.
//
// Owns the container's byte layout on the writing side. Knows no architecture (random_model.h
// does). The one idea: keys and tensors are public lists, so a test can break exactly one thing;
// tensor data are produced row by row while writing, so a file may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hal/host/result.h"

namespace pn::test {

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

class GgufWriter {
 public:
  // Fills `out` with rows [first, first + count) of the tensor, row after row.
  using Rows = std::function<void(uint64_t first, uint64_t count, std::byte* out)>;

  struct Key {
    std::string name;
    uint32_t type = kU32;
    std::string bytes;  // the value as the file holds it
  };
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<int64_t> shape;  // shape[0] contiguous
    Rows rows;                   // absent: zeros
  };

  uint32_t version = 3;
  uint32_t alignment = 32;  // a key is written when it is not 32
  std::vector<Key> keys;
  std::vector<Tensor> tensors;

  // Sets or replaces a key.
  GgufWriter& raw(const std::string& key, uint32_t type, std::string bytes);
  GgufWriter& u16(const std::string& key, uint16_t value);
  GgufWriter& u32(const std::string& key, uint32_t value);
  GgufWriter& i32(const std::string& key, int32_t value);
  GgufWriter& f32(const std::string& key, float value);
  GgufWriter& boolean(const std::string& key, bool value);
  GgufWriter& text(const std::string& key, const std::string& value);
  GgufWriter& texts(const std::string& key, const std::vector<std::string>& values);
  GgufWriter& f32s(const std::string& key, const std::vector<float>& values);
  GgufWriter& i32s(const std::string& key, const std::vector<int32_t>& values);
  GgufWriter& erase(const std::string& key);

  GgufWriter& tensor(const std::string& name, uint32_t type, std::vector<int64_t> shape,
                     Rows rows = {});
  GgufWriter& values(const std::string& name, std::vector<int64_t> shape,
                     std::vector<float> numbers);  // F32
  Tensor& find(const std::string& name);           // must exist
  GgufWriter& erase_tensor(const std::string& name);

  std::vector<std::byte> image() const;
  Result<void> write(const std::string& path) const;

  // PREFIX-00001-of-0000N.gguf ...: gives the paths, the first to open. Tensors are spread evenly
  // by bytes; with `empty_first` the first part holds the metadata alone.
  Result<std::vector<std::string>> write_split(const std::string& prefix, uint32_t parts,
                                               bool empty_first = false) const;

 private:
  using Sink = std::function<Result<void>(std::span<const std::byte>)>;
  Result<void> emit(const Sink& sink) const;
};

uint64_t tensor_bytes(const GgufWriter::Tensor& tensor);

}  // namespace pn::test
