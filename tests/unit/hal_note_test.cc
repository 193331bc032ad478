// SPDX-License-Identifier: Apache-2.0
//
// The note reader against the real null plugin, and against damaged copies of it: every cut and
// every flipped byte is an answer or a refusal, never a crash.
#include "hal/host/note.h"

#include <doctest/doctest.h>
#include <pantheon/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "tests/support/paths.h"

namespace {

using pn::test::build_path;
using pn::test::TempDir;

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spit(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

const char* kGood = "kind=hal\nname=cuda_k80\naliases=cuda,k80\nabi=0.2-0.2\npci=10de:102d\n";

}  // namespace

TEST_CASE("the null plugin's note says who it is") {
  auto note = pn::hal::read_note(build_path("plugins/null/backend_null.so"));
  REQUIRE(note);
  CHECK(note->kind == "hal");
  CHECK(note->name == "null");
  CHECK(note->aliases.empty());
  CHECK(note->only_when_named);
  CHECK(note->abi_major == PN_ABI_MAJOR);
  CHECK(note->minor_min == PN_ABI_MINOR);
  CHECK(note->minor_max == PN_ABI_MINOR);
  CHECK(note->sanitizer == pn::hal::host_sanitizer());
  CHECK(note->build_id.size() == 40);  // sha1
  CHECK(pn::hal::check_compatible(*note, "x"));
}

TEST_CASE("aliases and PCI ids are read, names match exactly") {
  auto note = pn::hal::read_note(build_path("tests/fixtures/hostile_null_slot.so"));
  REQUIRE(note);
  CHECK(note->answers_to("hostile"));
  CHECK(note->answers_to("evil"));
  CHECK_FALSE(note->answers_to("evi"));
  CHECK_FALSE(note->answers_to(""));
  REQUIRE(note->pci.size() == 2);
  CHECK(note->pci[1].vendor == 0x1e52);
  CHECK(note->pci[1].device == 0xb140);
}

TEST_CASE("keys: which are needed, which may be absent, what is malformed") {
  REQUIRE(pn::hal::parse_note(kGood, "f"));
  CHECK(pn::hal::parse_note(std::string(kGood) + "future=1\n", "f"));
  for (std::string broken :
       {"name=x\nabi=0.2-0.2\n", "kind=hal\nabi=0.2-0.2\n", "kind=hal\nname=x\n",
        "kind=hal\nname=X\nabi=0.2-0.2\n", "kind=hal\nname=x\nabi=0.2\n",
        "kind=hal\nname=x\nabi=0.3-0.2\n", "kind=hal\nname=x\nabi=0.2-1.2\n",
        "kind=hal\nname=x\nabi=0.-2-0.2\n", "kind=hal\nname=x\nabi=0.2-0.99999999999\n",
        "kind=hal\nname=x\nabi=0.2-0.2\npci=10de\n", "kind=hal\nname=x\nabi=0.2-0.2\npci=z:1\n",
        "kind=hal\nname=x\nabi=0.2-0.2\nuse=never\n",
        "kind=hal\nname=x\nabi=0.2-0.2\naliases=a b\n",
        "kind=hal\nname=x\nabi=0.2-0.2\nvendor=\x1b[31m\n"}) {
    CAPTURE(broken);
    auto note = pn::hal::parse_note(broken, "/some/file.so");
    REQUIRE_FALSE(note);
    CHECK(note.error().message.find("/some/file.so") == 0);
    CHECK(note.error().message.find("PN_PLUGIN_NOTE") != std::string::npos);
  }
  CHECK_FALSE(pn::hal::parse_note(std::string(10000, 'x'), "f"));
}

TEST_CASE("a refusal for the ABI names both numbers and what to install") {
  auto note = pn::hal::parse_note("kind=hal\nname=x\nabi=0.9-0.12\n", "f");
  REQUIRE(note);
  auto newer = pn::hal::check_compatible(*note, "/p/x.so");
  REQUIRE_FALSE(newer);
  CHECK(newer.error().message.find("needs HAL 0.9 to 0.12") != std::string::npos);
  CHECK(newer.error().message.find("offers HAL " + pn::hal::host_abi()) != std::string::npos);
  CHECK(newer.error().message.find("upgrade pantheon") != std::string::npos);
  note->minor_min = note->minor_max = 1;
  auto older = pn::hal::check_compatible(*note, "/p/x.so");
  REQUIRE_FALSE(older);
  CHECK(older.error().message.find("install a newer build of x") != std::string::npos);
  note->minor_max = PN_ABI_MINOR;
  note->sanitizer = pn::hal::host_sanitizer();
  CHECK(pn::hal::check_compatible(*note, "/p/x.so"));
}

TEST_CASE("files that are no plugins: each its own message") {
  TempDir dir;
  struct Case {
    std::string name, bytes, expect;
  };
  const std::string so = slurp(build_path("plugins/null/backend_null.so"));
  REQUIRE(so.size() > 1000);
  std::string class32 = so, big = so, machine = so, type = so;
  class32[4] = 1;
  big[5] = 2;
  machine[18] = 40;  // ARM
  type[16] = 2;      // ET_EXEC
  for (const Case& c :
       {Case{"text.so", "hello, I am a text file\n", "another kind of file"},
        Case{"empty.so", "", "another kind of file"},
        Case{"class.so", class32, "found 32-bit little-endian"},
        Case{"endian.so", big, "found 64-bit big-endian"}, Case{"machine.so", machine, "found 40"},
        Case{"type.so", type, "expected a shared object"},
        Case{"cut.so", so.substr(0, 40), "cut off"},
        Case{"half.so", so.substr(0, so.size() / 2), "cut off"}}) {
    CAPTURE(c.name);
    const std::string path = dir.path() + "/" + c.name;
    spit(path, c.bytes);
    auto note = pn::hal::read_note(path);
    REQUIRE_FALSE(note);
    CHECK(note.error().message.find(path) == 0);
    CHECK_MESSAGE(note.error().message.find(c.expect) != std::string::npos, note.error().message);
  }
  CHECK_FALSE(pn::hal::read_note(dir.path()));              // a folder
  CHECK_FALSE(pn::hal::read_note(dir.path() + "/absent"));  // nothing
  CHECK_FALSE(pn::hal::read_note("/dev/zero"));             // endless
}

TEST_CASE("no flipped byte of the header, the section table or the notes crashes the reader") {
  TempDir dir;
  const std::string so = slurp(build_path("plugins/null/backend_null.so"));
  const std::string path = dir.path() + "/flipped.so";
  uint64_t table = 0;
  so.copy(reinterpret_cast<char*>(&table), 8, 0x28);
  REQUIRE(table < so.size());
  std::vector<size_t> places;
  for (size_t i = 0; i < 0x300; ++i) places.push_back(i);
  for (size_t i = table; i < so.size(); i += 3) places.push_back(i);
  spit(path, so);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  auto put = [&](size_t at, char value) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(value).flush();
  };
  for (size_t i : places) {
    for (unsigned char value : {0xff, 0x00, 0x7f}) {
      put(i, static_cast<char>(value));
      auto note = pn::hal::read_note(path);
      if (!note) CHECK(note.error().message.find(path) == 0);
    }
    put(i, so[i]);
  }
  CHECK(pn::hal::read_note(path));  // every byte is back
}

TEST_CASE("a library without build id is named by its content") {
  TempDir dir;
  std::string so = slurp(build_path("plugins/null/backend_null.so"));
  const size_t at = so.find(std::string("GNU\0", 4));
  REQUIRE(at != std::string::npos);
  so[at] = 'X';
  spit(dir.path() + "/a.so", so);
  so[so.size() - 1] ^= 1;
  spit(dir.path() + "/b.so", so);
  auto a = pn::hal::read_note(dir.path() + "/a.so"), b = pn::hal::read_note(dir.path() + "/b.so");
  REQUIRE(a);
  REQUIRE(b);
  CHECK(a->build_id.size() == 32);
  CHECK(a->build_id != b->build_id);
}
