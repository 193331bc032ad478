// SPDX-License-Identifier: Apache-2.0
//
// `pantheon plugin new`: a plugin project from the template, which the program carries with it.
//
// Owns names and folders of new projects. Knows the template as texts only: the word "template" in
// them is what becomes the name.
#pragma once

#include <string>
#include <vector>

#include "hal/host/result.h"

namespace pn::cli {

struct TemplateFile {
  std::string name;
  std::string text;
};
const std::vector<TemplateFile>& template_files();  // of plugins/template

// Writes the files into a folder that did not exist; its path.
Result<std::string> new_plugin(const std::string& name, const std::string& folder);

}  // namespace pn::cli
