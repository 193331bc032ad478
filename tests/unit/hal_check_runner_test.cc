// SPDX-License-Identifier: Apache-2.0
//
// Children of the plugin check, and what libraries say of themselves.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "hal/check/bench.h"
#include "hal/check/elf_facts.h"
#include "hal/check/runner.h"

using namespace pn::check;

namespace {

// A child that says `script`; descriptor 3 is where the outcome goes.
Outcome child(const std::string& script, uint32_t deadline_ms = 60000) {
  return run_child({"/bin/sh", "-c", script}, deadline_ms);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string fixture(const std::string& name) {
  const char* root = std::getenv("PN_BUILD_ROOT");
  return std::string(root != nullptr ? root : ".") + "/" + name;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("check: a child's outcome is taken as it says") {
  CHECK(child("printf 'passed\\nnote' >&3").state == State::passed);
  CHECK(child("printf 'passed\\nnote' >&3").text == "note");
  CHECK(child("printf 'failed\\nwhy' >&3").state == State::failed);
  CHECK(child("printf 'unsupported\\nwhy' >&3").state == State::unsupported);
}

TEST_CASE("check: a crash, an exit and a hang are failures with last words") {
  const Outcome crash = child("echo dying >&2; kill -SEGV $$");
  CHECK(crash.state == State::failed);
  CHECK(has(crash.text, "signal 11"));
  CHECK(has(crash.text, "dying"));
  const Outcome exit = child("exit 7");
  CHECK(exit.state == State::failed);
  CHECK(has(exit.text, "exit(7)"));
  CHECK(child("exit 0").state == State::failed);  // it never said a word
  const Outcome late = child("printf 'passed\\n' >&3; exec 3>&-; kill -ABRT $$");
  CHECK(late.state == State::failed);
  CHECK(has(late.text, "after the case"));
  const Outcome hang = child("sleep 1000 & sleep 1000", 300);
  CHECK(hang.state == State::failed);
  CHECK(has(hang.text, "hung"));
  CHECK(run_child({"/nosuch/program"}, 1000).state == State::failed);
}

TEST_CASE("check: what a case says becomes its outcome") {
  const Case fails = {"ops/x", "", "", [](Bench& b) -> pn::Result<void> {
                        for (int i = 0; i < 9; ++i) b.expect(i < 1, "number {}", i);
                        return {};
                      }};
  const Outcome failed = run_here(fails, {});
  CHECK(failed.state == State::failed);
  CHECK(has(failed.text, "number 1"));
  CHECK(has(failed.text, "4 more"));
  const Case stops = {"ops/x", "", "", [](Bench& b) -> pn::Result<void> {
                        b.unsupported("no");
                        return pn::fail(pn::Code::failed, "broken");
                      }};
  CHECK(run_here(stops, {}).state == State::failed);
  CHECK(has(run_here(stops, {}).text, "broken"));
  const Case absent = {"ops/x", "", "", [](Bench& b) -> pn::Result<void> {
                         b.unsupported("no such op");
                         return {};
                       }};
  CHECK(run_here(absent, {}).state == State::unsupported);
}

TEST_CASE("check: the facts of a library, and of bytes that are none") {
  const auto facts = read_elf(fixture("plugins/null/backend_null.so"));
  REQUIRE(facts);
  CHECK(facts->exports == std::vector<std::string>{"pantheon_plugin_entry_1"});
  CHECK(facts->gnu_unique.empty());
  CHECK(facts->run_paths.empty());
  CHECK(!facts->text_relocations);
  CHECK(std::any_of(facts->needed.begin(), facts->needed.end(),
                    [](const std::string& n) { return n.rfind("libc.so", 0) == 0; }));
  CHECK(!read_elf("/nosuch.so"));
  CHECK(!parse_elf("", "x"));
  CHECK(!parse_elf("not an ELF file, though it is longer than a header of one would be.....", "x"));
  // Cut anywhere, and with any byte of the first kilobyte wrong, it is refused or read: no crash.
  const std::string whole = bytes_of(fixture("plugins/null/backend_null.so"));
  for (size_t n = 0; n < whole.size(); n += 97) (void)parse_elf(whole.substr(0, n), "cut");
  for (size_t i = 0; i < 1024; ++i) {
    std::string bent = whole;
    bent[i] = static_cast<char>(bent[i] ^ 0xff);
    (void)parse_elf(bent, "bent");
  }
  CHECK(!parse_elf(whole.substr(0, whole.size() / 2), "half"));
}
