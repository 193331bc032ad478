// SPDX-License-Identifier: Apache-2.0
//
// A temporary folder of random models, and the fake plugin negotiated through the real host side.
// Knows no scheduler.
#include "tests/support/fake_model.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>

#include "tests/support/fake_plugin.h"

namespace pn::test {
namespace {

struct Folder {
  std::string path;
  std::map<std::string, std::string> files;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "pn-engine-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

std::string model_file(const ModelSpec& spec) {
  static Folder folder;
  std::string key =
      spec.name + "-" + spec.type + "-" + std::to_string(spec.seed) + (spec.tied ? "-tied" : "");
  std::string& path = folder.files[key];
  if (!path.empty()) return path;
  path = folder.path + "/" + key + ".gguf";
  Result<GgufWriter> writer = random_model(spec);
  REQUIRE_MESSAGE(writer.has_value(), writer.error().message);
  Result<void> written = writer->write(path);
  REQUIRE_MESSAGE(written.has_value(), written.error().message);
  return path;
}

std::shared_ptr<const arch::Model> model_of(const ModelSpec& spec) {
  Result<std::shared_ptr<const gguf::File>> file = gguf::File::open(model_file(spec));
  REQUIRE_MESSAGE(file.has_value(), file.error().message);
  Result<std::shared_ptr<const arch::Model>> model = arch::Model::load(*file);
  REQUIRE_MESSAGE(model.has_value(), model.error().message);
  return *model;
}

std::shared_ptr<hal::Plugin> fake_hal_plugin() {
  static std::shared_ptr<hal::Plugin> plugin;
  if (plugin) return plugin;
  hal::Note note;
  note.name = "fake";
  Result<std::shared_ptr<hal::Plugin>> made = hal::Plugin::from_entry(FakePlugin::entry, note, {});
  REQUIRE_MESSAGE(made.has_value(), made.error().message);
  plugin = *made;
  return plugin;
}

std::shared_ptr<engine::Die> fake_die() {
  auto die = std::make_shared<engine::Die>();
  Result<hal::Device> device = hal::Device::open(fake_hal_plugin(), 0);
  REQUIRE_MESSAGE(device.has_value(), device.error().message);
  die->device = std::move(*device);
  die->id = die->device.id();
  return die;
}

}  // namespace pn::test
