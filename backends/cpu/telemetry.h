// SPDX-License-Identifier: Apache-2.0
//
// The plugin's pantheon.telemetry/1 table.
#pragma once

#include <pantheon/telemetry.h>

namespace pn::cpu {

const pn_telemetry_api* telemetry_api();

}  // namespace pn::cpu
