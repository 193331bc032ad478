// SPDX-License-Identifier: Apache-2.0
//
// Every way a single file can be wrong is refused, in its own words, naming the key or tensor.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "models/gguf/reader.h"
#include "tests/support/random_model.h"
#include "tests/support/scratch.h"

namespace {

using pn::test::GgufWriter;

GgufWriter sample() {
  GgufWriter w;
  w.text("general.architecture", "llama").u32("n", 1).boolean("flag", true);
  w.texts("list", {"one", "two"});
  w.values("alpha", {32, 2}, std::vector<float>(64, 1))
      .values("beta", {8}, std::vector<float>(8, 2));
  return w;
}

// A change to the finished bytes, found by the text before them.
struct Patch {
  std::string after;  // a name in the file
  size_t skip;        // bytes behind it
  std::string bytes;
};

template <typename T>
std::string raw(T v) {
  return std::string(reinterpret_cast<const char*>(&v), sizeof v);
}

std::vector<std::byte> patched(std::vector<std::byte> image, const Patch& p) {
  std::string_view all(reinterpret_cast<const char*>(image.data()), image.size());
  size_t at = all.find(p.after);
  REQUIRE(at != std::string_view::npos);
  std::memcpy(image.data() + at + p.after.size() + p.skip, p.bytes.data(), p.bytes.size());
  return image;
}

struct Refusal {
  pn::Error error;
  bool incomplete = false;
};

Refusal refused(const std::vector<std::byte>& image) {
  pn::gguf::Reader reader;
  auto file = reader.from_memory(image, "image");
  REQUIRE(!file);
  CHECK(file.error().message.find("image: ") == 0);
  return {file.error(), reader.incomplete()};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Case {
  const char* name;
  Patch patch;
  const char* says;
  const char* param;
};

}  // namespace

TEST_CASE("headers: each wrong one has its own message") {
  std::set<std::string> messages;
  std::vector<std::byte> good = sample().image();
  auto with = [&](size_t at, const std::string& bytes) {
    std::vector<std::byte> image = good;
    std::memcpy(image.data() + at, bytes.data(), bytes.size());
    return refused(image).error.message;
  };
  auto check = [&](const std::string& message, const char* says) {
    CHECK_MESSAGE(has(message, says), message);
    CHECK(messages.insert(message).second);
  };
  check(with(0, "GGML"), "47 47 4d 4c");
  check(with(4, raw(0u)), "version 0 ");
  check(with(4, raw(1u)), "version 1 ");
  check(with(4, raw(4u)), "version 4 is newer");
  check(with(4, raw(0x03000000u)), "big-endian");
  check(with(8, raw(int64_t{-1})), "counts -1 tensors");
  check(with(16, raw(int64_t{-5})), "-5 keys");
  check(with(8, raw(int64_t{1} << 40)), "1099511627776 tensors");
  check(with(16, raw(int64_t{1} << 60)), "1152921504606846976 keys");
  check(refused({good.begin(), good.begin() + 3}).error.message, "3 bytes");
  check(refused({}).error.message, "empty");
}

TEST_CASE("key/value table: each damage names the key") {
  const Case cases[] = {
      {"unknown value type", {"flag", 0, raw(99u)}, "unknown value type 99", "flag"},
      {"array of arrays", {"list", 4, raw(9u)}, "array of arrays", "list"},
      {"unknown element type", {"list", 4, raw(77u)}, "element type 77", "list"},
      {"array longer than the file",
       {"list", 8, raw(uint64_t{1} << 20)},
       "inside the array",
       "list"},
      {"array count that wraps", {"list", 8, raw(uint64_t{1} << 61)}, "claims", "list"},
      {"text that wraps", {"list", 16, raw(~uint64_t{0})}, "claims 18446744073709551615", "list"},
      {"text beyond the end", {"list", 16, raw(uint64_t{100000})}, "text 1 of 2", "list"},
      {"value beyond the end",
       {"general.architecture", 4, raw(uint64_t{5000})},
       "the value of key",
       "general.architecture"},
  };
  std::vector<std::byte> good = sample().image();
  for (const Case& c : cases) {
    CAPTURE(c.name);
    pn::Error e = refused(patched(good, c.patch)).error;
    CHECK_MESSAGE(has(e.message, c.says), e.message);
    CHECK(e.param == c.param);
    CHECK(e.code == pn::Code::invalid);
  }
  GgufWriter twice = sample();
  twice.keys.push_back(twice.keys[1]);
  CHECK(has(refused(twice.image()).error.message, "'n' appears twice"));
  GgufWriter unnamed = sample();
  unnamed.keys[1].name.clear();
  CHECK(has(refused(unnamed.image()).error.message, "key 2 of 4 is empty"));
  GgufWriter endless = sample();
  endless.keys[1].name.assign(70000, 'k');
  CHECK(has(refused(endless.image()).error.message, "70000 bytes"));
  GgufWriter odd = sample();
  odd.raw("flag", pn::test::kBool, "\x42");  // tolerated as true
  std::vector<std::byte> odd_image = odd.image();
  auto file = pn::gguf::Reader().from_memory(odd_image, "image");
  REQUIRE(file);
  CHECK((*file)->boolean("flag", false).value());
}

TEST_CASE("alignment: zero, no power of two, wrong type") {
  for (uint32_t bad : {0u, 24u, 33u}) {
    GgufWriter w = sample();
    w.u32("general.alignment", bad);
    CHECK(has(refused(w.image()).error.message, "power of two"));
  }
  GgufWriter w = sample();
  w.raw("general.alignment", pn::test::kU64, raw(uint64_t{32}));
  CHECK(has(refused(w.image()).error.message, "must be u32"));
  w.text("general.alignment", "32");
  CHECK(has(refused(w.image()).error.message, "must be u32"));
}

TEST_CASE("tensor table: each damage names the tensor") {
  // Behind a name: u32 rank, i64 shape[rank], u32 type, u64 offset. alpha has rank 2, beta 1.
  const Case cases[] = {
      {"rank", {"alpha", 0, raw(5u)}, "has 5 dimensions", "alpha"},
      {"negative", {"alpha", 12, raw(int64_t{-2})}, "negative dimension 1 (-2)", "alpha"},
      {"elements overflow", {"alpha", 12, raw(int64_t{1} << 60)}, "overflows", "alpha"},
      {"block", {"alpha", 4, raw(int64_t{33}) + raw(int64_t{2}) + raw(8u)}, "rows of 33", "alpha"},
      {"unaligned", {"beta", 16, raw(uint64_t{257})}, "offset 257", "beta"},
      {"overlap", {"beta", 16, raw(uint64_t{224})}, "overlap by 32 bytes", "beta"},
      {"far away", {"beta", 16, raw(uint64_t{1} << 40)}, "claims 32 bytes", "beta"},
      {"offset wraps", {"beta", 16, raw(~uint64_t{31})}, "claims 32 bytes", "beta"},
  };
  std::vector<std::byte> good = sample().image();
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Refusal r = refused(patched(good, c.patch));
    CHECK_MESSAGE(has(r.error.message, c.says), r.error.message);
    CHECK(r.error.param == c.param);
    CHECK(!r.incomplete);
  }
  GgufWriter twice = sample();
  twice.tensors[1].name = "alpha";
  CHECK(has(refused(twice.image()).error.message, "'alpha' appears twice"));
  for (size_t length : {size_t{0}, size_t{64}}) {
    GgufWriter w = sample();
    w.tensors[1].name.assign(length, 'x');
    CHECK(has(refused(w.image()).error.message, std::to_string(length) + " bytes"));
  }
  GgufWriter longest = sample();
  longest.tensors[1].name.assign(63, 'x');
  std::vector<std::byte> fits = longest.image();
  CHECK(pn::gguf::Reader().from_memory(fits, "image"));
}

