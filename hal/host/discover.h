// SPDX-License-Identifier: Apache-2.0
//
// Where plugins are looked for, and what became of each file found there.
//
// Owns the search order, the trust rules for folders and the cached probe of unseen files. Knows no
// plugin by name and loads nothing into this process. The one idea: nothing is skipped silently;
// every folder and every file gets one line that says usable, or why not.
//
// Order, the first file of a name wins:
//   1. Search.dirs (the profile's plugin_dirs), in the order given
//   2. plugins/ beside the executable: its .so files, and those listed in plugins/plugins.list,
//      which the build writes; absent in an installation
//   3. the compiled-in folder, <libdir>/pantheon
// Never the working directory, never LD_LIBRARY_PATH.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hal/host/note.h"
#include "hal/host/result.h"

namespace pn::hal {

struct Search {
  std::vector<std::string> dirs;      // absolute; relative ones are refused
  bool beside_executable = true;      // place 2
  bool compiled_in = true;            // place 3
  std::string cache_dir;              // empty: $XDG_CACHE_HOME/pantheon or ~/.cache/pantheon
  bool probe = true;                  // run unseen files in a child process first
  uint32_t probe_timeout_ms = 10000;  // for one file
  std::string backend_host;           // the program; empty: see backend_host()
};

enum class PlaceState { searched, absent, refused };
struct Place {  // a folder
  std::string path;
  std::string origin;  // "profile", "beside the executable", "installed"
  PlaceState state = PlaceState::absent;
  std::string reason;  // when refused
};

enum class CandidateState { usable, shadowed, refused };
struct Candidate {  // a file
  std::string path;
  std::string origin;
  CandidateState state = CandidateState::refused;
  std::optional<Note> note;  // when it could be read
  std::string reason;        // why refused, or which file shadows it
};

struct Discovery {
  std::vector<Place> places;
  std::vector<Candidate> candidates;
};

const char* to_string(CandidateState state);  // "usable", ...
const char* to_string(PlaceState state);

// Every candidate, in search order. Runs probes of unseen files when search.probe.
Discovery discover(const Search& search);

// One file: note, trust, ABI, probe. An explicit path may lie in a sticky folder such as /tmp.
Candidate examine(const std::string& path, const Search& search);

// The file that a name or alias stands for, or a path (anything with a '/') as it is. Only that one
// is probed. The error names every place that was tried and every name that was found.
Result<Candidate> resolve(const std::string& name_or_path, const Search& search);

// The program that isolated plugins run in: beside the executable, then in libexec.
Result<std::string> backend_host(const Search& search);

// The folder for this user's caches, created when missing; empty when there is none to write to.
std::string user_cache_dir(const Search& search);

}  // namespace pn::hal
