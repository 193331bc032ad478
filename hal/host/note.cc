// SPDX-License-Identifier: Apache-2.0
//
// See note.h. Reads at most the section table, two notes and, without a build id, the file once.
#include "hal/host/note.h"

#include <elf.h>
#include <fcntl.h>
#include <pantheon/note.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace pn::hal {

namespace {

constexpr uint32_t kSectionsMax = 4096;

// A file that is read at checked offsets.
class Reader {
 public:
  explicit Reader(std::string path)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)),
        open_error_(fd_ < 0 ? errno : 0) {}
  ~Reader() {
    if (fd_ >= 0) ::close(fd_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Result<void> check() {
    struct stat st {};
    if (fd_ < 0 || ::fstat(fd_, &st) != 0) {
      const int error = fd_ < 0 ? open_error_ : errno;
      return fail(error == ENOENT ? Code::not_found : Code::failed,
                  path_ + ": cannot be opened: " + std::strerror(error));
    }
    if (!S_ISREG(st.st_mode)) return bad("expected a plugin, found something that is not a file");
    size_ = static_cast<uint64_t>(st.st_size);
    return {};
  }

  bool read(uint64_t offset, void* to, uint64_t bytes) const {
    if (bytes > size_ || offset > size_ - bytes) return false;
    auto* p = static_cast<char*>(to);
    while (bytes > 0) {
      ssize_t n = ::pread(fd_, p, bytes, static_cast<off_t>(offset));
      if (n <= 0) return false;
      p += n;
      offset += static_cast<uint64_t>(n);
      bytes -= static_cast<uint64_t>(n);
    }
    return true;
  }

  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(Code::invalid, path_ + ": " + what);
  }

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_;
  int open_error_;
  uint64_t size_ = 0;
};

struct FoundNotes {
  std::vector<std::string> plugin;  // descriptors of .note.pantheon
  std::string build_id;
};

std::string hex(const std::string& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string out;
  for (unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

// The notes of one SHT_NOTE section. Lengths come from the file: each is checked before use.
Result<void> collect(const Reader& file, const std::string& section, FoundNotes* found) {
  size_t at = 0;
  while (section.size() - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr head;
    std::memcpy(&head, section.data() + at, sizeof head);
    at += sizeof head;
    const uint64_t owner_bytes = (uint64_t{head.n_namesz} + 3) & ~uint64_t{3};
    const uint64_t text_bytes = (uint64_t{head.n_descsz} + 3) & ~uint64_t{3};
    if (owner_bytes > section.size() - at || text_bytes > section.size() - at - owner_bytes) {
      return file.bad("a note is longer than its section: the file is damaged; copy it again");
    }
    std::string owner(section.data() + at, head.n_namesz);
    while (!owner.empty() && owner.back() == 0) owner.pop_back();
    std::string text(section.data() + at + owner_bytes, head.n_descsz);
    at += owner_bytes + text_bytes;
    if (owner == PN_NOTE_OWNER && head.n_type == PN_NOTE_TYPE) found->plugin.push_back(text);
    if (owner == "GNU" && head.n_type == NT_GNU_BUILD_ID) found->build_id = hex(text);
  }
  return {};
}

Result<Elf64_Ehdr> read_header(const Reader& file) {
  Elf64_Ehdr head{};
  if (!file.read(0, &head, EI_NIDENT) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) {
    return file.bad("expected a plugin (an ELF shared object), found another kind of file");
  }
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB) {
    return file.bad(std::string("expected 64-bit little-endian ELF, found ") +
                    (head.e_ident[EI_CLASS] == ELFCLASS32 ? "32-bit" : "64-bit") + " " +
                    (head.e_ident[EI_DATA] == ELFDATA2MSB ? "big" : "little") +
                    "-endian: install the build for this machine");
  }
  if (!file.read(0, &head, sizeof head))
    return file.bad("the ELF header is cut off; copy it again");
#if defined(__x86_64__)
  constexpr uint16_t machine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr uint16_t machine = EM_AARCH64;
#else
  const uint16_t machine = head.e_machine;
#endif
  if (head.e_machine != machine) {
    return file.bad("expected ELF machine " + std::to_string(machine) + ", found " +
                    std::to_string(head.e_machine) + ": install the build for this machine");
  }
  if (head.e_type != ET_DYN) {
    return file.bad("expected a shared object, found ELF type " + std::to_string(head.e_type) +
                    ": give the path of the .so");
  }
  return head;
}

Result<FoundNotes> find_notes(const Reader& file) {
  PN_TRY(const Elf64_Ehdr head, read_header(file));
  FoundNotes found;
  if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum > kSectionsMax) {
    return file.bad("the section table is malformed: the file is damaged; copy it again");
  }
  for (uint64_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    const uint64_t offset = i * sizeof section;
    if (head.e_shoff > file.size() || !file.read(head.e_shoff + offset, &section, sizeof section)) {
      return file.bad("the section table is cut off: the file is damaged; copy it again");
    }
    if (section.sh_type != SHT_NOTE) continue;
    if (section.sh_size > 4 * PN_NOTE_BYTES_MAX) continue;  // ours is smaller
    std::string bytes(section.sh_size, 0);
    if (!file.read(section.sh_offset, bytes.data(), bytes.size())) {
      return file.bad("a note section is cut off: the file is damaged; copy it again");
    }
    PN_TRY(collect(file, bytes, &found));
  }
  return found;
}