TEST_CASE("types: retired, unknown, and known ones are three different things") {
  auto with_type = [](uint32_t type) {
    GgufWriter w = sample();
    for (auto& t : w.tensors) t.type = type, t.rows = {};
    return w.image();
  };
  pn::Error retired = refused(with_type(4)).error, unknown = refused(with_type(200)).error;
  CHECK(retired.code == pn::Code::unsupported);
  CHECK(unknown.code == pn::Code::unsupported);
  CHECK(has(retired.message, "tensor 'alpha' has type 4 (2 of 2"));
  CHECK(has(retired.message, "retired"));
  CHECK(has(unknown.message, "tensor 'alpha' has type 200 (2 of 2"));
  CHECK(has(unknown.message, "Update pantheon"));
  GgufWriter known = sample();
  known.tensors[0].rows = {};
  known.tensors[0].type = 39;  // MXFP4: whoever runs it decides
  std::vector<std::byte> image = known.image();
  CHECK(pn::gguf::Reader().from_memory(image, "image"));
}

TEST_CASE("any offsets without overlap are accepted: gaps and another order") {
  std::vector<std::byte> image = sample().image();
  image.resize(image.size() + 4096);
  image = patched(image, {"alpha", 24, raw(uint64_t{1024})});  // type u32, offset u64 behind 20
  auto file = pn::gguf::Reader().from_memory(image, "image");
  REQUIRE_MESSAGE(file, (file ? "" : file.error().message));
  CHECK((*file)->tensor("alpha")->offset > (*file)->tensor("beta")->offset);
}

