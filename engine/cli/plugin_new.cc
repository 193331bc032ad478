// SPDX-License-Identifier: Apache-2.0
#include "engine/cli/plugin_new.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "engine/cli/commands.h"
#include "engine/cli/terminal.h"

namespace pn::cli {

namespace {

namespace fs = std::filesystem;

constexpr size_t kNameMax = 63;  // what a note may say
constexpr const char* kReserved[] = {"chaos",    "cpu",   "mutants", "null",
                                     "pantheon", "proxy", "template"};

Result<void> check_name(const std::string& name) {
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (name.empty() || name.size() > kNameMax || !letters || name[0] < 'a')
    return fail(Code::invalid,
                fmt::format("plugin new: \"{}\" cannot name a plugin: expected 1 to {} of a-z, 0-9 "
                            "and _, a letter first",
                            name, kNameMax));
  for (const char* reserved : kReserved)
    if (name == reserved)
      return fail(Code::invalid,
                  fmt::format("plugin new: {} is the name of one of pantheon's own: choose another "
                              "one",
                              name));
  return {};
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string with_name(std::string text, const std::string& name) {
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"template", name},
                                 std::pair<std::string, std::string>{"TEMPLATE", upper(name)}})
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  return text;
}

}  // namespace

const std::vector<TemplateFile>& template_files() {
  static const std::vector<TemplateFile> files = {
#include "engine/cli/template_files.h"
  };
  return files;
}

Result<std::string> new_plugin(const std::string& name, const std::string& folder) {
  PN_TRY(check_name(name));
  const fs::path place = folder.empty() ? fs::path("backend_" + name) : fs::path(folder);
  std::error_code ec;
  if (fs::exists(place, ec) || fs::is_symlink(place, ec))
    return fail(
        Code::invalid,
        fmt::format("plugin new: {} exists already: name a folder that does not", place.string()));
  fs::create_directories(place, ec);
  if (ec)
    return fail(Code::failed,
                fmt::format("plugin new: {} cannot be made: {}", place.string(), ec.message()));
  for (const TemplateFile& file : template_files()) {
    std::ofstream out(place / file.name, std::ios::binary);
    out << with_name(file.text, name);
    out.close();
    if (!out)
      return fail(Code::failed, fmt::format("plugin new: {} cannot be written: is the disk full?",
                                            (place / file.name).string()));
  }
  return place.string();
}

int plugin_new_command(const Args& args) {
  const std::string name = args.operands.empty() ? "" : args.operands[0];
  const auto made = new_plugin(name, args.operands.size() > 1 ? args.operands[1] : "");
  if (!made) return report(made.error());
  print_out(
      fmt::format("{0}: a plugin in plain C over the op-loop; its README.md has the steps\n"
                  "  cd {0} && meson setup build && meson compile -C build\n"
                  "  pantheon --backend-plugin build/backend_{1}.so serve\n",
                  *made, name));
  return kOk;
}

}  // namespace pn::cli
