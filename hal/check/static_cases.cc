// SPDX-License-Identifier: Apache-2.0
//
// Group static: what the file says before any of its code runs.
#include <array>
#include <string_view>

#include "hal/check/bench.h"
#include "hal/check/elf_facts.h"
#include "hal/host/note.h"

namespace pn::check {

namespace {

Result<void> note(Bench& bench) {
  PN_TRY(const hal::Note note, hal::read_note(bench.setup().file));
  bench.expect(note.kind == "hal", "kind is {}, wanted hal", note.kind);
  PN_TRY(hal::check_compatible(note, bench.setup().file));
  bench.expect(!note.version.empty(), "the note has no version");
  bench.expect(!note.vendor.empty(), "the note has no vendor");
  bench.note("name " + note.name + ", build " + note.build_id);
  return {};
}

Result<void> exports(Bench& bench) {
  PN_TRY(const ElfFacts facts, read_elf(bench.setup().file));
  bool entry = false;
  for (const std::string& name : facts.exports) {
    entry = entry || name == PN_PLUGIN_ENTRY_1;
    bench.expect(name == PN_PLUGIN_ENTRY_1, "exports {}: link with the map of the plugin kit",
                 name);
  }
  bench.expect(entry, "does not export {}", PN_PLUGIN_ENTRY_1);
  return {};
}

// The runtimes of C and C++, and of the sanitizers. A driver is opened, so that the plugin can say
// that it is missing.
Result<void> needed(Bench& bench) {
  constexpr std::array<std::string_view, 14> kRuntimes = {
      "libc.so",      "libm.so",      "libdl.so",     "libpthread.so", "librt.so",
      "ld-linux",     "libgcc_s.so",  "libstdc++.so", "libc++.so",     "libc++abi.so",
      "libunwind.so", "libatomic.so", "libasan.so",   "libtsan.so"};
  PN_TRY(const ElfFacts facts, read_elf(bench.setup().file));
  for (const std::string& name : facts.needed) {
    bool known = name.rfind("libubsan.so", 0) == 0 || name.rfind("libgomp.so", 0) == 0;
    for (const std::string_view runtime : kRuntimes) known = known || name.rfind(runtime, 0) == 0;
    bench.expect(known, "links {}: open it with dlopen, and say so with PN_DLOPEN_NOTE", name);
  }
  return {};
}

Result<void> gnu_unique(Bench& bench) {
  PN_TRY(const ElfFacts facts, read_elf(bench.setup().file));
  for (const std::string& name : facts.gnu_unique)
    bench.fail(name + " is STB_GNU_UNIQUE, shared with other plugins: build with -fno-gnu-unique");
  return {};
}

Result<void> rpath(Bench& bench) {
  PN_TRY(const ElfFacts facts, read_elf(bench.setup().file));
  for (const std::string& path : facts.run_paths)
    bench.fail("carries the search path " + path + ": link without -rpath");
  return {};
}

Result<void> text_relocations(Bench& bench) {
  PN_TRY(const ElfFacts facts, read_elf(bench.setup().file));
  bench.expect(!facts.text_relocations, "has text relocations: build with -fPIC");
  return {};
}

constexpr Case kCases[] = {
    {"static/note", "N1-N5", "the note is there, well formed and of this ABI", note},
    {"static/exports", "R15", "one exported symbol", exports},
    {"static/needed", "R15", "only the C and C++ runtimes are linked", needed},
    {"static/gnu_unique", "R15", "nothing is shared with other plugins", gnu_unique},
    {"static/rpath", "R15", "no search path of its own", rpath},
    {"static/text_relocations", "R15", "code is not patched when loaded", text_relocations},
};

}  // namespace

std::span<const Case> static_cases() { return kCases; }

}  // namespace pn::check
