// SPDX-License-Identifier: Apache-2.0
//
// A folder for one test, gone afterwards.
//
// Owns the folder. Knows nothing of what is put there.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace pn::test {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pn-test-XXXXXX").string();
    if (const char* made = ::mkdtemp(pattern.data())) folder_ = made;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

// The folder of shared models and golden outputs; empty when this machine has none.
inline std::string shared_folder() {
  const char* named = std::getenv("PN_SHARED");
  const char* root = std::getenv("PN_SOURCE_ROOT");
  std::string folder = named ? named : std::string(root ? root : ".") + "/../shared";
  std::error_code ignored;
  return std::filesystem::is_directory(folder + "/models", ignored) ? folder : "";
}

}  // namespace pn::test
