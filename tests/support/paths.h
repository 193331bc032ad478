// SPDX-License-Identifier: Apache-2.0
//
// Where a test finds the build tree, and a folder of its own that vanishes with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace pn::test {

inline std::string build_path(const std::string& relative) {
  const char* root = std::getenv("PN_BUILD_ROOT");
  return std::string(root != nullptr ? root : "build") + "/" + relative;
}

inline std::string source_path(const std::string& relative) {
  const char* root = std::getenv("PN_SOURCE_ROOT");
  return std::string(root != nullptr ? root : ".") + "/" + relative;
}

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pantheon.XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pn::test
