// SPDX-License-Identifier: Apache-2.0
//
// Discovery, trust, probe, load: each hostile plugin is one distinct refusal, and this process
// lives on.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <set>

#include "hal/host/hal.h"
#include "hal/host/probe.h"
#include "hal/host/trust.h"
#include "tests/support/paths.h"

namespace {

using pn::hal::Candidate;
using pn::hal::CandidateState;
using pn::hal::PlaceState;
using pn::hal::Search;
using pn::test::build_path;
using pn::test::TempDir;

std::string hostile(const std::string& kind) {
  return build_path("tests/fixtures/hostile_" + kind + ".so");
}

Search private_search(const TempDir& cache) {
  Search search;
  search.beside_executable = search.compiled_in = false;
  search.cache_dir = cache.path() + "/cache";
  search.probe_timeout_ms = 20000;
  return search;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void copy_file(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  std::ofstream(to, std::ios::binary) << in.rdbuf();
}

// The thread sanitizer's exit handler puts its own code in the place of 0.
#if defined(__SANITIZE_THREAD__)
constexpr const char* kConstructorExit = "called exit(66) in a constructor";
#else
constexpr const char* kConstructorExit = "called exit(0) in a constructor";
#endif

}  // namespace

TEST_CASE("each hostile plugin is refused with its own reason") {
  TempDir cache;
  Search search = private_search(cache);
  const std::map<std::string, std::string> expected = {
      {"bad_name", "no usable name"},
      {"constructor_crash", "crashed (Segmentation fault) in a constructor"},
      {"constructor_exit", kConstructorExit},
      {"constructor_hang", "hung in a constructor"},
      {"entry_crash", "crashed (Aborted) in its entry"},
      {"entry_exit", "called exit(7) in its entry"},
      {"entry_no_table", "gave no table"},
      {"entry_refuses", "no libexample.so.1"},
      {"no_entry", "expected the symbol pantheon_plugin_entry_1"},
      {"no_note", "not a plugin of pantheon"},
      {"null_slot", "required function device_open is null"},
      {"short_table", "expected a table of at least 168 bytes, found 64"},
      {"unresolved", "undefined symbol: a_symbol_that_nobody_has"},
      {"wrong_abi", "needs HAL 0.9 to 0.12, this pantheon offers HAL 0."},
      {"wrong_kind", "found kind loader"},
      {"wrong_sanitizer", "built with sanitizer memory"},
      {"wrong_table_abi", "while the major is 0 both must agree"}};
  std::set<std::string> seen;
  for (const auto& one : expected) {
    const auto& kind = one.first;
    const auto& reason = one.second;
    CAPTURE(kind);
    search.probe_timeout_ms = kind == "constructor_hang" ? 300 : 20000;
    Candidate c = pn::hal::examine(hostile(kind), search);
    CHECK(c.state == CandidateState::refused);
    CHECK_MESSAGE(has(c.reason, reason), c.reason);
    CHECK_MESSAGE(has(c.reason, hostile(kind)), c.reason);  // names the file
    CHECK(seen.insert(c.reason).second);                    // distinct
    auto loaded = pn::hal::Plugin::load({hostile(kind), {}, search});
    CHECK_FALSE(loaded);
  }
}

TEST_CASE("without a probe the loader itself says what is missing") {
  TempDir cache;
  Search search = private_search(cache);
  search.probe = false;
  auto loaded = pn::hal::Plugin::load({hostile("unresolved"), {}, search});
  REQUIRE_FALSE(loaded);
  CHECK(has(loaded.error().message, "undefined symbol: a_symbol_that_nobody_has"));
  CHECK(has(loaded.error().message, hostile("unresolved")));
  loaded = pn::hal::Plugin::load({hostile("no_entry"), {}, search});
  REQUIRE_FALSE(loaded);
  CHECK(has(loaded.error().message, "expected the symbol pantheon_plugin_entry_1"));
  loaded = pn::hal::Plugin::load({hostile("null_slot"), {}, search});
  REQUIRE_FALSE(loaded);
  CHECK(has(loaded.error().message, "device_open is null"));
}

TEST_CASE("a pass is remembered, a crash too; a refusal by the entry is asked again") {
  TempDir cache;
  Search search = private_search(cache);
  const std::string null_so = build_path("plugins/null/backend_null.so");
  Candidate good = pn::hal::examine(null_so, search);
  REQUIRE_MESSAGE(good.state == CandidateState::usable, good.reason);
  const std::string record =
      search.cache_dir + "/probe/" + good.note->build_id + "-" + pn::hal::host_abi();
  std::string line;
  std::getline(std::ifstream(record) >> std::ws, line);
  CHECK(line == "pass");
  // The record decides: a forged failure is believed until it is deleted.
  std::ofstream(record) << "fail\nexpected peace\n";
  CHECK(has(pn::hal::examine(null_so, search).reason, "delete " + record));
  REQUIRE(::unlink(record.c_str()) == 0);
  CHECK(pn::hal::examine(null_so, search).state == CandidateState::usable);

  pn::hal::examine(hostile("constructor_crash"), search);
  Candidate again = pn::hal::examine(hostile("constructor_crash"), search);
  CHECK(has(again.reason, "found at an earlier start"));
  pn::hal::examine(hostile("entry_refuses"), search);
  CHECK_FALSE(has(pn::hal::examine(hostile("entry_refuses"), search).reason, "earlier start"));
}

TEST_CASE("a hang costs its timeout once") {
  const auto begin = std::chrono::steady_clock::now();
  auto verdict = pn::hal::probe_now(hostile("constructor_hang"), 200);
  const auto took = std::chrono::steady_clock::now() - begin;
  REQUIRE_FALSE(verdict);
  CHECK(took >= std::chrono::milliseconds(200));
  CHECK(took < std::chrono::seconds(10));
}

TEST_CASE("folders are searched in order; every file has one line; the first of a name wins") {
  TempDir dir;
  const std::string a = dir.path() + "/a", b = dir.path() + "/b";
  ::mkdir(a.c_str(), 0700);
  ::mkdir(b.c_str(), 0700);
  const std::string null_so = build_path("plugins/null/backend_null.so");
  copy_file(null_so, a + "/backend_null.so");
  copy_file(null_so, b + "/backend_null.so");
  std::ofstream(a + "/notes.txt") << "not a candidate";
  std::ofstream(b + "/text.so") << "a text file";
  Search search = private_search(dir);
  search.dirs = {a, dir.path() + "/absent", b, "relative"};
  pn::hal::Discovery found = pn::hal::discover(search);
  REQUIRE(found.places.size() == 4);
  CHECK(found.places[0].state == PlaceState::searched);
  CHECK(found.places[1].state == PlaceState::absent);
  CHECK(found.places[3].state == PlaceState::refused);
  CHECK(has(found.places[3].reason, "absolute"));
  REQUIRE(found.candidates.size() == 3);
  CHECK(found.candidates[0].state == CandidateState::usable);
  CHECK(found.candidates[1].state == CandidateState::shadowed);
  CHECK(has(found.candidates[1].reason, a + "/backend_null.so"));
  CHECK(found.candidates[2].state == CandidateState::refused);

  auto chosen = pn::hal::resolve("null", search);
  REQUIRE(chosen);
  CHECK(chosen->path == a + "/backend_null.so");
  auto none = pn::hal::resolve("nosuch", search);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == pn::Code::not_found);
  for (const std::string& place : {a, b, dir.path() + "/absent"}) {
    CHECK(has(none.error().message, place));
  }
  CHECK(has(none.error().message, "'null'"));  // what it could have been
}

