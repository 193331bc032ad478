// SPDX-License-Identifier: Apache-2.0
//
// An opened die that several model copies share.
//
// Owns the device and the lock that makes [control] calls one at a time. Knows no model.
#pragma once

#include <mutex>
#include <string>

#include "hal/host/hal.h"

namespace pn::engine {

struct Die {
  hal::Device device;
  std::string id;           // "cpu:0"
  std::mutex control;       // held around every [control] call on the device
  uint32_t generation = 0;  // of the isolated plugin's process that it was opened in
  uint64_t budget = 0;      // bytes that all copies on it may take together; 0: what it has
};

}  // namespace pn::engine
