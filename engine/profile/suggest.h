// SPDX-License-Identifier: Apache-2.0
//
// "did you mean ...": the known word that is nearest to an unknown one.
#pragma once

#include <string>
#include <vector>

namespace pn::profile {

// Empty when nothing is near: more edits than a third of its letters, or than three.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

// "; did you mean 'x'?" or "; known are a, b, c"
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

}  // namespace pn::profile
