/* SPDX-License-Identifier: MIT
 *
 * Who a plugin is, readable before any of its code runs: an ELF note.
 *
 * Owns PN_PLUGIN_NOTE (section .note.pantheon) and PN_DLOPEN_NOTE (section .note.dlopen, a format
 * of systemd and UAPI). Knows nothing of the tables. The one idea: the descriptor is text,
 * `key=value` lines, so a reader needs no struct layout, a newer key does not break an older
 * reader, and `readelf -p .note.pantheon backend_x.so` shows it to a person.
 *
 *   note owner  "Pantheon"
 *   note type   0x50414e31 ("PAN1")
 *   descriptor  text as below, ends with NUL, zero-filled to 4 bytes, at most 4096 bytes
 *
 *   kind=hal           what the symbol to look for is; hal: pantheon_plugin_entry_1
 *   name=cuda_k80      [a-z0-9_], at most 63 bytes: what --backend-plugin and the profile say
 *   aliases=cuda,k80   comma-separated, may be empty
 *   abi=0.2-0.2        major.minor of the oldest and the newest host that it can serve
 *   version=1.4.0      the plugin's own
 *   vendor=Example Ltd
 *   pci=10de:102d,10de:1023    vendor:device it drives, hexadecimal, lower case, may be empty
 *   sanitizer=none     none, address, thread, memory: must equal the host's
 *   use=auto           named: only when asked for by name or path; plugins that test or teach
 *   compiler=12.2.0    and language=c or c++
 *
 * Rules                                                   checked by      when broken
 *   N1 one .note.pantheon with one note                   host's reader   refused
 *   N2 kind, name, abi are present and well formed        host's reader   refused, key named
 *   N3 other keys may be absent; unknown keys are skipped host's reader   -
 *   N4 abi includes the host's version                    host's reader   refused, both named
 *   N5 sanitizer equals the host's                        host's reader   refused, both named
 *   N6 drivers are opened by the plugin, not linked       tests, review   cannot explain itself
 */
#ifndef PANTHEON_NOTE_H
#define PANTHEON_NOTE_H

#include <pantheon/core.h>

#define PN_NOTE_OWNER "Pantheon"
#define PN_NOTE_TYPE 0x50414e31u
#define PN_NOTE_BYTES_MAX 4096u
#define PN_DLOPEN_NOTE_OWNER "FDO"
#define PN_DLOPEN_NOTE_TYPE 0x407c0c0au

#if defined(PN_BUILD_SANITIZER)
/* The build says it itself. */
#elif defined(__SANITIZE_ADDRESS__)
#define PN_BUILD_SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define PN_BUILD_SANITIZER "thread"
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PN_BUILD_SANITIZER "address"
#elif __has_feature(thread_sanitizer)
#define PN_BUILD_SANITIZER "thread"
#elif __has_feature(memory_sanitizer)
#define PN_BUILD_SANITIZER "memory"
#endif
#endif
#ifndef PN_BUILD_SANITIZER
#define PN_BUILD_SANITIZER "none"
#endif

#ifdef __cplusplus
#define PN_BUILD_LANGUAGE "c++"
#else
#define PN_BUILD_LANGUAGE "c"
#endif

#define PN_NOTE_STR2(x) #x
#define PN_NOTE_STR(x) PN_NOTE_STR2(x)
#define PN_NOTE_PAD(n) (((n) + 3u) & ~3u)

/* One note with a string descriptor, in its own section. GNU as and clang give every section called
 * .note.* the type SHT_NOTE, and linkers keep it under --gc-sections. */
#define PN_NOTE_EMIT(variable, section_name, owner_text, type_number, text)              \
  __attribute__((section(section_name), used, aligned(4))) static const struct {         \
    uint32_t owner_bytes, text_bytes, type;                                              \
    char owner[PN_NOTE_PAD(sizeof(owner_text))];                                         \
    char body[PN_NOTE_PAD(sizeof(text))];                                                \
  } variable = {sizeof(owner_text), PN_NOTE_PAD(sizeof(text)), type_number, owner_text, text}

/* Once per plugin, at file scope. All arguments are string literals, but for the two minors:
 *   PN_PLUGIN_NOTE("cuda_k80", "cuda,k80", "1.4.0", "Example Ltd", "10de:102d");
 * PN_TEST_PLUGIN_NOTE is for plugins that compute nothing of use: taken only when named.
 * PN_PLUGIN_NOTE_FOR also takes the kind, and the oldest and newest host minor that are served;
 * while the major is 0 both are PN_ABI_MINOR. */
#define PN_PLUGIN_NOTE(name, aliases, version, vendor, pci) \
  PN_PLUGIN_NOTE_FOR("hal", name, aliases, PN_ABI_MINOR, PN_ABI_MINOR, version, vendor, pci)
#define PN_TEST_PLUGIN_NOTE(name, aliases, version, vendor, pci) \
  PN_NOTE_ALL("hal", name, aliases, PN_ABI_MINOR, PN_ABI_MINOR, version, vendor, pci, "named")
#define PN_PLUGIN_NOTE_FOR(kind, name, aliases, minor_min, minor_max, version, vendor, pci) \
  PN_NOTE_ALL(kind, name, aliases, minor_min, minor_max, version, vendor, pci, "auto")
#define PN_NOTE_ALL(kind, name, aliases, minor_min, minor_max, version, vendor, pci, use)        \
  PN_NOTE_EMIT(pn_plugin_note, ".note.pantheon", PN_NOTE_OWNER, PN_NOTE_TYPE,                    \
               "kind=" kind "\nname=" name "\naliases=" aliases "\nabi=" PN_NOTE_STR(            \
                   PN_ABI_MAJOR) "." PN_NOTE_STR(minor_min) "-" PN_NOTE_STR(PN_ABI_MAJOR) "."    \
                   PN_NOTE_STR(minor_max) "\nversion=" version "\nvendor=" vendor "\npci=" pci   \
                   "\nuse=" use "\nsanitizer=" PN_BUILD_SANITIZER "\nlanguage="                  \
                   PN_BUILD_LANGUAGE "\ncompiler=" __VERSION__ "\n")

/* A library that the plugin opens at run time, so that packagers see it. tag: an identifier, unique
 * in the file. priority: required, recommended or suggested.
 *   PN_DLOPEN_NOTE(cuda, "cuda", "NVIDIA driver", "required", "libcuda.so.1"); */
#define PN_DLOPEN_NOTE(tag, feature, description, priority, soname)                           \
  PN_NOTE_EMIT(pn_dlopen_note_##tag, ".note.dlopen", PN_DLOPEN_NOTE_OWNER, PN_DLOPEN_NOTE_TYPE, \
               "[{\"feature\":\"" feature "\",\"description\":\"" description                 \
               "\",\"priority\":\"" priority "\",\"soname\":[\"" soname "\"]}]")

#endif
