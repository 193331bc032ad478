// SPDX-License-Identifier: Apache-2.0
//
// See elf_facts.h. Sections are used, as the note's reader does: a library that was stripped of its
// section table cannot be checked, and is refused.
#include "hal/check/elf_facts.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

namespace pn::check {

namespace {

class Image {
 public:
  Image(const std::string& bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  template <typename T>
  bool at(uint64_t offset, T* out) const {
    if (sizeof(T) > bytes_.size() || offset > bytes_.size() - sizeof(T)) return false;
    std::memcpy(out, bytes_.data() + offset, sizeof(T));
    return true;
  }
  // A text that ends inside the section.
  std::optional<std::string> text(const Elf64_Shdr& strings, uint64_t offset) const {
    if (strings.sh_offset > bytes_.size() || strings.sh_size > bytes_.size() - strings.sh_offset)
      return std::nullopt;
    if (offset >= strings.sh_size) return std::nullopt;
    const char* from = bytes_.data() + strings.sh_offset + offset;
    const size_t room = strings.sh_size - offset;
    const size_t n = ::strnlen(from, room);
    if (n == room) return std::nullopt;
    return std::string(from, n);
  }
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(Code::invalid, where_ + ": " + what + ": the file is damaged or no plugin");
  }

 private:
  const std::string& bytes_;
  const std::string& where_;
};

Result<std::vector<Elf64_Shdr>> sections_of(const Image& image) {
  Elf64_Ehdr head{};
  if (!image.at(0, &head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB)
    return image.bad("expected a 64-bit little-endian ELF file");
  if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum == 0)
    return image.bad("expected a section table");
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  for (uint64_t i = 0; i < sections.size(); ++i)
    if (head.e_shoff > (uint64_t{1} << 48) ||
        !image.at(head.e_shoff + i * sizeof(Elf64_Shdr), &sections[i]))
      return image.bad("the section table is cut off");
  return sections;
}

Result<void> read_dynamic(const Image& image, const Elf64_Shdr& dynamic, const Elf64_Shdr& strings,
                          ElfFacts* out) {
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic.sh_size; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry{};
    if (dynamic.sh_offset > (uint64_t{1} << 48) || !image.at(dynamic.sh_offset + at, &entry))
      return image.bad("the dynamic section is cut off");
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_TEXTREL) out->text_relocations = true;
    if (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_TEXTREL) != 0)
      out->text_relocations = true;
    const bool needed = entry.d_tag == DT_NEEDED;
    if (!needed && entry.d_tag != DT_RPATH && entry.d_tag != DT_RUNPATH) continue;
    const auto text = image.text(strings, entry.d_un.d_val);
    if (!text) return image.bad("a name of the dynamic section is outside its table");
    (needed ? out->needed : out->run_paths).push_back(*text);
  }
  return {};
}

Result<void> read_symbols(const Image& image, const Elf64_Shdr& symbols, const Elf64_Shdr& strings,
                          ElfFacts* out) {
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol{};
    if (symbols.sh_offset > (uint64_t{1} << 48) || !image.at(symbols.sh_offset + at, &symbol))
      return image.bad("the symbol table is cut off");
    const unsigned bind = ELF64_ST_BIND(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || bind == STB_LOCAL) continue;
    const auto name = image.text(strings, symbol.st_name);
    if (!name) return image.bad("a symbol's name is outside its table");
    out->exports.push_back(*name);
    if (bind == STB_GNU_UNIQUE) out->gnu_unique.push_back(*name);
  }
  return {};
}

}  // namespace

Result<ElfFacts> parse_elf(const std::string& bytes, const std::string& where) {
  const Image image(bytes, where);
  PN_TRY(const std::vector<Elf64_Shdr> sections, sections_of(image));
  ElfFacts facts;
  bool dynamic = false;
  for (const Elf64_Shdr& section : sections) {
    const bool is_dynamic = section.sh_type == SHT_DYNAMIC,
               is_symbols = section.sh_type == SHT_DYNSYM;
    if (!is_dynamic && !is_symbols) continue;
    if (section.sh_link >= sections.size()) return image.bad("a section names a missing table");
    const Elf64_Shdr& strings = sections[section.sh_link];
    if (is_dynamic) PN_TRY(read_dynamic(image, section, strings, &facts));
    if (is_symbols) PN_TRY(read_symbols(image, section, strings, &facts));
    dynamic = dynamic || is_dynamic;
  }
  if (!dynamic) return image.bad("expected a shared library with a dynamic section");
  return facts;
}

Result<ElfFacts> read_elf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::not_found, path + ": cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return parse_elf(bytes, path);
}

}  // namespace pn::check