// For files without a build id: two FNV-1a sums of the whole content. A name, not a seal.
std::string content_id(const Reader& file) {
  uint64_t a = 14695981039346656037ull, b = 1099511628211ull;
  std::vector<unsigned char> chunk(1 << 20);
  for (uint64_t at = 0; at < file.size(); at += chunk.size()) {
    const uint64_t n = std::min<uint64_t>(chunk.size(), file.size() - at);
    if (!file.read(at, chunk.data(), n)) break;
    for (uint64_t i = 0; i < n; ++i) {
      a = (a ^ chunk[i]) * 1099511628211ull;
      b = (b ^ chunk[i]) * 6364136223846793005ull;
    }
  }
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_name(const std::string& s) {
  return !s.empty() && s.size() <= 63 && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Decimal, the whole of `s`, at most `max`.
bool parse_number(const std::string& s, int base, uint32_t max, uint32_t* out) {
  if (s.empty() || s.size() > 8) return false;
  char* end = nullptr;
  unsigned long v = std::strtoul(s.c_str(), &end, base);
  if (*end != 0 || !std::isxdigit(static_cast<unsigned char>(s[0])) || v > max) return false;
  *out = static_cast<uint32_t>(v);
  return true;
}

// "0.2-0.4"
bool parse_abi(const std::string& text, Note* note) {
  const std::vector<std::string> ends = split(text, '-');
  if (ends.size() != 2) return false;
  const auto low = split(ends[0], '.'), high = split(ends[1], '.');
  uint32_t high_major = 0;
  if (low.size() != 2 || high.size() != 2) return false;
  return parse_number(low[0], 10, 99, &note->abi_major) &&
         parse_number(low[1], 10, 9999, &note->minor_min) &&
         parse_number(high[0], 10, 99, &high_major) &&
         parse_number(high[1], 10, 9999, &note->minor_max) && high_major == note->abi_major &&
         note->minor_min <= note->minor_max;
}

bool parse_pci(const std::string& text, Note* note) {
  for (const std::string& item : split(text, ',')) {
    const auto halves = split(item, ':');
    uint32_t vendor = 0, device = 0;
    if (halves.size() != 2 || !parse_number(halves[0], 16, 0xffff, &vendor) ||
        !parse_number(halves[1], 16, 0xffff, &device)) {
      return false;
    }
    note->pci.push_back({static_cast<uint16_t>(vendor), static_cast<uint16_t>(device)});
  }
  return true;
}

}  // namespace

bool Note::answers_to(const std::string& wanted) const {
  return name == wanted || std::find(aliases.begin(), aliases.end(), wanted) != aliases.end();
}

std::string host_abi() { return std::to_string(PN_ABI_MAJOR) + "." + std::to_string(PN_ABI_MINOR); }

const char* host_sanitizer() { return PN_BUILD_SANITIZER; }

Result<Note> parse_note(const std::string& text, const std::string& where) {
  auto bad = [&](const std::string& key, const std::string& found) {
    return fail(Code::invalid, where + ": its plugin note has no usable " + key + " (found '" +
                                   found + "'): rebuild the plugin with PN_PLUGIN_NOTE");
  };
  if (text.size() > PN_NOTE_BYTES_MAX) return bad("size", std::to_string(text.size()) + " bytes");
  std::map<std::string, std::string> keys;
  for (const std::string& line : split(text.substr(0, text.find('\0')), '\n')) {
    for (unsigned char c : line) {
      if (c < 0x20 || c == 0x7f) return bad("text", "a control character");
    }
    const size_t equals = line.find('=');
    if (equals != std::string::npos) keys[line.substr(0, equals)] = line.substr(equals + 1);
  }
  Note note;
  note.kind = keys["kind"];
  note.name = keys["name"];
  note.aliases = split(keys["aliases"], ',');
  note.version = keys["version"];
  note.vendor = keys["vendor"];
  note.language = keys["language"];
  note.compiler = keys["compiler"];
  if (!keys["sanitizer"].empty()) note.sanitizer = keys["sanitizer"];
  const std::string& use = keys["use"];
  if (!use.empty() && use != "auto" && use != "named") return bad("use", use);
  note.only_when_named = use == "named";
  if (!is_name(note.kind)) return bad("kind", note.kind);
  if (!is_name(note.name)) return bad("name", note.name);
  for (const std::string& alias : note.aliases) {
    if (!is_name(alias)) return bad("alias", alias);
  }
  if (!parse_abi(keys["abi"], &note)) return bad("abi", keys["abi"]);
  if (!parse_pci(keys["pci"], &note)) return bad("pci", keys["pci"]);
  return note;
}

Result<Note> read_note(const std::string& path) {
  Reader file(path);
  PN_TRY(file.check());
  PN_TRY(FoundNotes found, find_notes(file));
  if (found.plugin.size() != 1) {
    return file.bad("expected one .note.pantheon, found " + std::to_string(found.plugin.size()) +
                    ": this is a shared library, but not a plugin of pantheon");
  }
  PN_TRY(Note note, parse_note(found.plugin[0], path));
  note.build_id = found.build_id.empty() ? content_id(file) : found.build_id;
  return note;
}

Result<void> check_compatible(const Note& note, const std::string& path) {
  if (note.kind != "hal") {
    return fail(Code::unsupported, path + ": expected a plugin of kind hal, found kind " +
                                       note.kind + ": this pantheon loads backends only");
  }
  // From 1.0 on a host serves every older minor; before, the same minor only.
  const uint32_t ours = PN_ABI_MINOR;
  if (note.abi_major != PN_ABI_MAJOR || note.minor_min > ours ||
      (PN_ABI_MAJOR == 0 && note.minor_max < ours)) {
    const std::string major = std::to_string(note.abi_major) + ".";
    std::string wants = major + std::to_string(note.minor_min);
    if (note.minor_max != note.minor_min) wants += " to " + major + std::to_string(note.minor_max);
    const bool newer = note.abi_major > PN_ABI_MAJOR || note.minor_min > ours;
    return fail(Code::unsupported,
                path + ": needs HAL " + wants + ", this pantheon offers HAL " + host_abi() + ": " +
                    (newer ? "upgrade pantheon, or install an older build of " + note.name
                           : "install a newer build of " + note.name));
  }
  if (note.sanitizer != host_sanitizer()) {
    return fail(Code::unsupported, path + ": built with sanitizer " + note.sanitizer +
                                       ", this pantheon with sanitizer " + host_sanitizer() +
                                       ": build both alike");
  }
  return {};
}

}  // namespace pn::hal
