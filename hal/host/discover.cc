// SPDX-License-Identifier: Apache-2.0
//
// See discover.h.
#include "hal/host/discover.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "hal/host/probe.h"
#include "hal/host/trust.h"

namespace pn::hal {

namespace {

std::string executable_folder() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return "";
  std::string text(path, static_cast<size_t>(n));
  return text.substr(0, text.rfind('/'));
}

// The .so files of a folder, by name; a folder cannot be listed: `place` says so.
std::vector<std::string> shared_objects(Place* place) {
  std::vector<std::string> files;
  DIR* dir = ::opendir(place->path.c_str());
  if (dir == nullptr) {
    place->state = PlaceState::refused;
    place->reason = place->path + ": cannot be listed: " + std::strerror(errno);
    return files;
  }
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name.size() > 3 && name.ends_with(".so")) files.push_back(place->path + "/" + name);
  }
  ::closedir(dir);
  std::sort(files.begin(), files.end());
  return files;
}

// plugins.list: one path a line, # begins a comment. Files that are not built yet are left out.
void append_listed(const std::string& list, std::vector<std::string>* files) {
  std::ifstream in(list);
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] != '/' || ::access(line.c_str(), F_OK) != 0) continue;
    files->push_back(line);
  }
}

struct Scan {
  std::vector<Place> places;
  std::vector<Candidate> files;  // state not yet decided
};

void scan_place(Scan* scan, const std::string& path, const char* origin) {
  Place place{path, origin, PlaceState::absent, ""};
  if (path.empty() || path[0] != '/') {
    place.state = PlaceState::refused;
    place.reason = "'" + path + "': expected an absolute path: plugins are never looked for in " +
                   "the working directory";
  } else if (::access(path.c_str(), F_OK) == 0) {
    place.state = PlaceState::searched;
    Result<void> trusted = check_folder(path);
    if (!trusted) {
      place.state = PlaceState::refused;
      place.reason = trusted.error().message;
    } else {
      std::vector<std::string> files = shared_objects(&place);
      append_listed(path + "/plugins.list", &files);
      for (std::string& file : files) {
        scan->files.push_back({std::move(file), origin, CandidateState::refused, {}, ""});
      }
    }
  }
  scan->places.push_back(std::move(place));
}

Scan scan_all(const Search& search) {
  Scan scan;
  for (const std::string& dir : search.dirs) scan_place(&scan, dir, "profile");
  if (search.beside_executable) {
    scan_place(&scan, executable_folder() + "/plugins", "beside the executable");
  }
  if (search.compiled_in) scan_place(&scan, PN_PLUGIN_DIR, "installed");
  return scan;
}

// Note, trust, ABI: everything that runs no code of the file.
void judge_unloaded(Candidate* c) {
  c->state = CandidateState::refused;
  Result<Note> note = read_note(c->path);
  if (!note) {
    c->reason = note.error().message;
    return;
  }
  c->note = *std::move(note);
  Result<void> ok = check_file(c->path);
  if (ok) ok = check_compatible(*c->note, c->path);
  if (!ok) {
    c->reason = ok.error().message;
    return;
  }
  c->state = CandidateState::usable;
}

