// SPDX-License-Identifier: Apache-2.0
//
// A reading position in a byte image that cannot leave it.
//
// Owns the bounds check of every read. Knows nothing of what is read. The one idea: a read that
// does not fit changes nothing and says so; loads are by memcpy, so no alignment is assumed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace pn::gguf {

class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> image) : image_(image) {}

  uint64_t position() const { return at_; }
  uint64_t left() const { return image_.size() - at_; }

  template <typename T>
  [[nodiscard]] bool read(T* out) {
    if (left() < sizeof(T)) return false;
    std::memcpy(out, image_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  // A view into the image.
  [[nodiscard]] bool bytes(uint64_t count, std::string_view* out) {
    if (left() < count) return false;
    *out = {reinterpret_cast<const char*>(image_.data()) + at_, static_cast<size_t>(count)};
    at_ += count;
    return true;
  }

 private:
  std::span<const std::byte> image_;
  uint64_t at_ = 0;
};

}  // namespace pn::gguf
