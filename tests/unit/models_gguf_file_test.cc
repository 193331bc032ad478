// SPDX-License-Identifier: Apache-2.0
//
// A good file gives back what was written; typed reads name the key when it is something else.
#include "models/gguf/file.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "models/gguf/reader.h"
#include "models/quant/dequantise.h"
#include "tests/support/random_model.h"
#include "tests/support/scratch.h"

namespace {

using pn::test::GgufWriter;

GgufWriter keys_only() {
  GgufWriter w;
  w.u32("u", 7).i32("i", -3).f32("f", 1.5f).boolean("b", true).text("t", "hello");
  w.texts("ts", {"a", "", "c"}).f32s("fs", {1, 2}).i32s("is", {-1, 4});
  w.raw("u64", pn::test::kU64, std::string("\xff\xff\xff\xff\xff\0\0\0", 8));
  w.raw("u8s", pn::test::kArray, std::string("\0\0\0\0\2\0\0\0\0\0\0\0\5\6", 14));
  w.raw("bools", pn::test::kArray, std::string("\7\0\0\0\2\0\0\0\0\0\0\0\1\0", 14));
  return w;
}

struct Opened {
  std::vector<std::byte> image;
  std::shared_ptr<const pn::gguf::File> file;
};

Opened open(const GgufWriter& w) {
  Opened o;
  o.image = w.image();
  auto file = pn::gguf::Reader().from_memory(o.image, "image");
  REQUIRE_MESSAGE(file, (file ? "" : file.error().message));
  o.file = *file;
  return o;
}

template <typename T>
void check_error(const pn::Result<T>& r, const char* key) {
  REQUIRE(!r);
  CHECK(r.error().param == key);
  CHECK(r.error().message.find(std::string("'") + key + "'") != std::string::npos);
}

}  // namespace

TEST_CASE("every value type comes back") {
  Opened o = open(keys_only());
  const pn::gguf::File& f = *o.file;
  CHECK(f.version() == 3);
  CHECK(f.metadata().size() == 11);
  CHECK(f.metadata()[4].first == "t");
  CHECK(f.u32("u", 0).value() == 7);
  CHECK(std::get<int64_t>(*f.find("i")) == -3);
  CHECK(f.f32("f", 0).value() == 1.5f);
  CHECK(f.boolean("b", false).value());
  CHECK(f.text("t", "").value() == "hello");
  CHECK(std::get<uint64_t>(*f.find("u64")) == 0xffffffffffu);
  const auto& texts = std::get<pn::gguf::Array>(*f.find("ts"));
  CHECK(std::get<std::vector<std::string>>(texts) == std::vector<std::string>{"a", "", "c"});
  const auto& floats = std::get<pn::gguf::Array>(*f.find("fs"));
  CHECK(std::get<std::vector<double>>(floats) == std::vector<double>{1, 2});
  const auto& ints = std::get<pn::gguf::Array>(*f.find("is"));
  CHECK(std::get<std::vector<int64_t>>(ints) == std::vector<int64_t>{-1, 4});
  const auto& bytes = std::get<pn::gguf::Array>(*f.find("u8s"));
  CHECK(std::get<std::vector<uint64_t>>(bytes) == std::vector<uint64_t>{5, 6});
  const auto& bools = std::get<pn::gguf::Array>(*f.find("bools"));
  CHECK(std::get<std::vector<uint64_t>>(bools) == std::vector<uint64_t>{1, 0});
}

TEST_CASE("typed reads: fallback, wrong type, out of range") {
  Opened o = open(keys_only());
  const pn::gguf::File& f = *o.file;
  CHECK(f.find("absent") == nullptr);
  CHECK(f.u32("absent", 9).value() == 9);
  CHECK(f.text("absent", "x").value() == "x");
  check_error(f.require_u32("absent"), "absent");
  CHECK(f.require_u32("u").value() == 7);
  check_error(f.u32("i", 0), "i");      // negative
  check_error(f.u32("u64", 0), "u64");  // too large
  check_error(f.u32("t", 0), "t");
  check_error(f.f32("u", 0), "u");
  check_error(f.boolean("u", false), "u");
  check_error(f.text("u", ""), "u");
  check_error(f.text("ts", ""), "ts");
}

TEST_CASE("tensors lie where the file says, at any alignment, in versions 2 and 3") {
  for (uint32_t alignment : {32u, 1u, 64u, 4096u})
    for (uint32_t version : {2u, 3u}) {
      GgufWriter w = keys_only();
      w.alignment = alignment;
      w.version = version;
      w.values("first", {3, 2}, {1, 2, 3, 4, 5, 6}).values("second", {5}, {7, 8, 9, 10, 11});
      w.tensor("empty", 0, {0}).tensor("scalar", 0, {});
      Opened o = open(w);
      CHECK(o.file->version() == version);
      const pn::gguf::Tensor* t = o.file->tensor("second");
      REQUIRE(t != nullptr);
      CHECK(t->rank == 1);
      CHECK(t->shape == std::array<int64_t, 4>{5, 1, 1, 1});
      CHECK(t->bytes == 20);
      CHECK(t->offset % alignment == 0);
      CHECK(t->data == o.image.data() + t->offset);
      float values[5];
      std::memcpy(values, t->data, sizeof values);
      CHECK(values[4] == 11);
      CHECK(o.file->tensor("empty")->bytes == 0);
      CHECK(o.file->tensor("scalar")->bytes == 4);
      CHECK(o.file->tensor("third") == nullptr);
      CHECK(o.file->warnings().empty());
    }
}

