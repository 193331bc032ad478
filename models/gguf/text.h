// SPDX-License-Identifier: Apache-2.0
//
// Words for messages about files.
//
// Owns how names out of a file and byte counts are printed. Knows no format. The one idea: bytes
// that a file chose never reach a terminal or a log unescaped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pn::gguf {

// 'name', everything but printable ASCII escaped, cut after 80 characters.
std::string quoted(std::string_view name);

// "1234 bytes (1.2 KiB)".
std::string byte_count(uint64_t bytes);

}  // namespace pn::gguf
