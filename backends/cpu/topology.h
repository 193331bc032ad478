// SPDX-License-Identifier: Apache-2.0
//
// The plugin's pantheon.topology/1 and pantheon.peer/1 tables.
#pragma once

#include <pantheon/topology.h>

namespace pn::cpu {

const pn_topology_api* topology_api();
const pn_peer_api* peer_api();

}  // namespace pn::cpu
