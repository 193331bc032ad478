// SPDX-License-Identifier: Apache-2.0
//
// The HAL as C++: what the engine includes.
//
//   Plugin  load by name or path; note, dies, table, named interfaces      hal/host/plugin.h
//   Device  one die: heaps, memory, buffers, plans, queues                 hal/host/device.h
//   Layout  which bytes a weight becomes, and the conversion               hal/host/layout.h
//
// Nothing above hal/ sees a C table slot or a status number, unless it wants to.
#pragma once

#include "hal/host/device.h"
#include "hal/host/layout.h"
#include "hal/host/plugin.h"
