// SPDX-License-Identifier: Apache-2.0
//
// Commands that look at the host: devices, plugin list, --backend, profile, --version, doctor.
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

#include <nlohmann/json.hpp>

#include "engine/cli/commands.h"
#include "engine/cli/host.h"
#include "engine/cli/terminal.h"

namespace pn::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

const char* state_name(uint32_t state) {
  switch (state) {
    case PN_STATE_READY:
      return "ready";
    case PN_STATE_IN_USE:
      return "in_use";
    case PN_STATE_LOST:
      return "lost";
    default:
      return "absent";
  }
}

struct DieMemory {
  uint64_t total = 0, free_now = 0, others = 0;
  std::string error;
};

// Opening takes what the driver takes, and gives it back at once.
DieMemory memory_of(const Die& die) {
  DieMemory out;
  auto device = hal::Device::open(die.plugin, die.index);
  if (!device) {
    out.error = device.error().message;
    return out;
  }
  const auto status = device->memory_status();
  if (!status) {
    out.error = status.error().message;
    return out;
  }
  out.total = status->total;
  out.free_now = status->free_now;
  out.others = status->used_by_others;
  return out;
}

Json die_json(const Host& host, const Die& die) {
  Json out{{"id", die.id},
           {"plugin", die.plugin->name()},
           {"uid", die.info.uid},
           {"name", die.info.name},
           {"state", state_name(die.info.state)},
           {"die_index", die.info.die_index},
           {"dies_on_card", die.info.dies_on_card},
           {"numa_node", die.info.numa_node}};
  const hal::Isolation* isolation = die.plugin->isolation();
  out["isolation"] = isolation != nullptr ? "process" : "none";
  if (isolation != nullptr) out["pid"] = isolation->pid();
  if (die.info.pci_domain != PN_NONE)
    out["pci"] = fmt::format("{:04x}:{:02x}:{:02x}.{}", die.info.pci_domain, die.info.pci_bdf >> 8,
                             (die.info.pci_bdf >> 3) & 31, die.info.pci_bdf & 7);
  if (!die.usable()) {
    out["reason"] = die.info.reason;
    return out;
  }
  const DieMemory memory = memory_of(die);
  if (!memory.error.empty()) {
    out["reason"] = memory.error;
    return out;
  }
  const uint64_t budget = host.profile.budget(die.id, memory.total);
  out["bytes_total"] = memory.total;
  out["bytes_reserve"] = memory.total - std::min(memory.total, budget);
  out["bytes_external"] = memory.others;
  out["bytes_usable"] = std::min(budget, memory.free_now);
  return out;
}

// The linker's NT_GNU_BUILD_ID of this program, from its own loaded notes.
std::string own_build_id() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& p = info->dlpi_phdr[i];
          const char* at = reinterpret_cast<const char*>(info->dlpi_addr + p.p_vaddr);
          const char* const end = at + p.p_memsz;
          while (p.p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof note);
            const char* name = at + sizeof note;
            const char* value = name + ((note.n_namesz + 3) & ~3u);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                !std::memcmp(name, "GNU", 4))
              for (uint32_t b = 0; b < note.n_descsz; ++b)
                *static_cast<std::string*>(out) +=
                    fmt::format("{:02x}", static_cast<unsigned char>(value[b]));
            at = value + ((note.n_descsz + 3) & ~3u);
          }
        }
        return 1;  // the first object is the program itself
      },
      &id);
  return id.empty() ? "none" : id;
}

bool isolated(const profile::Profile& profile, const hal::Note& note) {
  std::vector<std::string> names = note.aliases;
  names.push_back(note.name);
  return profile.isolated(names);
}

int fail_with(const Error& error) {
  const int code = report(error);
  return error.code == Code::failed ? kPlugin : code;
}

}  // namespace

int devices_command(const Args& args) {
  const auto host = open_host(args);
  if (!host) return fail_with(host.error());
  Json list = Json::array();
  for (const Die& die : host->dies) list.push_back(die_json(*host, die));
  if (args.json) {
    print_out(dump({{"dies", list}, {"notes", host->notes}}));
    return kOk;
  }
  for (const Json& d : list) {
    print_out(fmt::format("{:<10} {:<34} {:<8}", d["id"].get<std::string>(),
                          d["name"].get<std::string>(), d["state"].get<std::string>()));
    if (d.contains("bytes_usable"))
      print_out(fmt::format(" usable {} of {} (reserve {}, others {})",
                            bytes_text(d["bytes_usable"].get<uint64_t>()),
                            bytes_text(d["bytes_total"].get<uint64_t>()),
                            bytes_text(d["bytes_reserve"].get<uint64_t>()),
                            bytes_text(d["bytes_external"].get<uint64_t>())));
    if (d.contains("pid")) print_out(fmt::format(" in process {}", d["pid"].get<int>()));
    if (d.contains("reason")) print_out(" " + d["reason"].get<std::string>());
    print_out("\n");
  }
  for (const std::string& note : host->notes) print_out("not used: " + note + "\n");
  return kOk;
}