TEST_CASE("plugins.list names files of a build tree") {
  TempDir dir;
  std::ofstream(dir.path() + "/plugins.list")
      << "# comment\n"
      << build_path("plugins/null/backend_null.so") << "\n/absent/x.so\nrelative.so\n";
  Search search = private_search(dir);
  search.dirs = {dir.path()};
  pn::hal::Discovery found = pn::hal::discover(search);
  REQUIRE(found.candidates.size() == 1);
  CHECK(found.candidates[0].note->name == "null");
  std::ifstream list(build_path("plugins/plugins.list"));
  std::string text((std::istreambuf_iterator<char>(list)), {});
  CHECK(has(text, build_path("plugins/null/backend_null.so")));
}

TEST_CASE("a folder or file that others may write to is refused") {
  TempDir dir;
  const std::string open = dir.path() + "/open", file = open + "/backend_null.so";
  ::mkdir(open.c_str(), 0700);
  copy_file(build_path("plugins/null/backend_null.so"), file);
  CHECK(pn::hal::check_folder(open));  // below /tmp, which is sticky
  CHECK(pn::hal::check_file(file));

  ::chmod(open.c_str(), 0777);
  Search search = private_search(dir);
  search.dirs = {open};
  pn::hal::Discovery found = pn::hal::discover(search);
  REQUIRE(found.places.size() == 1);
  CHECK(found.places[0].state == PlaceState::refused);
  CHECK(has(found.places[0].reason, "chmod o-w"));
  CHECK(found.candidates.empty());
  auto none = pn::hal::resolve("null", search);
  REQUIRE_FALSE(none);
  CHECK(has(none.error().message, "others may write"));
  CHECK(has(pn::hal::examine(file, search).reason, "others may write"));

  // A folder above counts as well, unless it is sticky.
  const std::string inner = open + "/inner";
  ::mkdir(inner.c_str(), 0700);
  CHECK_FALSE(pn::hal::check_folder(inner));
  ::chmod(open.c_str(), 01777);
  CHECK(pn::hal::check_folder(inner));
  // Sticky, and searched itself: others could still add files to it.
  CHECK_FALSE(pn::hal::check_folder(open));
  CHECK(pn::hal::check_file(file));
  ::chmod(file.c_str(), 0666);
  CHECK_FALSE(pn::hal::check_file(file));
  ::chmod(file.c_str(), 0600);
  ::chmod(open.c_str(), 0700);
  CHECK(pn::hal::check_folder(open));
  CHECK(pn::hal::check_folder(dir.path() + "/absent").error().code == pn::Code::not_found);
}

