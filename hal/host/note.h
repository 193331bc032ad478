// SPDX-License-Identifier: Apache-2.0
//
// The identity of a plugin file, read without running any of its code.
//
// Owns the ELF parsing and the meaning of the note's keys (<pantheon/note.h>). Knows no folders and
// loads nothing. The one idea: the file is hostile until proven otherwise, so every offset is
// checked against the file's size before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hal/host/result.h"

namespace pn::hal {

struct PciId {
  uint16_t vendor = 0;
  uint16_t device = 0;
};

struct Note {
  std::string kind;  // "hal"
  std::string name;  // [a-z0-9_]+
  std::vector<std::string> aliases;
  uint32_t abi_major = 0;  // serves hosts of this major, minors minor_min..minor_max
  uint32_t minor_min = 0;
  uint32_t minor_max = 0;
  std::string version;
  std::string vendor;
  std::vector<PciId> pci;
  bool only_when_named = false;  // never taken because it happens to be installed
  std::string sanitizer = "none";
  std::string language;
  std::string compiler;
  std::string build_id;  // hex of NT_GNU_BUILD_ID; a hash of the file when the linker made none

  bool answers_to(const std::string& name_or_alias) const;
};

// Errors name the file, what was expected, what was found and what to do.
Result<Note> read_note(const std::string& path);

// The descriptor's text alone; `where` begins the messages.
Result<Note> parse_note(const std::string& text, const std::string& where);

// What this host is: "0.2", and "none", "address", "thread" or "memory".
std::string host_abi();
const char* host_sanitizer();

// Can this process load it? The reason names both sides.
Result<void> check_compatible(const Note& note, const std::string& path);

}  // namespace pn::hal
