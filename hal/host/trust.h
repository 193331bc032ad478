// SPDX-License-Identifier: Apache-2.0
//
// May others write to this file or folder? A plugin runs with all our rights, so a place where
// somebody else can put or replace one is refused.
//
// Trusted owners: root, the user who runs this, and the owner of the executable (who could replace
// the executable itself). A folder that its group may write to is trusted only when that group is
// the user's own private one, Debian's default.
#pragma once

#include <string>

#include "hal/host/result.h"

namespace pn::hal {

// A folder that is searched, and every folder above it. Sticky folders (/tmp) may stand above it,
// and may not be it: others can add files there.
Result<void> check_folder(const std::string& folder);

// A file named by the user, and the folders above it.
Result<void> check_file(const std::string& file);

}  // namespace pn::hal