TEST_CASE("a file on disk is mapped, stays open, and may be dropped from memory page by page") {
  pn::test::Scratch scratch;
  pn::test::ModelSpec spec;
  auto writer = pn::test::random_model(spec);
  REQUIRE(writer);
  std::string path = scratch.path("m.gguf");
  REQUIRE(writer->write(path));
  auto file = pn::gguf::File::open(path);
  REQUIRE(file);
  CHECK((*file)->shards().size() == 1);
  CHECK((*file)->shards()[0].bytes == std::filesystem::file_size(path));
  CHECK((*file)->shards()[0].fd >= 0);
  const pn::gguf::Tensor* t = (*file)->tensor("token_embd.weight");
  REQUIRE(t != nullptr);
  std::vector<std::byte> before(t->data, t->data + t->bytes);
  std::filesystem::remove(path);  // the mapping holds it
  (*file)->drop_pages(*t);
  CHECK(std::memcmp(before.data(), t->data, t->bytes) == 0);
  CHECK(before == [&] {
    std::vector<std::byte> image = writer->image();
    return std::vector<std::byte>(image.begin() + static_cast<long>(t->offset),
                                  image.begin() + static_cast<long>(t->offset + t->bytes));
  }());
}

TEST_CASE("what is no model file is refused by what it is") {
  pn::test::Scratch scratch;
  auto message = [&](const std::string& name, const std::string& content) {
    std::ofstream(scratch.path(name), std::ios::binary) << content;
    auto file = pn::gguf::File::open(scratch.path(name));
    REQUIRE(!file);
    CHECK(file.error().message.find(scratch.path(name)) == 0);
    return file.error().message;
  };
  CHECK(message("lfs", "version https://git-lfs.github.com/spec/v1\n").find("git lfs pull") !=
        std::string::npos);
  CHECK(message("web", "<!DOCTYPE html>").find("web page") != std::string::npos);
  CHECK(message("zip", "PK\3\4....").find("zip") != std::string::npos);
  CHECK(message("safe", std::string("\x10\0\0\0\0\0\0\0{\"a\"", 12)).find("safetensors") !=
        std::string::npos);
  CHECK(message("zeros", std::string(100, '\0')).find("zeros") != std::string::npos);
  CHECK(message("empty", "").find("empty") != std::string::npos);
  auto folder = pn::gguf::File::open(scratch.folder());
  REQUIRE(!folder);
  CHECK(folder.error().message.find("folder") != std::string::npos);
  auto device = pn::gguf::File::open("/dev/null");
  REQUIRE(!device);
  CHECK(device.error().message.find("regular file") != std::string::npos);
  auto none = pn::gguf::File::open(scratch.path("none"));
  REQUIRE(!none);
  CHECK(none.error().code == pn::Code::not_found);
}

TEST_CASE("the type table: blocks of every known type, and two kinds of unknown ones") {
  CHECK(pn::gguf::type_info(0)->block_bytes == 4);
  CHECK(std::string(pn::gguf::type_info(14)->name) == "Q6_K");
  CHECK(pn::gguf::type_info(14)->block_bytes == 210);
  CHECK(std::string(pn::gguf::type_info(39)->name) == "MXFP4");
  CHECK(std::string(pn::gguf::type_info(42)->name) == "Q2_0");
  uint32_t known = 0;
  for (uint32_t t = 0; t < 100; ++t) known += pn::gguf::type_info(t) != nullptr;
  CHECK(known == 35);
  for (uint32_t t : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u})
    CHECK(pn::gguf::type_state(t) == pn::gguf::TypeState::retired);
  CHECK(pn::gguf::type_state(43) == pn::gguf::TypeState::unknown);
  CHECK(pn::gguf::type_state(~0u) == pn::gguf::TypeState::unknown);
  // Bits per weight that the format notes list, for types whose size is easily confused.
  const std::pair<const char*, double> bits[] = {
      {"Q4_K", 4.5},     {"Q5_K", 5.5},  {"Q6_K", 6.5625}, {"Q3_K", 3.4375},
      {"TQ1_0", 1.6875}, {"NVFP4", 4.5}, {"IQ1_M", 1.75}};
  for (auto [name, wanted] : bits)
    for (uint32_t t = 0; t < 43; ++t) {
      const pn::gguf::TypeInfo* info = pn::gguf::type_info(t);
      if (info && std::string(info->name) == name)
        CHECK(info->block_bytes * 8.0 / info->block == wanted);
    }
}

TEST_CASE("a file that is still being written is told to be growing") {
  pn::test::Scratch scratch;
  auto writer = pn::test::random_model({});
  REQUIRE(writer);
  std::vector<std::byte> image = writer->image();
  std::string path = scratch.path("m.gguf");
  size_t most = image.size() - 300000;
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(image.data()), static_cast<long>(most)).flush();
  std::atomic<bool> stop = false;
  std::thread download([&] {  // again and again, so that a starved reader meets it too
    while (!stop) {
      std::filesystem::resize_file(path, most);
      out.seekp(static_cast<long>(most));
      for (size_t i = most; i + 1 < image.size() && !stop; ++i)
        out.put(static_cast<char>(image[i])).flush();
    }
  });
  bool growing = false;
  for (int i = 0; i < 1000000 && !growing; ++i) {
    pn::gguf::Reader reader;
    auto file = reader.open(path);
    if (file) break;  // cannot be: the last byte is never written
    CHECK(reader.incomplete());
    growing = file.error().code == pn::Code::busy;
    if (growing) CHECK(file.error().message.find("it is growing") != std::string::npos);
  }
  stop = true;
  download.join();
  CHECK(growing);
}