TEST_CASE("a path is taken as it is, a name never from the working directory") {
  TempDir cache;
  Search search = private_search(cache);
  auto by_path = pn::hal::resolve(build_path("plugins/null/../null/backend_null.so"), search);
  REQUIRE(by_path);
  CHECK(by_path->note->name == "null");
  auto absent = pn::hal::resolve("./no_such_plugin.so", search);
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == pn::Code::not_found);
  CHECK(has(absent.error().message, "./no_such_plugin.so"));
  CHECK_FALSE(pn::hal::resolve("backend_null.so", search));  // no '/': a name
}

TEST_CASE("a library is loaded once; options are fixed with it") {
  TempDir cache;
  Search search = private_search(cache);
  const std::string null_so = cache.path() + "/backend_null.so";  // others have loaded the original
  copy_file(build_path("plugins/null/backend_null.so"), null_so);
  auto unknown = pn::hal::Plugin::load({null_so, {{"threds", "4"}}, search});
  REQUIRE_FALSE(unknown);
  CHECK(has(unknown.error().message, "option threds is unknown"));
  auto first = pn::hal::Plugin::load({null_so, {{"bytes", "1073741824"}}, search});
  REQUIRE_MESSAGE(first, first.error().message);
  auto second = pn::hal::Plugin::load({null_so, {{"bytes", "1073741824"}}, search});
  REQUIRE(second);
  CHECK(first->get() == second->get());
  auto other = pn::hal::Plugin::load({null_so, {}, search});
  REQUIRE_FALSE(other);
  CHECK(has(other.error().message, "other options"));
  CHECK((*first)->name() == "null");
  CHECK((*first)->path() == null_so);
}
