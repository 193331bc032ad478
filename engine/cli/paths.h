// SPDX-License-Identifier: Apache-2.0
//
// Folders that the build knows. Apart from everything else, so that only this object differs
// between two checkouts and a compiler cache serves the rest.
#pragma once

namespace pn::cli {

const char* source_root();  // of the checkout that this was built from
const char* data_dir();     // PREFIX/share/pantheon

}  // namespace pn::cli
