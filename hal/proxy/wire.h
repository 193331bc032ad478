// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a control message: values one after the other, each padded to 8 bytes.
//
// Owns the encoding, for both ends. Knows the ABI structs as what they are: pinned, little-endian,
// without hidden padding, so their bytes are their encoding; a struct that grew past what this
// build knows is refused before it is written (R5). Reading never leaves the message: what is
// missing reads as zero and ok() says so.
#pragma once

#include <pantheon/hal.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pn::proxy {

class Writer {
 public:
  template <class T>
  void pod(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    raw(&value, sizeof value);
  }
  template <class T>
  void list(const T* items, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    pod<uint64_t>(count);
    raw(items, count * sizeof(T));
  }
  void text(std::string_view value) { list(value.data(), value.size()); }
  void raw(const void* at, size_t bytes);
  std::span<const std::byte> view() const { return data_; }

 private:
  std::vector<std::byte> data_;
};

class Reader {
 public:
  Reader() = default;
  explicit Reader(std::span<const std::byte> data) : data_(data) {}

  template <class T>
  T pod() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (const std::byte* at = take(sizeof value)) std::memcpy(&value, at, sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> list() {
    const auto count = pod<uint64_t>();
    if (count > data_.size() / sizeof(T)) ok_ = false;
    const std::byte* at = ok_ ? take(count * sizeof(T)) : nullptr;
    std::vector<T> items(at == nullptr ? 0 : count);
    if (!items.empty()) std::memcpy(items.data(), at, count * sizeof(T));
    return items;
  }
  std::string text();
  std::span<const std::byte> bytes();  // what list<std::byte> wrote, in place
  bool ok() const { return ok_; }

 private:
  const std::byte* take(size_t bytes);
  std::span<const std::byte> data_;
  size_t at_ = 0;
  bool ok_ = true;
};

// A growable input struct in this build's size; false: too short, or it says something newer.
template <class T>
bool known(const T* given, T* out) {
  return given != nullptr && pn_read(out, sizeof(T), given, sizeof(T)) != 0;
}
template <class T>
bool known(const T* given, uint32_t count, std::vector<T>* out) {
  out->resize(count);
  if (count == 0) return true;
  if (given == nullptr || given->struct_size < sizeof(T)) return false;
  for (uint32_t i = 0; i < count; ++i)
    if (!known(PN_AT_CONST(T, given, i), &(*out)[i])) return false;
  return true;
}

// nullptr, or the name of the struct that cannot be understood.
const char* write_plan(Writer& out, const pn_plan* plan);

// What a received plan points into.
struct PlanParts {
  pn_plan plan{};
  std::vector<pn_op> ops;
  std::vector<pn_slot> slots;
  std::vector<pn_weight> weights;
  std::vector<pn_cache> caches;
  std::vector<pn_shape> shapes;
  std::vector<std::unique_ptr<uint64_t[]>> params;
};
void read_plan(Reader& in, PlanParts* out);

pn_error no_error();
// Fills err when there is one. `text` is cut to the message's length.
pn_status set_error(pn_error* err, pn_status code, const std::string& text);

}  // namespace pn::proxy
