// SPDX-License-Identifier: Apache-2.0
//
// Words for messages about files.
//
// Owns escaping and units. Knows no format.
#include "models/gguf/text.h"

#include <fmt/format.h>

namespace pn::gguf {

std::string quoted(std::string_view name) {
  constexpr size_t kShown = 80;
  std::string text = "'";
  for (char c : name.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f)
      text += c;
    else
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text + (name.size() > kShown ? "...'" : "'");
}

std::string byte_count(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  const char* unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t u = 0;
  for (; value >= 1024 && u < 5; ++u) value /= 1024;
  return fmt::format("{} bytes ({:.1f} {})", bytes, value, unit[u]);
}

}  // namespace pn::gguf