TEST_CASE("a cut file is incomplete at every length, and says what is missing") {
  std::vector<std::byte> good = sample().image();
  for (size_t n = 0; n < good.size(); ++n) {
    CAPTURE(n);
    // A copy of the exact size, so that a sanitizer sees any read past the end.
    std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<long>(n));
    Refusal r = refused(cut);
    CHECK(r.incomplete);
    if (n > 0) CHECK(has(r.error.message, "resume the download"));
  }
  Refusal last = refused({good.begin(), good.end() - 1});
  CHECK(has(last.error.message, "1 bytes are missing, tensor 'beta' first"));
  Refusal middle = refused({good.begin(), good.end() - 40});
  CHECK(has(middle.error.message, "40 bytes are missing, tensor 'alpha' first"));
  CHECK(has(middle.error.message, std::to_string(good.size() - 40) + " bytes"));
  CHECK(has(middle.error.message, "needs " + std::to_string(good.size()) + " bytes"));
}

TEST_CASE("the cuts of a real-sized file are refused in well under a second each") {
  pn::test::Scratch scratch;
  pn::test::ModelSpec spec;
  spec.vocabulary = pn::test::VocabularyKind::bpe;
  auto writer = pn::test::random_model(spec);
  REQUIRE(writer);
  std::vector<std::byte> good = writer->image();
  std::string path = scratch.path("cut.gguf");
  auto began = std::chrono::steady_clock::now();
  for (size_t n : {size_t{3}, size_t{20}, size_t{2000}, size_t{9000}, good.size() - 1}) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(good.data()), static_cast<long>(n));
    pn::gguf::Reader reader;
    CHECK(!reader.open(path));
    CHECK(reader.incomplete());
  }
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(good.data()), static_cast<long>(good.size()))
      << std::string(1 << 20, 'x');
  auto longer = pn::gguf::File::open(path);
  REQUIRE(longer);
  REQUIRE((*longer)->warnings().size() == 1);
  CHECK(has((*longer)->warnings()[0], "1048576 bytes (1.0 MiB) after the last tensor"));
}

TEST_CASE("names from a file are escaped in messages") {
  GgufWriter w = sample();
  w.tensors[0].name = "a\x1b[31m\n";
  w.tensors[0].type = 200;
  w.tensors[0].rows = {};
  std::string message = refused(w.image()).error.message;
  CHECK(has(message, "'a\\x1b[31m\\x0a'"));
}