int backend_command(const Args& args) {
  const auto host = open_host(args);
  if (!host) return fail_with(host.error());
  print_out(host->choice + "\n");
  for (const std::string& note : host->notes) print_out("not used: " + note + "\n");
  return kOk;
}

int plugin_command(const Args& args) {
  if (args.subcommand == "new") return plugin_new_command(args);
  if (args.subcommand == "check") return plugin_check_command(args);
  const auto profile = load_profile(args);
  if (!profile) return report(profile.error());
  const hal::Discovery found = hal::discover(search_of(*profile));
  if (args.json) {
    Json places = Json::array(), list = Json::array();
    for (const hal::Place& p : found.places)
      places.push_back({{"path", p.path},
                        {"origin", p.origin},
                        {"state", hal::to_string(p.state)},
                        {"reason", p.reason}});
    for (const hal::Candidate& c : found.candidates) {
      Json one{{"path", c.path},
               {"origin", c.origin},
               {"state", hal::to_string(c.state)},
               {"reason", c.reason}};
      if (c.note) {
        one["name"] = c.note->name;
        one["aliases"] = c.note->aliases;
        one["kind"] = c.note->kind;
        one["version"] = c.note->version;
        one["conformance"] = conformance_text(*c.note);
        one["isolation"] = isolated(*profile, *c.note) ? "process" : "none";
      }
      list.push_back(std::move(one));
    }
    print_out(dump({{"places", places}, {"plugins", list}}));
    return kOk;
  }
  for (const hal::Candidate& c : found.candidates) {
    const std::string name = c.note ? c.note->name + " " + c.note->version : "?";
    std::string text = c.reason.empty() ? "" : ": " + c.reason;
    if (c.note && c.state == hal::CandidateState::usable)
      text += " (" + conformance_text(*c.note) + ")";
    if (c.note && isolated(*profile, *c.note)) text += " (isolation: process)";
    print_out(fmt::format("{:<20} {:<9} {}{}\n", name, hal::to_string(c.state), c.path, text));
  }
  for (const hal::Place& p : found.places)
    print_out(fmt::format("looked in {} ({}): {}{}\n", p.path, p.origin, hal::to_string(p.state),
                          p.reason.empty() ? "" : ": " + p.reason));
  return kOk;
}

int profile_command(const Args& given) {
  Args args = given;
  if (!args.operands.empty()) args.profile = args.operands[0];
  const auto profile = load_profile(args);
  if (!profile) return report(profile.error());
  if (args.subcommand == "check") {
    std::string looked;
    for (const std::string& path : profile->looked) looked += "\n  " + path;
    print_out(profile->path.empty() ? "no profile; looked for:" + looked + "\n"
                                    : profile->path + ": no mistakes\n");
    return kOk;
  }
  Json list = Json::array();
  for (const profile::Shown& s : profile::show(*profile)) {
    if (args.json)
      list.push_back({{"key", s.key}, {"value", s.value}, {"origin", s.origin}});
    else
      print_out(fmt::format("{:<32} {:<28} {}\n", s.key, s.value, s.origin));
  }
  if (args.json) print_out(dump(list));
  return kOk;
}

int version_command(const Args& args) {
  const auto profile = load_profile(args);
  Json plugins = Json::array();
  if (profile)
    for (const hal::Candidate& c : hal::discover(search_of(*profile)).candidates)
      if (c.note && c.state == hal::CandidateState::usable)
        plugins.push_back({{"name", c.note->name},
                           {"version", c.note->version},
                           {"path", c.path},
                           {"build_id", c.note->build_id}});
  const std::string own = own_build_id();
  if (args.json) {
    print_out(dump({{"version", PN_VERSION},
                    {"abi_major", PN_ABI_MAJOR},
                    {"abi_minor", PN_ABI_MINOR},
                    {"build_id", own},
                    {"plugins", plugins}}));
    return kOk;
  }
  print_out(fmt::format("pantheon {}, HAL {}.{}, build {}\n", PN_VERSION, PN_ABI_MAJOR,
                        PN_ABI_MINOR, own));
  for (const Json& p : plugins)
    print_out(fmt::format("  plugin {} {}, build {}, {}\n", p["name"].get<std::string>(),
                          p["version"].get<std::string>(), p["build_id"].get<std::string>(),
                          p["path"].get<std::string>()));
  return kOk;
}

}  // namespace pn::cli
