// SPDX-License-Identifier: Apache-2.0
//
// What the dynamic section and the symbols of a library say.
//
// Owns the reading of ELF64 little-endian files, every offset checked. Knows no rule: cases judge.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hal/host/result.h"

namespace pn::check {

struct ElfFacts {
  std::vector<std::string> exports;     // defined, global or weak, in the dynamic symbol table
  std::vector<std::string> gnu_unique;  // of those, bound STB_GNU_UNIQUE
  std::vector<std::string> needed;      // DT_NEEDED
  std::vector<std::string> run_paths;   // DT_RPATH and DT_RUNPATH
  bool text_relocations = false;        // DT_TEXTREL, or the flag
};

Result<ElfFacts> read_elf(const std::string& path);
// The same from bytes, for tests; `where` begins the messages.
Result<ElfFacts> parse_elf(const std::string& bytes, const std::string& where);

}  // namespace pn::check