void judge_by_probe(Candidate* c, const Search& search) {
  if (c->state != CandidateState::usable || !search.probe) return;
  Result<void> ok =
      probe_cached(c->path, *c->note, user_cache_dir(search), search.probe_timeout_ms);
  if (ok) return;
  c->state = CandidateState::refused;
  c->reason = ok.error().message;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat sa {
  }, sb{};
  return ::stat(a.c_str(), &sa) == 0 && ::stat(b.c_str(), &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

std::string tried(const Scan& scan) {
  std::string text;
  for (const Place& place : scan.places) {
    text += "\n  " + place.path + " (" + place.origin + ", " + to_string(place.state);
    if (!place.reason.empty()) text += ": " + place.reason;
    text += ")";
  }
  return text;
}

Result<Candidate> resolve_path(const std::string& path, const Search& search) {
  std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  if (real == nullptr) {
    return fail(Code::not_found,
                "plugin " + path + ": " + std::strerror(errno) +
                    ": give the path of a plugin, or a name without '/'",
                "backend-plugin");
  }
  Candidate c = examine(real.get(), search);
  if (c.state != CandidateState::usable) {
    return fail(Code::invalid, "plugin " + c.reason, "backend-plugin");
  }
  return c;
}

}  // namespace

const char* to_string(CandidateState state) {
  switch (state) {
    case CandidateState::usable:
      return "usable";
    case CandidateState::shadowed:
      return "shadowed";
    case CandidateState::refused:
      return "refused";
  }
  return "?";
}

const char* to_string(PlaceState state) {
  switch (state) {
    case PlaceState::searched:
      return "searched";
    case PlaceState::absent:
      return "absent";
    case PlaceState::refused:
      return "refused";
  }
  return "?";
}

Candidate examine(const std::string& path, const Search& search) {
  Candidate c{path, "path", CandidateState::refused, {}, ""};
  judge_unloaded(&c);
  judge_by_probe(&c, search);
  return c;
}

Discovery discover(const Search& search) {
  Scan scan = scan_all(search);
  Discovery out{std::move(scan.places), {}};
  for (Candidate& c : scan.files) {
    const bool repeated =
        std::any_of(out.candidates.begin(), out.candidates.end(),
                    [&](const Candidate& other) { return same_file(other.path, c.path); });
    if (repeated) continue;
    judge_unloaded(&c);
    judge_by_probe(&c, search);
    for (const Candidate& earlier : out.candidates) {
      if (c.state != CandidateState::usable || earlier.state != CandidateState::usable) continue;
      if (earlier.note->name != c.note->name) continue;
      c.state = CandidateState::shadowed;
      c.reason = c.path + ": " + earlier.path + " has the same name and comes first";
    }
    out.candidates.push_back(std::move(c));
  }
  return out;
}

Result<Candidate> resolve(const std::string& name_or_path, const Search& search) {
  if (name_or_path.find('/') != std::string::npos) return resolve_path(name_or_path, search);
  Scan scan = scan_all(search);
  std::string refused, found;
  for (Candidate& c : scan.files) {
    judge_unloaded(&c);
    if (!c.note) continue;
    if (!c.note->answers_to(name_or_path)) {
      if (found.find("'" + c.note->name + "'") == std::string::npos) {
        found += (found.empty() ? "'" : ", '") + c.note->name + "'";
      }
      continue;
    }
    judge_by_probe(&c, search);
    if (c.state == CandidateState::usable) return c;
    refused += "\n  " + c.reason;
  }
  if (!refused.empty()) {
    return fail(Code::unsupported,
                "plugin '" + name_or_path + "' was found and cannot be used:" + refused,
                "backend-plugin");
  }
  return fail(Code::not_found,
              "no plugin is named '" + name_or_path + "'; looked in:" + tried(scan) +
                  "\nfound there: " + (found.empty() ? "no plugin" : found) +
                  ". Name one of these, give a path, or add plugin_dirs to the profile",
              "backend-plugin");
}

Result<std::string> backend_host(const Search& search) {
  static const char* const kName = "/pantheon-backend-host";
  std::vector<std::string> places = {executable_folder() + kName,
                                     executable_folder() + "/../libexec" + kName,
                                     PN_LIBEXEC_DIR + std::string(kName)};
  if (!search.backend_host.empty()) places = {search.backend_host};
  std::string tried;
  for (const std::string& place : places) {
    if (::access(place.c_str(), X_OK) == 0) return place;
    tried += (tried.empty() ? "" : ", ") + place;
  }
  return fail(Code::not_found, "isolation needs pantheon-backend-host, which is in none of " +
                                   tried + ": install it, or set isolation: none");
}

std::string user_cache_dir(const Search& search) {
  std::string dir = search.cache_dir;
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (dir.empty() && xdg != nullptr && xdg[0] == '/') {
    ::mkdir(xdg, 0700);
    dir = std::string(xdg) + "/pantheon";
  } else if (dir.empty() && home != nullptr && home[0] == '/') {
    const std::string parent = std::string(home) + "/.cache";
    ::mkdir(parent.c_str(), 0700);
    dir = parent + "/pantheon";
  }
  if (dir.empty()) return "";
  ::mkdir(dir.c_str(), 0700);
  struct stat st {};
  // Somebody else's folder could hold a forged pass.
  if (::stat(dir.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() ||
      (st.st_mode & S_IWOTH) != 0 || ::access(dir.c_str(), W_OK) != 0) {
    return "";
  }
  return dir;
}

}  // namespace pn::hal
