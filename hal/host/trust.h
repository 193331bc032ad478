// SPDX-License-Identifier: Apache-2.0
//
// May others write to this file or folder? A plugin runs with all our rights, so a place where
// somebody else can put or replace one is refused.
//
// Looked at are the file or folder and all above it, up to the first that also stands above the
// executable: who can write there could replace the executable itself. Trusted owners: root, the
// user who runs this, the owner of the executable. A group may write only when it is the owner's
// private one (Debian's default for users), or root opened a folder further up to it.
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
