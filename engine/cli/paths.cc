// SPDX-License-Identifier: Apache-2.0
#include "engine/cli/paths.h"

namespace pn::cli {

const char* source_root() { return PN_SOURCE_ROOT; }
const char* data_dir() { return PN_DATA_DIR; }

}  // namespace pn::cli
